"""Trio's clock in a simulation: it jumps to the next deadline as soon as no task can run.

`trio.testing.MockClock` does the same with ``autojump_threshold=0``. But for each jump, it adds a turn of Trio's loop
and collects statistics of the whole run, which takes a tenth of the time.
"""

from __future__ import annotations

import math
from typing import Any

import trio
from trio.testing import MockClock

_NEVER = 1e9
"""A number of seconds that stands for a wait without an end."""


class JumpingClock(trio.abc.Clock):
    """A clock whose time passes only while no task can run."""

    def __init__(self) -> None:
        self._now = 0.0
        self._runner: Any = None

    def start_clock(self) -> None:
        """Remember the run that this clock belongs to."""
        self._runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner

    def current_time(self) -> float:
        """Return the seconds since the start."""
        return self._now

    def jump(self, seconds: float) -> None:
        """Let time pass at once."""
        if seconds < 0:
            raise ValueError(f"jump() got {seconds} s: time never goes back")
        self._now += seconds

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to the deadline. Trio asks when no task can run, and sleeps for the seconds that this returns."""
        # A task in `wait_all_tasks_blocked` runs before any time passes.
        if self._runner.waiting_for_idle or deadline == math.inf:
            return _NEVER
        self._now = max(self._now, deadline)
        return 0.0


Clock = JumpingClock | MockClock
"""A clock of a simulation. A state machine of Hypothesis has a `MockClock`."""
