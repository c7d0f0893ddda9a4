"""The return of freed memory to the system. The C library keeps it after a burst of small allocations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import trio

# Seconds to wait for the rest of a burst, and between two returns: one takes 0.1 s when much is free.
_REST, _INTERVAL = 1.0, 10.0


class MemoryReturn:
    """A task that returns freed memory after a burst of connections, at most once in ten seconds.

    Args:
        worth: the number of freed bytes that make it worthwhile.
    """

    def __init__(self, worth: int) -> None:
        self._worth = worth
        self._freed = 0
        self._due = trio.Event()

    def freed(self, size: int) -> None:
        """Note that about ``size`` bytes have been freed."""
        self._freed += size
        if self._freed >= self._worth:
            self._due.set()

    async def run(self) -> None:
        """Return memory when it is due, until canceled."""
        trim = _trim()
        if trim is None:
            return
        while True:
            await self._due.wait()
            await trio.sleep(_REST)
            trim(0)
            self._freed, self._due = 0, trio.Event()
            await trio.sleep(_INTERVAL)


def _trim() -> Callable[[int], int] | None:
    """Return glibc's malloc_trim; other C libraries have none."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return trim
