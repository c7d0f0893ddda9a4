"""The clocks of a simulated run: a wall clock that can jump, and a monotonic one. Both follow the virtual time.

The program's own modules get their times here (`_own_modules.py`). Everything else keeps the machine's clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from headway.base import WALL
from headway.testing.simulation.world._injector import Injector
from headway.testing.simulation.world._jumping import Clock

START = 1_772_619_630
"""The wall clock at the start of a run, in seconds since 1970: 2026-03-04 10:20:30 UTC."""

_BILLION = 1_000_000_000
LOOK = 1000
"""The nanoseconds that a look at a clock takes.

No two looks see the same time, as in production. A timer that was set by a clock never ends before its time on that
clock, although Trio's clock and the program's round differently.
"""


class Clocks:
    """The clocks of one run.

    Attributes:
        looks: the number of looks of the program's processes at the wall clock.
        lowest, highest: the ends of the time that the wall clock has shown so far, in seconds since 1970.

    Args:
        process: returns the name and the number of the life of the process that the current task belongs to, or None.
        look: the nanoseconds that a look at a clock takes.
    """

    def __init__(
        self,
        injector: Injector,
        clock: Clock,
        process: Callable[[], tuple[str, int] | None],
        *,
        start: int = START,
        look: int = LOOK,
    ) -> None:
        self._injector = injector
        self._clock = clock
        self._process = process
        self._start = start * _BILLION
        self._thread = threading.get_ident()
        # The nanoseconds that the wall clock has jumped, and that looks have taken.
        self._jumped = self._looked = 0
        self._look = look
        self.looks = 0
        self._lowest = self._highest = self._start

    def wall(self) -> int:
        """Look at the wall clock as the program does. Returns nanoseconds since 1970."""
        self._looked += self._look
        if self._process() is not None:
            self.looks += 1
            if (fault := self._injector.strike_look(self.looks)) is not None:
                self.jump(fault.seconds)
        return self._start + self._jumped + self._looked + self._since_start()

    def monotonic(self) -> int:
        """Look at the monotonic clock as the program does. Returns nanoseconds since the machine's start."""
        self._looked += self._look
        name, life = self._process() or ("", 0)
        # Each life of a process may be on another machine, so that a time of another life means nothing. The clock of
        # the next life is behind, so that a deadline of this one is far away for it.
        machine = 1_000_000 + 104_729 * sum(name.encode()) % 100_000 - 7919 * (life % 100)
        return machine * _BILLION + self._looked + self._since_start()

    def seconds(self) -> float:
        """Return the wall clock in seconds since 1970, for what Headway itself records."""
        return (self._start + self._jumped + self._looked + self._since_start()) / _BILLION

    def jump(self, seconds: float) -> None:
        """Let the wall clock jump forward or back."""
        self._note()
        self._jumped += round(seconds * _BILLION)
        self._note()

    def block(self, seconds: float) -> None:
        """Let time pass while no task runs, as ``time.sleep`` does."""
        self._clock.jump(max(seconds, 0.0))

    @property
    def behind(self) -> float:
        """The number of seconds that the wall clock has jumped back."""
        return max(-self._jumped, 0) / _BILLION

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest time that the wall clock has shown, in seconds since 1970."""
        self._note()
        return self._lowest / _BILLION, self._highest / _BILLION

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Use these clocks in the current task, and in those that it starts, while the block runs."""
        token, wall = CLOCKS.set(self), WALL.set(self.seconds)
        try:
            yield
        finally:
            CLOCKS.reset(token)
            WALL.reset(wall)

    @property
    def here(self) -> bool:
        """True in the thread of the run. A thread that a task starts has the machine's clocks."""
        return threading.get_ident() == self._thread

    def _since_start(self) -> int:
        return round(self._clock.current_time() * _BILLION)

    def _note(self) -> None:
        now = self._start + self._jumped + self._looked + self._since_start()
        self._lowest, self._highest = min(self._lowest, now), max(self._highest, now)


CLOCKS: ContextVar[Clocks | None] = ContextVar("headway.simulation.clocks", default=None)
"""The clocks of the run that the current task belongs to."""


def clocks_here() -> Clocks | None:
    """Return the clocks of the run that the current task belongs to, or None for the machine's clocks."""
    clocks = CLOCKS.get()
    return clocks if clocks is not None and clocks.here else None
