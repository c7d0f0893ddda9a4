"""Reads of single resources: those that come while one is under way share the next transaction and its thread.

Handing a function to a worker thread costs many times what SQLite needs to find one row. As with writers there is no
background task: who finds nobody reading reads for all who wait, and hands on to the first of those that came since.

Invariants:
1. While anything waits or is under way, exactly one caller leads.
2. A read's transaction begins after the read was asked for, so it sees every commit acknowledged before (promise 8).
3. A read is cancelled before it waits, or not at all: a cancellation waits for two transactions at most.
"""

from __future__ import annotations

import sqlite3
from functools import partial

import trio

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, pb
from headway.storage._sqlite_reader import Readers, read_one, unreadable

Found = tuple[pb.Resource | None, int]
"""A resource, and the revision at which it was read."""

MOST_AT_ONCE = 256
"""Reads in one transaction: a bound for how long the last of them waits for the others."""


class _Read:
    __slots__ = ("error", "found", "key", "kind", "task")

    def __init__(self, kind: Kind, key: Key) -> None:
        self.kind = kind
        self.key = key
        self.found: Found | None = None
        self.error: Exception | None = None
        self.task = trio.lowlevel.current_task()


class GatheredReads:
    """Reads of single resources of one store."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._waiting: list[_Read] = []
        self._leading = False

    @trio.lowlevel.enable_ki_protection
    async def read(self, kind: Kind, key: Key) -> Found:
        """One resource, and the revision at which it was read. Raises StoreUnusable."""
        # What follows waits in any case: a whole checkpoint would cost every read another turn of the loop.
        await trio.lowlevel.checkpoint_if_cancelled()
        mine = _Read(kind, key)
        self._waiting.append(mine)
        if self._leading:
            await trio.lowlevel.wait_task_rescheduled(_not_now)
        if mine.found is None and mine.error is None:
            await self._lead()
        if mine.error is not None:
            raise mine.error
        assert mine.found is not None
        return mine.found

    async def _lead(self) -> None:
        self._leading = True
        # Those whom one transaction has let go come back in one turn of the loop.
        await trio.lowlevel.cancel_shielded_checkpoint()
        batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        try:
            # Without the shield a cancellation before the thread has begun would end the reads of all the others.
            with trio.CancelScope(shield=True):
                await self._readers.run(partial(_read_all, self._readers, batch))
        except BaseException as error:
            for read in batch:
                read.found, read.error = None, StoreUnusable(str(error))
                read.error.__cause__ = error
            if not isinstance(error, Exception):
                raise
        finally:
            for read in batch[1:]:
                trio.lowlevel.reschedule(read.task)
            self._leading = bool(self._waiting)
            if self._waiting:
                trio.lowlevel.reschedule(self._waiting[0].task)


def _not_now(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


def _read_all(readers: Readers, batch: list[_Read], connection: sqlite3.Connection) -> None:
    for read in batch:
        try:
            read.found = read_one(connection, read.kind, read.key)
        except sqlite3.Error as error:
            # Where one page is damaged, what stands on the others is read all the same.
            read.error = unreadable(readers.path, error)
            readers.failed = partial(read_one, kind=read.kind, key=read.key)
        except StoreUnusable as error:
            read.error = error
