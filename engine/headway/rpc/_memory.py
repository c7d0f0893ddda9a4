"""Memory that goes back to the system: the C library keeps what many connections have freed, in pieces."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import trio

# Seconds until the rest of a burst has ended, and from one time to the next: with much memory it takes 0.1 s.
_REST, _INTERVAL = 1.0, 10.0


class MemoryReturn:
    """Gives freed memory back after a burst of what strangers cause, at most once in ten seconds.

    Args:
        worth: how many bytes must have been freed, at least.
    """

    def __init__(self, worth: int) -> None:
        self._worth = worth
        self._freed = 0
        self._due = trio.Event()

    def freed(self, size: int) -> None:
        """Note that about so many bytes have been freed."""
        self._freed += size
        if self._freed >= self._worth:
            self._due.set()

    async def run(self) -> None:
        """Give memory back when it is due, until cancelled."""
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
