"""A program's functions that notifications fetch from, with answers that a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

import headway
from headway.notify import Handle, PrimedCache, Updates
from tests.helpers.cached import Staff


class Source:
    """A poll and a blocking query whose answers a test sets."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, object]] = []
        self.canceled = 0
        self.value: object = "first"
        self.index = 1
        self.error: BaseException | None = None
        self.changed = trio.lowlevel.ParkingLot()
        self.blocks = True
        self.poll = headway.notify.Poll(self._poll)
        self.query = headway.notify.BlockingQuery(self._query)

    def set(self, value: object, index: int | None = None) -> None:
        """Set the next answer, and wake the calls that wait for it."""
        self.value = value
        self.index = self.index + 1 if index is None else index
        self.changed.unpark_all()

    def fail(self, error: BaseException | None) -> None:
        """Let the calls fail, or with None succeed again."""
        self.error = error
        self.changed.unpark_all()

    async def _poll(self, *arguments: object) -> object:
        self.calls.append((trio.current_time(), arguments))
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return self.value

    async def _query(self, after: int, *_: object) -> tuple[int, object]:
        self.calls.append((trio.current_time(), after))
        try:
            await trio.lowlevel.checkpoint()
            if self.blocks and self.error is None and self.index == after:
                await self.changed.park()
        except trio.Cancelled:
            self.canceled += 1
            raise
        if self.error is not None:
            raise self.error
        return self.index, self.value

    @property
    def times(self) -> list[float]:
        """The time of each call."""
        return [at for at, _ in self.calls]

    @property
    def after(self) -> list[object]:
        """The argument of each call."""
        return [given for _, given in self.calls]


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Source, PrimedCache, Updates]]:
    """Open a cache, and a block of notifications."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        yield Source(), cache, updates


async def received(updates: Updates) -> list[Handle[object]]:
    """Return the handles that have changed by now."""
    await wait_all_tasks_blocked()
    found = []
    while updates._changed:
        found.append(await anext(updates))
    return found
