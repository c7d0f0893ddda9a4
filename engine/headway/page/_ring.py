"""The numbers of the last 15 minutes: one point for each five seconds, in a bounded ring. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from headway._gen.headway.observe.v1 import ControllerNow

INTERVAL = 5.0
"""The time between two points, in seconds."""
POINTS = 180
"""The number of points: those of 15 minutes."""
CONTROLLERS = 500
"""The number of controllers of which a point has numbers, first those of the server's process."""


class Numbers(NamedTuple):
    """The numbers of a controller at a point. Rates are per second, since the point before."""

    rate: float
    failures: float
    queued: int
    lag: int


class Point(NamedTuple):
    """The numbers of all controllers at one time, which is in seconds since 1970."""

    number: int
    at: float
    of: Mapping[Hashable, Numbers]


def rates(now: ControllerNow, before: ControllerNow, seconds: float) -> tuple[float, float]:
    """Return the reconciles a second, and the failed ones, since an earlier answer."""
    # A process that has started again counts from 0.
    counts = (now.reconciles - before.reconciles, now.failures - before.failures)
    return max(counts[0], 0) / seconds, max(counts[1], 0) / seconds


class Ring:
    """The points of the last 15 minutes."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS)
        self._before: dict[str, ControllerNow] = {}
        self._next = 1
        self._time: float | None = None

    def is_due(self, now: float) -> bool:
        """Return True if it is time for the next point. ``now`` is on Trio's clock."""
        return self._time is None or now - self._time >= INTERVAL * 0.999

    def add(
        self,
        states: Iterable[ControllerNow],
        now: float,
        at: float,
        others: Mapping[Any, Numbers] = MappingProxyType({}),
    ) -> None:
        """Add a point.

        Args:
            states: the controllers of the server's process, by whose names the ring has their numbers.
            now: the time on Trio's clock, and ``at`` the same moment in seconds since 1970.
            others: further numbers that have been read since the last point.
        """
        seconds = 0.0 if self._time is None else now - self._time
        of, before = dict[Hashable, Numbers](), dict[str, ControllerNow]()
        for state in states:
            if len(of) == CONTROLLERS:
                break
            known, before[state.name] = self._before.get(state.name), state
            rate = failures = 0.0
            if known is not None and seconds > 0:
                rate, failures = rates(state, known, seconds)
            of[state.name] = Numbers(round(rate, 2), round(failures, 2), state.queued, state.lag)
        of |= islice(others.items(), CONTROLLERS - len(of))
        self._points.append(Point(self._next, at, of))
        self._before, self._time = before, now
        self._next += 1

    def since(self, number: int, names: Mapping[Any, str]) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of the last point, and the points after ``number``.

        They have the numbers of these controllers, each under the name that is given for it.
        """
        points = [
            {"at": point.at, "of": {label: list(point.of[name]) for name, label in names.items() if name in point.of}}
            for point in self._points
            if point.number > number
        ]
        return self._next - 1, points
