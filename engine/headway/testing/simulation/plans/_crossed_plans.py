"""The choice of pairs: a crash, and then a call of another controller or of a start that fails or is slow. Pure.

The other controller acts upon what the crash has left half done, at another moment than after the crash alone. What a
start reads is the memory of the new process. In the first start of all, there was nothing to read yet.
"""

from __future__ import annotations

from collections.abc import Collection

from headway.testing.simulation import faults
from headway.testing.simulation._trace import Step, Trace
from headway.testing.simulation.faults import Plan
from headway.testing.simulation.plans._plans import changes_something, steps_of_the_scenario

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
