"""The return of freed memory to the system. After a burst of small allocations, the C library would keep it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import trio

# The seconds to wait for the rest of a burst, and between two returns. A return takes 0.1 s if much memory is free.
_REST, _INTERVAL = 1.0, 10.0


class MemoryReturn:
    """A task that returns freed memory after a burst of connections, at most once in ten seconds.

    Args:
        worth: the number of freed bytes that makes a return worthwhile.
    """

    def __init__(self, worth: int) -> None:
        self._worth = worth
        self._freed = 0
        self._due = trio.Event()

    def freed(self, size: int) -> None:
        """Record that about ``size`` bytes have been freed."""
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
    """Return glibc's malloc_trim, or None with other C libraries, which don't have it."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return trim
