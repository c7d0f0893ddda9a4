"""The plans of further kinds. Pure.

- Ticks: what a program does by its own clock, by timers, daemons and requeues.
- Schedules: calls that are slow, or that the users' next change falls into.
- Pairs: a crash, and then a call of another controller or of a start that fails or is slow. The other controller acts
  upon what the crash has left half done, at another moment than after the crash alone. What a start reads is the memory
  of the new process. In the first start of all, there was nothing to read yet.
- Faults of peerings, by the messages of a run without faults.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from headway.testing.simulation import faults
from headway.testing.simulation._trace import OVER, Happened, Step, Trace
from headway.testing.simulation.faults import HOME, AtPeer, Fault, Plan
from headway.testing.simulation.oracles import Message, Result
from headway.testing.simulation.plans._plans import LeftOut, changes_something, single_faults, steps_of_the_scenario

_TICKS = 9
"""The number of plans of each kind."""
_CALLS = 3
"""The number of calls by the clock into which the same change falls, each in a plan of its own."""


def does_by_the_clock(first: Result) -> bool:
    """Return True if the program makes calls in the quiet time after the scenario, or waits for a time then."""
    return bool(first.waits) or _calls_in_the_quiet_time(first.trace)


def changes_in_ticks(changes: int) -> list[Plan]:
    """Return plans for a change of the users during a call that the program makes by its own clock.

    The last change comes first, because no later change hides its effects.
    """
    found = [
        Plan(faults.ChangeInTick(change, call)) for change in range(changes, 1, -1) for call in range(1, _CALLS + 1)
    ]
    return found[:_TICKS]


def ticks_during_calls(settled: Result) -> list[Plan]:
    """Return plans for something that the program does by its own clock while a reconcile is at work.

    Plans come first if they strike a write that is not the first call of its reconcile, and late writes before early
    ones. Then come the plans for writes that are the first call.

    Args:
        settled: the run whose users wait after each change, so that the calls after a change follow from it.
    """
    steps = steps_of_the_scenario(settled.trace)
    first_ones = {id(step.by): step.number for step in reversed(steps)}
    begun = [number for number, _ in settled.asked]
    within: list[Plan] = []
    at_the_start: list[Plan] = []
    for step in reversed(steps):
        change = sum(number < step.number for number in begun)
        if step.write and not step.by.function and change:
            into = at_the_start if first_ones[id(step.by)] == step.number else within
            into.append(Plan(faults.TickDuring(change, step.number - begun[change - 1])))
    return [*within, *at_the_start][:_TICKS]


def _calls_in_the_quiet_time(trace: Trace) -> bool:
    """Return True if the program makes calls between the end of the scenario and the restart after it."""
    over = False
    for entry in trace.entries:
        if isinstance(entry, Happened):
            if over and entry.fault:
                return False
            over = over or entry.text.startswith(OVER)
        elif over and isinstance(entry, Step):
            return True
    return False


def slow_calls(first: Result, left_out: LeftOut) -> list[faults.Fault]:
    """Return the calls to slow down, because something else goes on in the run as well. Reads are among them."""
    slow: list[faults.Fault] = []
    steps = steps_of_the_scenario(first.trace)
    alone = len({(each.by.controller, each.by.key) for each in steps}) < 2
    for step in steps:
        if alone and not any(begun >= step.number for begun, _ in first.asked):
            left_out["nothing else goes on meanwhile"].append(faults.Slow(step.number))
        else:
            slow.append(faults.Slow(step.number))
    return slow


def calls_before_a_change(settled: Result) -> list[faults.Fault]:
    """Return the calls before the users' last change, in the run whose users wait after each change."""
    last = settled.asked[-1][0] if settled.asked else 0
    return [faults.ChangeDuring(each.number) for each in settled.trace.steps if each.number <= last]


_CRASHES = 6
_SECOND = 3
_STARTS = ("the initialiser", "on_start")


def changes_of_several(trace: Trace) -> list[Step]:
    """Return a few changes, each of another sort, or none if only one controller calls anything and no start does."""
    steps = steps_of_the_scenario(trace)
    sorts: dict[object, Step] = {}
    for step in filter(changes_something, steps):
        sorts.setdefault((step.by.controller, step.method.partition("(")[0], step.kind), step)
    several = len({step.by.controller for step in steps}) > 1 or any(map(_starts, steps))
    return list(sorts.values())[:_CRASHES] if several else []


def after_a_crash(crashed: Step, trace: Trace, without: Collection[str]) -> list[Plan]:
    """Return plans that also strike a call after the crash: of another controller with the same data, or of a start.

    Args:
        crashed: the call after which the process has crashed.
        trace: the run with that crash.
    """
    mine, steps = crashed.by.controller, steps_of_the_scenario(trace)
    users = {each.by.controller for each in steps if each.kind == crashed.kind}
    users |= {each.controller for each in trace.reconciles if any(seen.kind == crashed.kind for seen in each.seen)}
    after = [each for each in steps if each.number > crashed.number]
    others = [each for each in after if each.by.controller != mine and not users <= {mine}]
    first = [*others[:1], *[each for each in others if changes_something(each)][:1], *filter(_starts, after)][:_SECOND]
    return [
        Plan(faults.CrashAfter(crashed.number), fault(number))
        for number in dict.fromkeys(each.number for each in first)
        for fault in (faults.NotDone, faults.AnswerLate)
        if fault.name not in without
    ]


def _starts(step: Step) -> bool:
    return step.by.function in _STARTS


_PLACES = 6
"""The number of messages at which each kind of fault is tried."""
_LONGER_THAN_SILENCE = 150.0
"""A number of seconds after which both sides have given a silent stream up."""
_IN_PEERS = 12
"""The number of faults that are tried in the world of each peer."""
_KINDS_IN_PEERS = (
    faults.CrashAfter,
    faults.NotDone,
    faults.AnswerLost,
    faults.HistoryLost,
    faults.Drop,
    faults.CutOff,
    faults.CrashAt,
)


def peer_faults(result: Result, left_out: LeftOut, places: int = _PLACES, *, shared: bool = False) -> list[Fault]:
    """Return the faults to try alone, the kinds in turns. At most ``places`` messages get a fault of each kind.

    ``shared`` is True if several engines share the store of a side.
    """
    kinds: list[list[Fault]] = [list(each) for each in _of_messages(result, places, left_out, shared=shared)]
    for side, theirs in result.peers.items():
        kinds.append([AtPeer(side, each) for each in _in_peer(theirs, left_out)])
    return [each for turn in itertools.zip_longest(*kinds) for each in turn if each is not None]


def _of_messages(result: Result, places: int, left_out: LeftOut, *, shared: bool) -> Iterator[Iterator[Fault]]:
    sides = [HOME, *result.peers]

    def at(offset: int) -> Sequence[Message]:
        """Return some messages, evenly spread. Kinds with another offset get others, so that more are met."""
        count = min(places, len(result.messages))
        found = {(at * len(result.messages) + offset) // count for at in range(count)}
        return [each for number, each in enumerate(result.messages) if number in found]

    left_out["a fault at a nearby message is tried"] += [
        faults.PeerCut(each.number) for each in result.messages if each not in at(0)
    ]
    yield (faults.PeerCut(each.number) for each in at(0))
    yield (faults.PeerHistoryLost(each.number, each.sender) for each in at(0))
    yield (faults.PeerSlow(each.number, (30.0, _LONGER_THAN_SILENCE)[turn % 2]) for turn, each in enumerate(at(0)))
    for offset, side in enumerate(sides):
        yield (faults.EngineKilled(each.number, side) for each in at(offset))
        if shared:
            yield (faults.PeerHandOver(each.number, side) for each in at(offset))
        yield (faults.PeerRestored(each.number, side, found) for each in at(0) for found in _before(result, side, each))
        yield (faults.PeerRolledBack(each.number, side, it) for each in at(0) for it in _before(result, side, each))
        yield (faults.PeeringDeleted(each.number, side) for each in at(offset))


def _before(result: Result, side: str, message: Message) -> list[int]:
    """Return a revision of a side from before a message: without its last change, or without all of them."""
    trace = result.trace if side == HOME else result.peers[side].trace
    types = {type.kind for type in (result if side == HOME else result.peers[side]).types}
    found = [each.revision for each in trace.commits if each.kind in types and each.at <= message.at]
    return [(found[-1] if message.number % 2 else found[0]) - 1] if found else []


def _in_peer(result: Result, left_out: LeftOut) -> list[Fault]:
    kinds = {place[0] for place in result.end}
    found, _ = single_faults(result.trace, kinds) if result.trace.steps else ([], {})
    by_kind = [[each for each in found if type(each) is kind] for kind in _KINDS_IN_PEERS]
    turns: list[Fault] = [each for turn in itertools.zip_longest(*by_kind) for each in turn if each is not None]
    left_out["enough faults of the peer are tried"] += turns[_IN_PEERS:]
    return turns[:_IN_PEERS]
