"""The search for a simpler plan that refutes a program for the same reason. Pure, apart from the runs that it asks for.

A plan is simpler if it has fewer faults, a fault of a simpler kind, an earlier one, or a shorter one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headway.testing.simulation import faults
from headway.testing.simulation.faults import Fault, Plan
from headway.testing.simulation.oracles import Finding, Result

MOST_RUNS = 12
"""The number of runs that the search takes at most."""
_SHORTER = (1.0, 5.0)
"""The lengths that are tried for a fault that lasts longer."""
_SIMPLEST_FIRST: tuple[type[Fault], ...] = (
    *faults.SCHEDULES,
    faults.CrashAfter,
    faults.CrashBefore,
    faults.NotDone,
    faults.AnswerLost,
    faults.AnswerLate,
    faults.LostRace,
    faults.Drop,
    faults.Repeat,
    faults.Stall,
    faults.ServerRestart,
    faults.CommitLate,
    faults.CommitLast,
    faults.HistoryLost,
    faults.Missed,
    faults.Hide,
    faults.Replaced,
    faults.ChangeInTick,
    faults.TickDuring,
    faults.NewRun,
    faults.HandOver,
    faults.LeaseLost,
    faults.CutOff,
    faults.Pause,
    faults.WallJump,
)
"""Kinds of faults, the ones that are easiest to understand first. Kinds that are not listed come last."""

Refutation = tuple[Plan, Result, Sequence[Finding]]
Judge = Callable[[Plan], tuple[Result, Sequence[Finding]] | None]
"""Runs a plan. It returns the result and what is wrong with it, or None if the run cannot be judged."""


def simplest(refuted: Refutation, planned: Sequence[Plan], passed: Sequence[Plan], judge: Judge) -> Refutation:
    """Return the simplest plan found that refutes the program by the same oracle, with its result and its findings.

    Args:
        refuted: the refutation to begin with.
        planned: the plans of the exploration. Only places that occur in them are tried.
        passed: the plans that are known to refute nothing.
    """
    oracle = refuted[2][0].oracle
    tried = {*passed, refuted[0]}
    left = MOST_RUNS
    while left:
        plan = next((each for each in _simpler(refuted[0], planned) if each not in tried), None)
        if plan is None:
            break
        left -= 1
        tried.add(plan)
        judged = judge(plan)
        if judged is None or oracle not in {each.oracle for each in judged[1]}:
            continue
        result, findings = judged
        # A fault that never struck explains nothing.
        if set(result.struck) >= set(plan):
            refuted = (plan, result, findings)
    return refuted


def _simpler(plan: Plan, planned: Sequence[Plan]) -> Iterator[Plan]:
    """Yield simpler plans than this one, the most promising first."""
    if len(plan) > 1:
        for at in range(len(plan)):
            yield Plan(*(each for other, each in enumerate(plan) if other != at), seed=plan.seed)
    for at, fault in enumerate(plan):
        for other in _simpler_faults(fault, planned):
            if other not in plan:
                yield Plan(*plan[:at], other, *plan[at + 1 :], seed=plan.seed)


def _simpler_faults(fault: Fault, planned: Sequence[Plan]) -> list[Fault]:
    """Return the planned faults of a simpler kind at the same place, then earlier and shorter ones of the same kind."""
    singles = [plan[0] for plan in planned if len(plan) == 1]
    place, rank = _place_of(fault), _rank(fault)
    simpler = [each for each in singles if _place_of(each) == place and _rank(each) < rank]
    same = [each for each in singles if type(each) is type(fault) and each is not fault]
    earlier = [each for each in same if _number(each) < _number(fault) and _seconds(each) <= _seconds(fault)]
    shorter = [_lasting(fault, each) for each in _SHORTER if each < _seconds(fault)]
    return [*sorted(simpler, key=_rank), *sorted(earlier, key=_number), *shorter]


def _lasting(fault: Fault, seconds: float) -> Fault:
    changed: Any = {"seconds": seconds}
    return dataclasses.replace(fault, **changed)


def _place_of(fault: Fault) -> object:
    """Return the call or the change that a fault strikes, or the fault itself if it strikes neither."""
    if isinstance(fault, faults.StepFault):
        return fault.step
    if isinstance(fault, faults.ChangeFault):
        return (fault.type, fault.revision)
    return fault


def _rank(fault: Fault) -> int:
    kind = type(fault)
    return _SIMPLEST_FIRST.index(kind) if kind in _SIMPLEST_FIRST else len(_SIMPLEST_FIRST)


def _number(fault: Fault) -> int:
    match fault:
        case faults.StepFault():
            return fault.step
        case faults.ChangeFault():
            return fault.revision
        case faults.CrashAt():
            return fault.checkpoint
        case faults.WallJump():
            return fault.look
    return 0


def _seconds(fault: Fault) -> float:
    return float(getattr(fault, "seconds", 0.0))
