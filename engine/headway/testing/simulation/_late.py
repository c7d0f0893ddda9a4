"""Right results at a later time. Because faults take time, a program that uses the clock may end in another state."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headway.testing.simulation import faults
from headway.testing.simulation._run import run
from headway.testing.simulation._trace import Happened
from headway.testing.simulation.faults import Plan
from headway.testing.simulation.oracles import Result
from headway.testing.simulation.world import Setting

_SLOW_LOOK = 1_700_000_000
_UNHANDLED = 3
"""The number of changes of the users before a jump that the program may not have handled yet."""


class Late:
    """The runs without faults that show which values depend on the clock. They are made only when a result differs.

    Args:
        first: the first run without faults.
    """

    def __init__(self, setting: Setting, first: Result) -> None:
        self._setting = setting
        self._first = first
        self._known: dict[object, list[Result]] = {}

    def later(self, result: Result) -> list[Result]:
        """Return a run without faults that ends at the same time of the clock as ``result``."""
        more = round(result.wall[1] - self._first.wall[1])
        return self._run(Plan(), more=float(more)) if more >= 1 else []

    def jumped(self, plan: Plan, result: Result) -> list[Result]:
        """Return runs whose clock does not jump, and whose users come when the clock shows the same as in ``result``.

        In some of them, the time that a jump skips passes before the program has handled the users' last changes. Each
        of them is as long as ``result``, by the wall clock or in virtual time.
        """
        pace = [each for each in plan if isinstance(each, faults.SCHEDULES)]
        at = [wall for _, wall in result.asked_at]
        dues = [at, *self._after_jumps(plan, result, at)]
        return [
            found for due in dues for more in self._more(result, due) for found in self._run(Plan(*pace), due, more)
        ]

    def _after_jumps(self, plan: Plan, result: Result, at: list[float]) -> list[list[float]]:
        """Return the times of the changes if those that may not have been handled come after a jump forward."""
        found: list[list[float]] = []
        happened = [each for each in result.trace.entries if isinstance(each, Happened) and each.fault]
        for fault in plan.jumps:
            # In the world of a peer, its name comes before the fault.
            struck = next((each.at for each in happened if each.text.endswith(str(fault))), None)
            if struck is None or fault.seconds < 0:
                continue
            made = [wall for virtual, wall in result.asked_at if virtual <= struck]
            for first in range(max(len(made) - _UNHANDLED, 0), len(made)):
                after = [max(wall, made[-1] + fault.seconds) for wall in made[first:]]
                found.append([*at[:first], *after, *at[len(made) :]])
        return found

    def _more(self, result: Result, due: list[float]) -> set[float]:
        """Return how long a run whose users come at these times goes on after them, in seconds."""
        shift = due[-1] - self._first.asked_at[-1][1] if due and self._first.asked_at else 0.0
        longer = (result.wall[1] - self._first.wall[1], result.lived - self._first.lived)
        return {float(max(round(each - shift), 0)) for each in longer}

    @property
    def slow(self) -> Result | None:
        """A run without faults that takes seconds for each look at a clock. It shows the values that depend on it."""
        found = self._run(Plan(), look=_SLOW_LOOK)
        return found[0] if found else None

    def _run(self, plan: Plan, due: Sequence[float] = (), more: float = 0.0, **given: Any) -> list[Result]:
        key = (str(plan), tuple(round(each, 1) for each in due), more, *given.items())
        if key not in self._known:
            self._known[key] = []
            # A scenario that goes by the clock may raise anything when it is late.
            with suppress(Exception):
                result = run(self._setting, plan, due=due, more=more, **given)
                self._known[key] = [] if result.findings else [result]
        return self._known[key]
