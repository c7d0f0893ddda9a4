"""Measurement of garbage collection pauses. A lease expires even while the collector stops its holder."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import trio


class Pauses:
    """The garbage collector's pauses in this run of Trio, measured by Trio's clock.

    Attributes:
        longest: the longest pause, in seconds.
        users: the number of blocks that measure.
    """

    def __init__(self, clock: trio.abc.Clock) -> None:
        self.longest = 0.0
        self.users = 0
        self._clock = clock
        self._began: float | None = None

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:  # noqa: ARG002  # see `gc.callbacks`
        """Record the start or the end of a collection."""
        if phase == "start":
            self._began = self._clock.current_time()
        elif self._began is not None:
            # A collection in any thread stops all threads.
            self.longest = max(self.longest, self._clock.current_time() - self._began)
            self._began = None


_PAUSES: trio.lowlevel.RunVar[Pauses] = trio.lowlevel.RunVar("pauses of the garbage collector")


@contextmanager
def measured_pauses() -> Iterator[Pauses]:
    """Measure the collector's pauses during the block. All blocks in one run of Trio share the measurements."""
    try:
        pauses = _PAUSES.get()
    except LookupError:
        pauses = Pauses(trio.lowlevel.current_clock())
        _PAUSES.set(pauses)
    if not pauses.users:
        gc.callbacks.append(pauses)
    pauses.users += 1
    try:
        yield pauses
    finally:
        pauses.users -= 1
        if not pauses.users:
            gc.callbacks.remove(pauses)
