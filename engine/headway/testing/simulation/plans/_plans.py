"""The choice of the faults worth trying: each kind, at every place in the reference run where it can matter. Pure."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from headway.testing.simulation import faults
from headway.testing.simulation._trace import OVER, Committed, Happened, Step, Trace
from headway.testing.simulation.faults import Fault, Plan

_BEHINDS_A_STEP = 3
LeftOut = defaultdict[str, list[Fault]]

_RESTORES = 12
_IDLE_RESTORES = 3
_NEW_RUNS = 6
_LATE = 45.0
"""A number of seconds longer than most callers of the world outside wait for an answer."""
_AT_A_PACE = 8
"""The number of plans with a fault for each pace of the users."""
_RESTART = 1.0
"""The seconds until a killed process begins again. At a faster pace, users change something before that."""
_PAUSE = 5.0
"""The seconds from which on the time between two changes of users counts as a pause of theirs."""
_KINDS_AT_A_PACE = (
    faults.CommitLate,
    faults.CrashAfter,
    faults.NotDone,
    faults.AnswerLost,
    faults.AnswerLate,
    faults.HandOver,
    faults.Outage,
)
_HANDOVERS = 12
_INTERIMS = 6
_MERGES = 8
_LONGEST_DELAY = 60.0
"""The seconds for which a fault delays a change. Users who pause for longer rely on what happens meanwhile."""
_CHECKPOINTS = 16
_LOOKS = 8
"""The number of looks at the wall clock before which it jumps."""
_FORWARD = 3600.0


def single_faults(
    trace: Trace, kinds: set[tuple[str, str]], processes: int = 1
) -> tuple[list[Fault], dict[str, list[Fault]]]:
    """Return the faults to try alone, by kind, and the ones left out, by reason."""
    left_out: LeftOut = defaultdict(list)
    steps = steps_of_the_scenario(trace)
    found: list[Fault] = []
    for fault in (
        *_of_steps(steps, left_out),
        *_of_cluster(trace, steps),
        *_of_changes(trace, steps, kinds, left_out),
        *_behinds(trace, steps, kinds, left_out),
        *_replacements(trace, steps),
        *_new_runs(trace, kinds, left_out),
        *_restores(trace, steps, kinds, left_out),
        *_checkpoints(trace, left_out),
        *_wall_jumps(trace, left_out),
    ):
        if processes == 1 and isinstance(fault, faults.HandOver):
            left_out["there is only one process"].append(fault)
            continue
        if trace.on_cluster and _cannot_be(fault, trace):
            left_out["an API server of Kubernetes does not do so"].append(fault)
            continue
        found.append(fault)
    return found, {why: pruned for why, pruned in left_out.items() if pruned}


def pairs(found: Sequence[Fault], count: int, seed: int = 0) -> Iterator[Plan]:
    """Yield plans of two faults at different places, chosen at random but the same each time."""
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


def merges(trace: Trace, kinds: set[tuple[str, str]]) -> Sequence[Fault]:
    """Return the changes of users to deliver together with their next one, unless that one comes much later."""
    # Headway's own controllers write in a term.
    mine = [each for each in trace.commits if each.kind in kinds and not each.by and not each.term]
    near = [each for each, following in itertools.pairwise(mine) if following.at - each.at <= _LONGEST_DELAY]
    return [faults.Merged(".".join(each.kind), each.revision) for each in near][:_MERGES]


def handovers(trace: Trace, count: int = _HANDOVERS) -> list[Plan]:
    """Return plans that give the leadership to another process at one call, and back at a later one."""
    numbers = [step.number for step in steps_of_the_scenario(trace) if changes_something(step)]
    found = [
        Plan(faults.HandOver(away), faults.HandOver(back))
        # A process that leads again makes its first call soon after the other process, so near places come first.
        for apart in range(1, len(numbers))
        for away, back in zip(numbers, numbers[apart:], strict=False)
    ]
    return found[:count]


def interims(changes: int) -> list[Plan]:
    """Return plans that let another process lead between two changes of the users, the shortest periods first."""
    found = [
        Plan(faults.Interim(away, away + length))
        for length in range(1, changes - 1)
        for away in range(2, changes - length + 1)
    ]
    return found[:_INTERIMS]


def at_another_pace(
    pace: Sequence[Fault],
    trace: Trace,
    first: Trace,
    kinds: set[tuple[str, str]],
    processes: int,
    pauses: Sequence[float] = (),
) -> list[Plan]:
    """Return plans of a pace of the users with a fault.

    The fault strikes a call that falls between other changes of the users at this pace. If users don't wait until work
    is done, the fault may also strike any call before their last change, so that its effects meet that change.
    """
    known = {_situation(first, step) for step in first.steps}
    last = _before_the_last_change(trace) if any(isinstance(each, faults.Hurried) for each in pace) else 0
    new = {
        step.number
        for step in steps_of_the_scenario(trace)
        if step.number <= last or _situation(trace, step) not in known
    }
    found, _ = single_faults(trace, kinds, processes)
    # Users who don't wait still pause, perhaps for what happens meanwhile.
    longest = min((each for each in pauses if each > _PAUSE), default=math.inf) if last else math.inf
    within_a_restart = any(isinstance(each, faults.Spaced) and each.seconds < _RESTART for each in pace)
    by_kind: dict[type[Fault], list[Fault]] = {
        kind: [] for kind in ((faults.CrashAfter,) if within_a_restart else _KINDS_AT_A_PACE)
    }
    for fault in found:
        strikes = isinstance(fault, faults.StepFault) and fault.step in new and type(fault) in by_kind
        if strikes and getattr(fault, "seconds", 0.0) <= longest:
            by_kind[type(fault)].append(fault)
    # The longest first, because it outlasts most.
    for each in by_kind.values():
        each.sort(key=lambda fault: -getattr(fault, "seconds", 0.0))
    turns = itertools.zip_longest(*by_kind.values())
    return [Plan(*pace, fault) for turn in turns for fault in turn if fault is not None][:_AT_A_PACE]


def _before_the_last_change(trace: Trace) -> int:
    """Return the number of the last step before the users' last change."""
    last = number = 0
    for entry in trace.entries:
        if isinstance(entry, Step):
            number = entry.number
        elif isinstance(entry, Committed) and not entry.by and not entry.term:
            last = number
    return last


def _situation(trace: Trace, step: Step) -> object:
    """Return what a call is, and the changes that users have made before it."""
    position = next(at for at, entry in enumerate(trace.entries) if entry is step)
    users = [
        (each.kind, each.key, each.what)
        for each in trace.entries[:position]
        if isinstance(each, Committed) and not each.by and not each.term
    ]
    return (step.method, step.kind, step.key, step.write, tuple(users))


def _place(fault: Fault) -> object:
    if isinstance(fault, faults.StepFault):
        return fault.step
    if isinstance(fault, faults.ChangeFault):
        return (fault.type, fault.revision)
    return fault


def steps_of_the_scenario(trace: Trace) -> list[Step]:
    """Return the steps before the end of the scenario: later ones get no faults."""
    steps: list[Step] = []
    for entry in trace.entries:
        if isinstance(entry, Happened) and entry.text.startswith(OVER):
            break
        if isinstance(entry, Step):
            steps.append(entry)
    return steps


def changes_something(step: Step) -> bool:
    """Return True if a call has changed the store, or may have changed the world outside."""
    return step.write and (step.revision > 0 or not step.kind[1])


_AS_BEFORE_A_WRITE = (
    faults.CrashBefore,
    faults.CrashAfter,
    faults.LeaseLost,
    faults.HandOver,
    faults.CutOff,
    faults.Pause,
    faults.ServerRestart,
    faults.ClockJump,
)


def _of_steps(steps: Sequence[Step], left_out: LeftOut) -> Iterator[Fault]:
    for step in steps:
        if not step.write:
            yield faults.NotDone(step.number)
            yield faults.AnswerLate(step.number)
            left_out["around a read they are the same as before the next write"] += [
                fault(step.number) for fault in _AS_BEFORE_A_WRITE
            ]
        elif changes_something(step):
            yield from _of_write(step)
        else:
            # Treated as a read, but the write may change something if it arrives late.
            number = step.number
            tried = [
                faults.NotDone(number),
                faults.CommitLate(number, 30.0),
                faults.CommitLast(number),
                faults.AnswerLate(number),
            ]
            yield from tried
            left_out["the write changed nothing"] += [each for each in _of_write(step) if each not in tried]


def _of_write(step: Step) -> list[Fault]:
    number = step.number
    return [
        faults.CrashAfter(number),
        faults.CrashBefore(number),
        faults.AnswerLost(number),
        faults.NotDone(number),
        *([faults.LostRace(number)] if step.kind[1] else ()),
        faults.CommitLate(number, 0.0),
        faults.CommitLate(number, 30.0),
        faults.CommitLast(number),
        faults.LeaseLost(number),
        faults.HandOver(number),
        *([] if step.kind[1] else [faults.Outage(number), faults.AnswerLate(number, _LATE)]),
        faults.CutOff(number),
        faults.Pause(number),
        faults.ServerRestart(number),
        faults.AnswerLate(number),
        faults.ClockJump(number),
    ]


def _cannot_be(fault: Fault, trace: Trace) -> bool:
    """Return True if a fault of a store is none of a cluster.

    An API server gives up a request after a minute. A creation that is stored after the object was made and deleted
    again is the exception of C5 on Kubernetes, so none arrives when the scenario is over.
    """
    if isinstance(fault, faults.CommitLast):
        return trace.steps[fault.step - 1].method == "create"
    return isinstance(fault, faults.Repeat | faults.RestartBehind)


def _of_cluster(trace: Trace, steps: Sequence[Step]) -> Iterator[Fault]:
    """Yield the faults that only Kubernetes has."""
    if not trace.on_cluster:
        return
    for step in steps:
        if changes_something(step):
            yield faults.Throttled(step.number)
            yield faults.FailOver(step.number)
    for each in trace.commits:
        if each.what == "deleted" and not each.by and not each.term:
            yield faults.GarbageLate(".".join(each.kind), each.revision)


def _of_changes(trace: Trace, steps: Sequence[Step], kinds: set[tuple[str, str]], left_out: LeftOut) -> Iterator[Fault]:
    last = _last_acted_upon(trace, steps)
    commits = [each for each in trace.commits if each.kind in kinds]
    for at, commit in enumerate(commits):
        name, revision = ".".join(commit.kind), commit.revision
        told: list[Fault] = [
            faults.Stall(name, revision),
            faults.HistoryLost(name, revision),
            faults.Drop(name, revision),
            faults.Repeat(name, revision),
            faults.Hide(name, revision, _until(commit, commits[at + 1 :])),
        ]
        # A crash may lose the reaction to the very last change, so it is tried there too. A delay of that change alters
        # nothing.
        yield faults.Missed(name, revision)
        if revision <= last:
            yield from told
        else:
            left_out["no write comes after the change"] += told


def _last_acted_upon(trace: Trace, steps: Sequence[Step]) -> int:
    """Return the revision of the last change before the last step that changed something, in the store or outside."""
    acted = {step.number for step in steps if changes_something(step)}
    found = before = 0
    for entry in trace.entries:
        if isinstance(entry, Committed) and not entry.by:
            before = entry.revision
        elif isinstance(entry, Committed):
            # A controller's change is traced while its step is under way.
            found, before = max(found, before), entry.revision
        elif isinstance(entry, Step) and entry.number in acted:
            found = max(found, before)
    return found


def _until(commit: Committed, later: Sequence[Committed]) -> int:
    """Return the revision of the commit that undoes a change: the next one of the same resource, else the next one at
    all.
    """
    same = [each for each in later if (each.kind, each.key) == (commit.kind, commit.key)]
    found = [each for each in (same or later) if each.revision > commit.revision]
    return found[0].revision if found else commit.revision + 1


def _behinds(trace: Trace, steps: Sequence[Step], kinds: set[tuple[str, str]], left_out: LeftOut) -> Iterator[Fault]:
    """Yield restarts that first see a state undone by a later change before the crash."""
    commits = [each for each in trace.commits if each.kind in kinds]
    for step in steps:
        if not step.revision:
            continue
        before = [each for each in commits if each.revision < step.revision]
        keys = Counter((each.kind, each.key) for each in commits if each.revision <= step.revision)
        undone = [each.revision for each in before if keys[each.kind, each.key] > 1]
        kept = undone[-_BEHINDS_A_STEP:]
        left_out["a newer state that was undone is tried"] += [
            faults.RestartBehind(step.number, revision) for revision in undone[:-_BEHINDS_A_STEP]
        ]
        for revision in kept:
            yield faults.RestartBehind(step.number, revision)


def _replacements(trace: Trace, steps: Sequence[Step]) -> Iterator[Fault]:
    """Yield a crash after each write of a process that is upgraded later, so that only the new program recovers."""
    upgraded = dict(trace.upgrades)
    for step in steps:
        if changes_something(step) and step.number <= upgraded.get(step.by.process, 0):
            yield faults.Replaced(step.number)


def _new_runs(trace: Trace, kinds: set[tuple[str, str]], left_out: LeftOut) -> Iterator[Fault]:
    """Yield new runs after changes of the users. A process's memory of earlier runs is all that they have extra."""
    users = [each.revision for each in trace.commits if each.kind in kinds and not each.by and not each.term]
    tried = _evenly(users, _NEW_RUNS)
    yield from (faults.NewRun(revision) for revision in tried)
    left_out["a new run after a nearby change is tried"] += [
        faults.NewRun(revision) for revision in users if revision not in tried
    ]


def _restores(trace: Trace, steps: Sequence[Step], kinds: set[tuple[str, str]], left_out: LeftOut) -> Iterator[Fault]:
    users = [each.revision for each in trace.commits if each.kind in kinds and not each.by and not each.term]
    acted = [step.revision for step in steps if step.revision]
    if not acted and any(map(changes_something, steps)):
        # What it has done outside is compared with a run that restores the store when all work is done.
        left_out["the program changes only the world outside"] += [faults.Restore(0, revision) for revision in users]
        return
    # When all work is done, a process may remember work that the restored store has lost.
    done = [revision for revision in users if any(each > revision for each in acted)]
    yield from (faults.Restore(0, done[at - 1]) for at in _evenly(range(1, len(done) + 1), _IDLE_RESTORES))
    found: list[Fault] = []
    undone: dict[object, Fault] = {}
    numbers, last, what = {step.number for step in steps}, 0, ""
    final = {(each.kind, each.key): each.revision for each in trace.commits if each.revision in users}
    for entry in trace.entries:
        if isinstance(entry, Committed) and entry.revision in users:
            last, what = entry.revision, entry.what
        elif isinstance(entry, Step) and last and entry.number in numbers and changes_something(entry):
            if entry.revision:
                found.append(faults.Restore(entry.number, last))
            # The backup is older than the change that the call is for. Users make it again, with another uid. They may
            # not delete it before the program has seen it.
            sort = (entry.by.controller, entry.method.partition("(")[0], entry.kind, what)
            if last in final.values():
                undone[sort] = faults.Restore(entry.number, last - 1)
    found = [each for turn in itertools.zip_longest(found, undone.values()) for each in turn if each is not None]
    yield from found[:_RESTORES]
    left_out["enough restores are tried"] += found[_RESTORES:]


def _checkpoints(trace: Trace, left_out: LeftOut) -> Iterator[Fault]:
    """Yield a few crashes, evenly spread, between two steps: after a call of Headway itself or an item of a stream."""
    found = [faults.CrashAt(*each) for each in trace.checkpoints]
    count = min(len(found), _CHECKPOINTS)
    tried = [found[at * len(found) // count] for at in range(count)]
    yield from tried
    left_out["a crash at a nearby checkpoint is tried"] += [each for each in found if each not in tried]


def _wall_jumps(trace: Trace, left_out: LeftOut) -> Iterator[Fault]:
    """Yield jumps of the wall clock, back and forward, before looks of the program at it.

    A program that never looks at the wall clock has none. Two looks without a step between them see the same world, so
    the first look after each step comes first. Before the first look of all, the clock shows just another time.
    """
    numbers = range(2, len(trace.looks) + 1)
    after_a_step = [number for number in numbers if trace.looks[number - 1] != trace.looks[number - 2]]
    others = [number for number in numbers if number not in set(after_a_step)]
    tried = _evenly(after_a_step, _LOOKS)
    tried = sorted({*tried, *_evenly(others, _LOOKS - len(tried))})
    for number in tried:
        yield faults.WallJump(number)
        yield faults.WallJump(number, _FORWARD)
    left_out["a jump before a nearby look at the wall clock is tried"] += [
        faults.WallJump(number) for number in numbers if number not in tried
    ]


def _evenly(numbers: Sequence[int], count: int) -> list[int]:
    count = min(len(numbers), count)
    return [numbers[at * len(numbers) // count] for at in range(count)]
