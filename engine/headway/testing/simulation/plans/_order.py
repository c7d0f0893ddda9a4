"""The order of the plans that are tried: each kind of plan gets a fair share, however short the time is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from headway.testing.simulation import faults
from headway.testing.simulation._trace import Step, Trace
from headway.testing.simulation.faults import Plan

_PACES = (faults.Spaced, faults.Settled, faults.Hurried)
_SHARES = {
    "crash_after": 4,
    "change_during": 3,
    "relay": 3,
    "interim": 3,
    "commit_late": 2,
    "commit_last": 2,
    "crash_at": 2,
    "tick_during": 2,
    "wall_jump": 2,
    "stall": 0.5,
    "hide": 0.5,
    "drop": 0.5,
    "repeat": 0.5,
    "history_lost": 0.5,
    "server_restart": 0.5,
}
"""The number of plans of a kind in a turn, if it is not one. The kinds that find most bugs have more."""
_SHARE_AT_A_PACE = 0.5
"""The same for a fault at another pace of the users. There are many such kinds."""


def in_fair_turns(plans: Iterable[Plan], first: Trace, settled: Trace) -> list[Plan]:
    """Return the plans so that all kinds take turns. Within a kind, the plans that differ most come first.

    Args:
        first: the run that the numbers in the plans refer to.
        settled: the run that the numbers of `ChangeDuring` refer to.
    """
    kinds: dict[str, list[Plan]] = {}
    for plan in plans:
        kinds.setdefault(_kind(plan), []).append(plan)
    places = _Places(first, settled)
    found = [(kind, *places.unlike_first(mine)) for kind, mine in kinds.items()]
    # In a wide scenario, each kind strikes one call of each sort before it strikes those that are like it.
    later = max((len(of_each_sort) for _, of_each_sort, _ in found), default=0)
    ordered: list[tuple[float, int, Plan]] = []
    for at, (kind, of_each_sort, rest) in enumerate(found):
        share = _SHARE_AT_A_PACE if isinstance(kinds[kind][0][0], _PACES) else _SHARES.get(kind, 1)
        turns = [*enumerate(of_each_sort, 1), *enumerate(rest, later + 1)]
        ordered += [(turn / share, at, plan) for turn, plan in turns]
    return [plan for _, _, plan in sorted(ordered, key=lambda each: each[:2])]


def _kind(plan: Plan) -> str:
    """Return the names of a plan's faults."""
    return "; ".join(
        f"{each.side}: {each.fault.name}" if isinstance(each, faults.AtPeer) else each.name for each in plan
    )


class _Places:
    """The calls and changes of a run, to see which faults strike a similar one."""

    def __init__(self, first: Trace, settled: Trace) -> None:
        self._steps = {each.number: each for each in first.steps}
        self._settled = {each.number: each for each in settled.steps}
        self._commits = {each.revision: each for each in first.commits}

    def unlike_first(self, plans: Sequence[Plan]) -> tuple[list[Plan], list[Plan]]:
        """Return plans of one kind: for each sort of call or change the first one, then each last one; and the rest.

        Nothing comes after the last one that could hide what it has done.
        """
        sorts: dict[object, list[Plan]] = {}
        for plan in plans:
            sort = self._sort(plan)
            sorts.setdefault(id(plan) if sort is None else sort, []).append(plan)
        first = [mine[0] for mine in sorts.values()]
        last = [mine[-1] for mine in sorts.values() if len(mine) > 1]
        rest = [[*mine[1:-1]] for mine in sorts.values()]
        return [*first, *last], [plan for turn in zip_longest(*rest) for plan in turn if plan is not None]

    def _sort(self, plan: Plan) -> object:
        fault: Any = plan[0] if len(plan) == 1 else None
        steps = self._settled if isinstance(fault, faults.ChangeDuring) else self._steps
        if isinstance(fault, faults.StepFault) and fault.step in steps:
            # Faults of one kind may also differ by how long they last.
            return (_sort_of(steps[fault.step]), getattr(fault, "seconds", 0.0))
        if isinstance(fault, faults.ChangeFault) and fault.revision in self._commits:
            commit = self._commits[fault.revision]
            return (commit.kind, commit.what, commit.by)
        return None


def _sort_of(step: Step) -> object:
    """Return a value that is equal for the calls that the same lines of the program make for several keys."""
    return (step.by.controller, step.by.function, step.method.partition("(")[0], step.kind, step.write)
