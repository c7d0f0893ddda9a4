"""The wall clock of what Headway itself records: times of deletions, statuses and leases. No I/O.

A simulation sets another clock for the tasks of its run, so that its records are the same each time.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from contextvars import ContextVar

WALL: ContextVar[Callable[[], float] | None] = ContextVar("headway.wall", default=None)
"""A function that returns the seconds since 1970, or None for the machine's clock."""


def wall_time() -> float:
    """Return the seconds since 1970."""
    wall = WALL.get()
    return time.time() if wall is None else wall()


def utc_now() -> datetime.datetime:
    """Return the current time in UTC."""
    return datetime.datetime.fromtimestamp(wall_time(), datetime.UTC)
