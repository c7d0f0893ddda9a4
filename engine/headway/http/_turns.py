"""Turns at a resource: one task at a time reads it and writes what it has made of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

import trio


class Turns:
    """The turns of the requests that change resources, in the order in which they ask.

    Requests that read a resource and write it at the version that they have read would otherwise refuse each other:
    of twenty at once, one would succeed in each round.
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, trio.Lock] = {}

    def __len__(self) -> int:
        """Return the number of resources at which a task has a turn, or waits for one."""
        return len(self._locks)

    @asynccontextmanager
    async def at(self, key: Hashable, seconds: float) -> AsyncIterator[None]:
        """Let the block have its turn. Raises trio.TooSlowError if that has not come within ``seconds``."""
        lock = self._locks.setdefault(key, trio.Lock())
        try:
            with trio.fail_after(seconds):
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            if not lock.locked():
                # Nobody waits for it: it would have passed to them.
                self._locks.pop(key, None)
