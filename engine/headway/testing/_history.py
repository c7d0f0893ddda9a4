"""The judge of what many processes have seen of one store. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from headway.resource import Kind
from headway.testing._facts import BookmarkTold, ChangesTold, Fact, SnapshotEnded, SnapshotTold, WatchOpened, read_fact
from headway.testing._history_rules import Owes, judge_caches, judge_reconciles, judge_terms, judge_times, judge_writes
from headway.testing._history_truth import Truth, Violation
from headway.testing._history_watches import WatchJudge

HISTORY_RULES: Mapping[str, str] = MappingProxyType(
    {
        "ordered": "a watch tells changes in order of revision, and none at or below its snapshot's",
        "unique": "a watch tells no change twice",
        "reliable": "a watch leaves out no change between two that it tells",
        "atomic": "a watch tells a commit whole",
        "resumable": "a watch that is resumed tells every change after its position, and none before it",
        "bookmarkable": "everything up to a bookmark has been told before it",
        "snapshot": "a snapshot has what was there at its revision, and nothing else",
        "gapless": "nothing is left out between a snapshot and the first change after it",
        "agreed": "everybody is told the same of a revision",
        "one store": "all positions are of one store id",
        "witnessed": "of every kind that was written some watch reaches beyond the last acknowledged write",
        "durable": "no acknowledged write is lost",
        "refused": "what was refused never happens",
        "replaced": "a write that names the version that it replaces has replaced that one",
        "once": "a revision is given to one write",
        "in order": "a write that is sent after another one was acknowledged has a higher revision",
        "linearizable": "a read sees what was acknowledged before it was sent, and answers what was there",
        "monotonic": "no version goes back in any cache, and no deleted resource comes back",
        "one cut": "a cache holds what was there at its revision, and later only what its own writers know",
        "one holder": "no two processes hold one term, or write in one",
        "fenced": "nothing of a term is written after a later term has written",
        "reconciled": "every key is reconciled after the last change that it is owed for",
    }
)
"""What `History.check` looks for: the rules by name, each as the sentence that is true of a good store."""


class History:
    """Facts of any number of processes about one store, in any order but that in which each of them saw its own.

    ``history.check()`` after a test in which processes wrote, watched and were killed; see `RecordingChannel`.
    """

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self.facts: list[Fact] = list(facts)

    def add(self, fact: Fact) -> None:
        """One more fact."""
        self.facts.append(fact)

    def read(self, lines: Iterable[str]) -> None:
        """Facts as a process has written them down by `fact_line`.

        A last line that was not finished is left out: its process was killed in it.
        """
        for line in lines:
            if line.endswith("\n"):
                self.add(read_fact(line))

    def violations(self, owes: Owes | None = None) -> list[Violation]:
        """What breaks a rule, each sentence once. Empty: nothing was found.

        ``owes`` says which keys a controller has to reconcile because of a key's change; without it nothing is said of
        reconciles.
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
            elif isinstance(fact, SnapshotTold | SnapshotEnded | ChangesTold | BookmarkTold):
                judges[fact.watch].hear(fact)
        for judge in judges.values():
            judge.compare(truth)
        if len(stores := {store_id for judge in judges.values() for store_id in judge.store_ids}) > 1:
            blame("one store", f"there are positions of {', '.join(sorted(stores))}")
        reached: dict[Kind, int] = {}
        for judge in judges.values():
            reached[judge.kind] = max(reached.get(judge.kind, 0), judge.upto or 0)
        for kind, _, revision in truth.acknowledged:
            if revision > reached.get(kind, 0):
                blame("witnessed", f"no watch of {kind[1]} has told anything from {reached.get(kind, 0)} on")
        judge_writes(self.facts, truth, blame)
        judge_times(self.facts, truth, blame)
        judge_caches(self.facts, truth, blame)
        judge_terms(self.facts, blame)
        if owes:
            judge_reconciles(self.facts, truth, owes, blame)
        return list(found)

    def check(self, owes: Owes | None = None) -> None:
        """Raise AssertionError with the violations, if there are any, the first twenty in words."""
        found = self.violations(owes)
        if found:
            lines = [f"{rule}: {sentence}" for rule, sentence in found[:20]]
            raise AssertionError(f"{len(found)} violations in {len(self.facts)} facts:\n" + "\n".join(lines))
