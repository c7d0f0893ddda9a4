"""How long Python's garbage collector has stopped this process, for those whose time goes on meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import trio


class Pauses:
    """The collector's pauses since somebody in this run of Trio began to measure them, by Trio's clock.

    Attributes:
        longest: seconds of the longest one.
    """

    def __init__(self, clock: trio.abc.Clock) -> None:
        self.longest = 0.0
        self.users = 0
        self._clock = clock
        self._began: float | None = None

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:  # noqa: ARG002  # see `gc.callbacks`
        """Note the beginning or the end of a collection."""
        if phase == "start":
            self._began = self._clock.current_time()
        elif self._began is not None:
            # A collection in any thread stops all of them.
            self.longest = max(self.longest, self._clock.current_time() - self._began)
            self._began = None


_PAUSES: trio.lowlevel.RunVar[Pauses] = trio.lowlevel.RunVar("pauses of the garbage collector")


@contextmanager
def measured_pauses() -> Iterator[Pauses]:
    """Measure the collector's pauses in the block. All blocks of one run of Trio share what was measured."""
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
