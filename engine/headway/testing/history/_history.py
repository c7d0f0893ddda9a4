"""The judge of a history: of what many processes have seen of one store. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from headway.resource import Kind
from headway.testing.history._facts import (
    BookmarkDelivered,
    ChangesDelivered,
    Fact,
    SnapshotDelivered,
    SnapshotEnded,
    WatchOpened,
    read_fact,
)
from headway.testing.history._rules import Owes, judge_caches, judge_reconciles, judge_terms, judge_times, judge_writes
from headway.testing.history._truth import Truth, Violation
from headway.testing.history._watches import WatchJudge

HISTORY_RULES: Mapping[str, str] = MappingProxyType(
    {
        "ordered": "a watch delivers changes in order of revision, and none at or below its snapshot's",
        "unique": "a watch delivers no change twice",
        "reliable": "a watch leaves out no change between two that it delivers",
        "atomic": "a watch delivers a commit whole",
        "resumable": "a resumed watch delivers every change after its position, and none before it",
        "bookmarkable": "everything up to a bookmark is delivered before it",
        "snapshot": "a snapshot has what was stored at its revision, and nothing else",
        "gapless": "no change is left out between a snapshot and the first change after it",
        "selected": "a watch by metadata delivers what it selects, and deletes only what it has delivered",
        "agreed": "all readers get the same for a revision",
        "one store": "all positions have the same store id",
        "witnessed": "for every kind that was written, some watch reaches the last acknowledged write",
        "durable": "no acknowledged write is lost",
        "refused": "a rejected write never takes effect",
        "replaced": "a write that names the version it replaces has replaced that version",
        "once": "a revision belongs to one write",
        "in order": "a write sent after the acknowledgment of another has a higher revision",
        "linearizable": "a read sees what was acknowledged before it was sent, and returns what was stored",
        "monotonic": "no version goes back in any cache, and no deleted resource comes back",
        "one cut": "a cache holds what was stored at its revision, and later changes only of its own writers",
        "one holder": "no two processes hold the same term, or write in it",
        "fenced": "nothing is written in a term after a write in a later term",
        "reconciled": "every key is reconciled after the last change that calls for it",
    }
)
"""The rules that `History.check` checks, by name. Each sentence is true of a correct store."""


class History:
    """The facts of any number of processes about one store.

    Add each process's facts in the order of their occurrence; the order between processes does not matter. Call
    ``history.check()`` after a test with processes that wrote, watched and were killed. See `RecordingChannel`.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self.facts: list[Fact] = list(facts)

    def add(self, fact: Fact) -> None:
        """Add a fact."""
        self.facts.append(fact)

    def read(self, lines: Iterable[str]) -> None:
        """Add the facts that a process has written with `fact_line`.

        An unfinished last line is left out: the process was killed while writing it.
        """
        for line in lines:
            if line.endswith("\n"):
                self.add(read_fact(line))

    def violations(self, owes: Owes | None = None) -> list[Violation]:
        """Return the violations, without duplicates. An empty list means that none was found.

        ``owes`` maps a change to the keys that a controller has to reconcile because of it. Without it, reconciles are
        not judged.
        """
        found: dict[Violation, None] = {}

        def blame(rule: str, sentence: str) -> None:
            assert rule in HISTORY_RULES, rule
            found[Violation(rule, sentence)] = None

        truth = Truth(self.facts, blame)
        judges: dict[str, WatchJudge] = {}
        for fact in self.facts:
            if isinstance(fact, WatchOpened):
                judges[fact.watch] = WatchJudge(fact, blame)
            elif isinstance(fact, SnapshotDelivered | SnapshotEnded | ChangesDelivered | BookmarkDelivered):
                judges[fact.watch].add(fact)
        for judge in judges.values():
            judge.compare(truth)
        if len(stores := {store_id for judge in judges.values() for store_id in judge.store_ids}) > 1:
            blame("one store", f"the positions are of different stores: {', '.join(sorted(stores))}")
        reached: dict[Kind, int] = {}
        for judge in judges.values():
            reached[judge.kind] = max(reached.get(judge.kind, 0), judge.upto or 0)
        for kind, _, revision in truth.acknowledged:
            if revision > reached.get(kind, 0):
                blame("witnessed", f"no watch of {kind[1]} has delivered anything after {reached.get(kind, 0)}")
        judge_writes(self.facts, truth, blame)
        judge_times(self.facts, truth, blame)
        judge_caches(self.facts, truth, blame)
        judge_terms(self.facts, blame)
        if owes:
            judge_reconciles(self.facts, truth, owes, blame)
        return list(found)

    def check(self, owes: Owes | None = None) -> None:
        """Raise AssertionError if there are violations. The message has the first twenty."""
        found = self.violations(owes)
        if found:
            lines = [f"{rule}: {sentence}" for rule, sentence in found[:20]]
            raise AssertionError(f"{len(found)} violations in {len(self.facts)} facts:\n" + "\n".join(lines))
