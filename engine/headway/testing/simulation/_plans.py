"""Which faults are worth trying: those of a run without faults, at every place where they can matter. Pure."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from headway.testing.simulation import _faults as faults
from headway.testing.simulation._faults import Fault, Plan
from headway.testing.simulation._trace import Committed, Happened, Step, Trace

_BEHINDS_A_STEP = 3
_RESTORES = 8


def single_faults(trace: Trace, kinds: set[tuple[str, str]]) -> tuple[list[Fault], Counter[str]]:
    """The faults to try, each alone, simplest first, and how many were left out and why."""
    left_out: Counter[str] = Counter()
    steps = _until_the_end(trace)
    by_name: dict[str, list[Fault]] = {}
    for fault in (
        *_of_steps(steps, left_out),
        *_of_changes(trace, steps, kinds, left_out),
        *_behinds(trace, steps, kinds, left_out),
        *_restores(trace, steps, kinds),
    ):
        by_name.setdefault(fault.name, []).append(fault)
    # In turns, so that whatever the time is good for, every sort of fault has been tried.
    turns = itertools.zip_longest(*by_name.values())
    return [fault for turn in turns for fault in turn if fault is not None], left_out


def pairs(found: Sequence[Fault], count: int, seed: int = 0) -> Iterator[Plan]:
    """Plans of two faults each, of different places, by chance but the same ones each time."""
    choose = random.Random(seed)
    if len(found) < 2:
        return
    tried: set[tuple[Fault, Fault]] = set()
    for _ in range(count * 3):
        one, other = choose.sample(list(found), 2)
        if _place(one) == _place(other) or (one, other) in tried or (other, one) in tried:
            continue
        tried.add((one, other))
        yield Plan(one, other)
        if len(tried) >= count:
            return


def _place(fault: Fault) -> object:
    if isinstance(fault, faults.StepFault):
        return fault.step
    assert isinstance(fault, faults.ChangeFault)
    return (fault.type, fault.revision)


def _until_the_end(trace: Trace) -> list[Step]:
    """The steps before the scenario was over: what comes later has no faults."""
    steps: list[Step] = []
    for entry in trace.entries:
        if isinstance(entry, Happened) and entry.text.startswith("the scenario is over"):
            break
        if isinstance(entry, Step):
            steps.append(entry)
    return steps


def _changes_something(step: Step) -> bool:
    return step.write and (step.revision > 0 or not step.kind[1])


def _of_steps(steps: Sequence[Step], left_out: Counter[str]) -> Iterator[Fault]:
    for step in steps:
        number = step.number
        if not step.write:
            yield faults.NotDone(number)
            yield faults.AnswerLate(number)
            left_out["a crash around a read is one before the next write"] += 2
            continue
        if not _changes_something(step):
            # Like a read. But it may change something when it comes late.
            yield faults.NotDone(number)
            yield faults.CommitLate(number, 30.0)
            yield faults.AnswerLate(number)
            left_out["the write changed nothing"] += 9
            continue
        yield faults.CrashAfter(number)
        yield faults.CrashBefore(number)
        yield faults.AnswerLost(number)
        yield faults.NotDone(number)
        if step.kind[1]:
            yield faults.LostRace(number)
        yield faults.CommitLate(number, 0.0)
        yield faults.CommitLate(number, 30.0)
        yield faults.LeaseLost(number)
        yield faults.CutOff(number)
        yield faults.ServerRestart(number)
        yield faults.AnswerLate(number)
        yield faults.ClockJump(number)


def _of_changes(
    trace: Trace, steps: Sequence[Step], kinds: set[tuple[str, str]], left_out: Counter[str]
) -> Iterator[Fault]:
    last = _last_acted_upon(trace, steps)
    commits = [each for each in trace.commits if each.kind in kinds]
    for at, commit in enumerate(commits):
        name = ".".join(commit.kind)
        if commit.revision > last:
            # What should have followed the last change may be just what is forgotten; a delay of it changes nothing.
            yield faults.Missed(name, commit.revision)
            left_out["no write comes after the change"] += 5
            continue
        yield faults.Stall(name, commit.revision)
        yield faults.HistoryLost(name, commit.revision)
        yield faults.Drop(name, commit.revision)
        yield faults.Repeat(name, commit.revision)
        yield faults.Missed(name, commit.revision)
        yield faults.Hide(name, commit.revision, _until(commit, commits[at + 1 :]))


def _last_acted_upon(trace: Trace, steps: Sequence[Step]) -> int:
    """The revision of the last change before the last step that changed something, in the store or outside."""
    acted = {step.number for step in steps if _changes_something(step)}
    found = before = 0
    for entry in trace.entries:
        if isinstance(entry, Committed) and not entry.by:
            before = entry.revision
        elif isinstance(entry, Committed):
            # A controller's own change is noted in the step that makes it.
            found, before = max(found, before), entry.revision
        elif isinstance(entry, Step) and entry.number in acted:
            found = max(found, before)
    return found


def _until(commit: Committed, later: Sequence[Committed]) -> int:
    """The revision of what undoes a change: the next of the same resource, else the next of all."""
    same = [each for each in later if (each.kind, each.key) == (commit.kind, commit.key)]
    found = [each for each in (same or later) if each.revision > commit.revision]
    return found[0].revision if found else commit.revision + 1


def _behinds(
    trace: Trace, steps: Sequence[Step], kinds: set[tuple[str, str]], left_out: Counter[str]
) -> Iterator[Fault]:
    """Restarts that are shown a state which a later change, before the crash, has undone."""
    commits = [each for each in trace.commits if each.kind in kinds]
    for step in steps:
        if not step.revision:
            continue
        before = [each for each in commits if each.revision < step.revision]
        keys = Counter((each.kind, each.key) for each in commits if each.revision <= step.revision)
        undone = [each.revision for each in before if keys[each.kind, each.key] > 1]
        kept = undone[-_BEHINDS_A_STEP:]
        left_out["an older view of the same kind is tried already"] += len(undone) - len(kept)
        for revision in kept:
            yield faults.RestartBehind(step.number, revision)


def _restores(trace: Trace, steps: Sequence[Step], kinds: set[tuple[str, str]]) -> Iterator[Fault]:
    users = [each.revision for each in trace.commits if each.kind in kinds and not each.by]
    found: list[Fault] = []
    for step in steps:
        if step.revision:
            before = [revision for revision in users if revision < step.revision]
            found += [faults.Restore(step.number, revision) for revision in before[-1:]]
    yield from found[:_RESTORES]
