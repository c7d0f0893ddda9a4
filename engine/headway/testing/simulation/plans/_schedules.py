"""The choice of the calls that a schedule slows down, or that the users' next change falls into. Pure."""

from __future__ import annotations

from headway.testing.simulation import faults
from headway.testing.simulation.oracles import Result
from headway.testing.simulation.plans._plans import LeftOut, steps_of_the_scenario


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
