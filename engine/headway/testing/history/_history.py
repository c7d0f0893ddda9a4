"""The judge of a history, which is what many processes have seen of one store. Pure.

Its rules are those of writes, reads, caches, terms and reconciles.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from headway.resource import Key, Kind
from headway.testing.history._facts import (
    BookmarkDelivered,
    CacheSeen,
    ChangesDelivered,
    DeletionsMissed,
    Fact,
    ReadAnswered,
    ReconcileDone,
    SnapshotDelivered,
    SnapshotEnded,
    TermHeld,
    WatchOpened,
    WriteAnswered,
    WriteSent,
    read_fact,
)
from headway.testing.history._truth import Blame, Truth, Violation, place
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


Owes = Mapping[str, Mapping[Kind, Callable[[Key], Iterable[Key]]]]
"""For each controller and kind, a function from a changed key to the keys that the controller must reconcile."""


def judge_writes(facts: Sequence[Fact], truth: Truth, blame: Blame) -> None:
    """Check the rules of writes.

    A revision belongs to one write, a write replaced the version that it was to replace, and a rejected write never
    took effect.
    """
    writes = [fact for fact in facts if isinstance(fact, WriteAnswered)]
    owners: dict[int, WriteAnswered] = {}
    for write in _committed(writes):
        other = owners.setdefault(write.revision, write)
        if (other.kind, other.key) != (write.kind, write.key):
            both = f"{place(other.kind, other.key)} and {place(write.kind, write.key)}"
            blame("once", f"revision {write.revision} was given to {both}")
        before = truth.latest(write.kind, write.key, write.revision - 1)
        # A write that found its content already stored has replaced nothing.
        if (
            write.expected not in (0, write.revision)
            and before is not None
            and (before.change.deleted or before.change.revision != write.expected)
        ):
            what = f"{write.who} wrote {place(write.kind, write.key)} at {write.revision} over {write.expected}"
            blame("replaced", f"{what}, which {before.by} has replaced at {before.change.revision}")
    # An attempt of a process that was killed meanwhile has no answer. A channel that records no sending has answers.
    sent = Counter(fact.digest for fact in facts if isinstance(fact, WriteSent))
    sent |= Counter(write.digest for write in writes)
    del sent[""]  # deletions
    happened = {
        (known.change.digest, key)
        for kind in truth.kinds
        for key in truth.keys(kind)
        for known in truth.later(kind, key, 0)
    }
    for write in writes:
        if write.outcome == "refused" and sent[write.digest] == 1 and (write.digest, write.key) in happened:
            blame("refused", f"a write of {place(write.kind, write.key)} by {write.who} was rejected, but took effect")


def _committed(writes: Sequence[WriteAnswered]) -> list[WriteAnswered]:
    """Return the acknowledged writes that stored something, or found it stored by the last commit."""
    return [
        each
        for each in writes
        if each.outcome == "acknowledged" and each.stored is not None and each.stored.revision == each.revision
    ]


def judge_times(facts: Sequence[Fact], truth: Truth, blame: Blame) -> None:
    """Check that calls sent after the acknowledgment of a write come after it: writes are later, and reads see it."""
    writes = _committed([fact for fact in facts if isinstance(fact, WriteAnswered)])
    reads = [fact for fact in facts if isinstance(fact, ReadAnswered)]
    acknowledged = sorted((write.times[1], write.revision) for write in writes)
    highest, index = 0, 0
    calls: list[WriteAnswered | ReadAnswered] = [*writes, *reads]
    for call in sorted(calls, key=lambda each: each.times[0]):
        while index < len(acknowledged) and acknowledged[index][0] < call.times[0]:
            highest = max(highest, acknowledged[index][1])
            index += 1
        # An equal revision is allowed: the write found its content stored there.
        if isinstance(call, WriteAnswered) and call.revision < highest:
            what = f"{place(call.kind, call.key)} was written by {call.who} at {call.revision}"
            blame("in order", f"{what}, but sent after revision {highest} was acknowledged")
        elif isinstance(call, ReadAnswered):
            what = f"a read of {place(call.kind, call.key)} by {call.who} was answered"
            if call.revision < highest:
                blame("linearizable", f"{what} at {call.revision}, but sent after {highest} was acknowledged")
            latest = truth.latest(call.kind, call.key, call.revision)
            there = 0 if latest is None or latest.change.deleted else latest.change.revision
            if there != call.version and (latest is not None or call.version):
                blame("linearizable", f"{what} with version {call.version} at {call.revision}, where it was {there}")


def judge_caches(facts: Sequence[Fact], truth: Truth, blame: Blame) -> None:
    """Check that caches never go back, and hold what was stored or what their own writers know of later revisions."""
    frontiers: dict[tuple[str, Kind], int] = {}
    highest: dict[tuple[str, Kind], dict[Key, int]] = defaultdict(dict)
    gone: dict[tuple[str, Kind], set[Key]] = defaultdict(set)
    for seen in facts:
        if not isinstance(seen, CacheSeen):
            continue
        life, held = (seen.cache, seen.kind), dict(seen.held)
        where = f"cache {seen.cache} at {seen.revision}"
        if seen.revision < frontiers.get(life, 0):
            blame("monotonic", f"{where} was already complete up to {frontiers[life]} for {seen.kind[1]}")
        frontiers[life] = max(frontiers.get(life, 0), seen.revision)
        for key, known in highest[life].items():
            version = held.get(key, 0)
            if version and (version < known or (version == known and key in gone[life])):
                before = "and later not at all" if key in gone[life] else "before"
                blame("monotonic", f"{where} had {place(seen.kind, key)} at {version}, but had it at {known} {before}")
            if not version:
                gone[life].add(key)
        for key, version in held.items():
            if version > highest[life].get(key, 0):
                highest[life][key] = version
                gone[life].discard(key)
        _compare_cache(seen, held, truth, blame)


def _compare_cache(seen: CacheSeen, held: Mapping[Key, int], truth: Truth, blame: Blame) -> None:
    for key in {*held, *truth.keys(seen.kind)}:
        latest = truth.latest(seen.kind, key, seen.revision)
        there = 0 if latest is None or latest.change.deleted else latest.change.revision
        version = held.get(key, 0)
        if version == there:
            continue
        ahead = truth.later(seen.kind, key, seen.revision)
        if not any(each.change.deleted if not version else each.change.revision == version for each in ahead):
            what = f"cache {seen.cache}, complete up to {seen.revision}, had {place(seen.kind, key)} at {version}"
            blame("one cut", f"{what}, but it was at {there} (0: absent)")


def judge_terms(facts: Sequence[Fact], blame: Blame) -> None:
    """Check that a term belongs to one process, and that nothing is written in it after a write in a later term."""
    holders: dict[tuple[str, ...], str] = {}
    terms: dict[tuple[str, str], int] = {}
    writes = [fact for fact in facts if isinstance(fact, WriteAnswered) and fact.fence is not None]
    for fact in facts:
        if isinstance(fact, TermHeld):
            _hold(holders, ("lease", fact.lease, str(fact.term)), fact.who, blame)
        elif isinstance(fact, WriteAnswered) and fact.fence is not None and fact.outcome == "acknowledged":
            _hold(holders, tuple(map(str, ("fence", *fact.fence))), fact.who, blame)
    for write in sorted(_committed(writes), key=lambda each: (each.revision, each.fence)):
        assert write.fence is not None
        controller, member, term = write.fence
        if term < terms.get((controller, member), 0):
            later = terms[controller, member]
            blame("fenced", f"{write.who} wrote at {write.revision} in term {term} of {controller}, after term {later}")
        terms[controller, member] = max(term, terms.get((controller, member), 0))


def _hold(holders: dict[tuple[str, ...], str], term: tuple[str, ...], who: str, blame: Blame) -> None:
    if holders.setdefault(term, who) != who:
        blame("one holder", f"{holders[term]} and {who} both held {' '.join(term)}")


def judge_reconciles(facts: Sequence[Fact], truth: Truth, owes: Owes, blame: Blame) -> None:
    """Check that some reconcile of every key began with a cache that had all the last changes that call for it.

    A deletion that a run has reported it cannot know of does not count.
    """
    missed = [fact for fact in facts if isinstance(fact, DeletionsMissed)]
    done: dict[tuple[str, Key], list[ReconcileDone]] = defaultdict(list)
    own: dict[tuple[str, Kind, int], float] = {}
    for fact in facts:
        if isinstance(fact, ReconcileDone):
            done[fact.controller, fact.key].append(fact)
        elif isinstance(fact, WriteAnswered):
            write = (fact.who, fact.kind, fact.revision)
            own[write] = min(own.get(write, math.inf), fact.times[1])
    for controller, kinds in owes.items():
        needed: dict[Key, dict[Kind, int]] = defaultdict(dict)
        for kind, mapper in kinds.items():
            for revision, key in truth.changes(kind, 0, 1 << 64):
                known = truth.at(kind, key, revision)
                excused = (
                    known is not None
                    and known.change.deleted
                    and any(
                        (each.controller, each.kind) == (controller, kind) and each.after < revision <= each.upto
                        for each in missed
                    )
                )
                for owed in mapper(key):
                    if excused:
                        needed[owed].pop(kind, None)
                    else:
                        needed[owed][kind] = revision
        for key, last in needed.items():
            if last and not any(_saw(each, last, own) for each in done[controller, key]):
                changes = ", ".join(f"{kind[1]} at {revision}" for kind, revision in last.items())
                blame(
                    "reconciled", f"no reconcile of {'/'.join(key)} by {controller} began after its changes: {changes}"
                )


def _saw(done: ReconcileDone, last: Mapping[Kind, int], own: Mapping[tuple[str, Kind, int], float]) -> bool:
    """Return True if a reconcile saw these changes.

    It saw a change if its cache was complete up to there, or if its own process made the change in a write that was
    answered before the reconcile began.
    """
    seen = dict(done.seen)
    return all(
        seen.get(kind, 0) >= revision or own.get((done.who, kind, revision), done.began) < done.began
        for kind, revision in last.items()
    )
