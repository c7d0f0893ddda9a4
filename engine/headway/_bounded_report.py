"""A report that passes on one event of a kind a second, so that no stranger can fill a log. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio


class BoundedReport:
    """Reports events that strangers can cause, each kind at most once in ``seconds``.

    The next event of the kind carries the number of those that were suppressed before it. Its class needs a field
    ``suppressed``::

        bounded = BoundedReport(report)
        bounded(events.ConnectionEnded, peer="10.0.0.7:4711", why="too many pings")

    Args:
        report: gets each event that is passed on.
        clock: returns the time in seconds.
    """

    def __init__(
        self, report: Callable[[object], None], seconds: float = 1.0, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._report = report
        self._seconds = seconds
        self._clock = clock
        # For each class of events: when the next one is passed on, and how many were suppressed since the last.
        self._kinds: dict[type, tuple[float, int]] = {}

    def __call__(self, kind: type, **fields: Any) -> None:
        """Report one event of the class ``kind``, or count it. A suppressed event is not even made."""
        now = self._clock()
        due, suppressed = self._kinds.get(kind, (now, 0))
        if now < due:
            self._kinds[kind] = due, suppressed + 1
            return
        self._kinds[kind] = now + self._seconds, 0
        self._report(kind(**fields, suppressed=suppressed))
