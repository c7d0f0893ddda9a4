"""The plans about what a program does by its own clock: the ticks of timers and daemons, and requeues. Pure."""

from __future__ import annotations

from headway.testing.simulation import faults
from headway.testing.simulation._trace import OVER, Happened, Step, Trace
from headway.testing.simulation.faults import Plan
from headway.testing.simulation.oracles import Result
from headway.testing.simulation.plans._plans import steps_of_the_scenario

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
