"""Right results at a later time. Because faults take time, a program that uses the clock may end in another state."""

from __future__ import annotations

from headway.testing.simulation._run import run
from headway.testing.simulation.faults import Plan
from headway.testing.simulation.oracles import Result
from headway.testing.simulation.world import Setting

_SLOW_LOOK = 1_700_000_000


class Late:
    """The runs without faults that show which values depend on the clock. They are made only when a result differs.

    Args:
        first: the first run without faults.
    """

    def __init__(self, setting: Setting, first: Result) -> None:
        self._setting = setting
        self._first = first
        self._later: dict[int, list[Result]] = {}
        self._slow: list[Result] | None = None

    def later(self, result: Result) -> list[Result]:
        """Return a run without faults that ends at the same time of the clock as ``result``."""
        more = round(result.wall[1] - self._first.wall[1])
        if more < 1:
            return []
        if more not in self._later:
            self._later[more] = self._run(more=float(more))
        return self._later[more]

    @property
    def slow(self) -> Result | None:
        """A run without faults that takes seconds for each look at a clock. It shows the values that depend on it."""
        if self._slow is None:
            self._slow = self._run(look=_SLOW_LOOK)
        return self._slow[0] if self._slow else None

    def _run(self, **given: float) -> list[Result]:
        try:
            result = run(self._setting, Plan(), **given)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001  # a scenario that goes by the clock may raise anything when it is late
            return []
        return [] if result.findings else [result]
