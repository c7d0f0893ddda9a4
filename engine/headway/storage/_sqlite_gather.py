"""Group reads of single resources: reads that arrive during a transaction share the next one, and its thread.

Passing a function to a worker thread costs many times what SQLite needs to find one row. As for writers there is no
background task. A caller that finds no read in progress reads for all that wait, and then hands over to the first of
those that came since.

Invariants:

1. While any read waits or is in progress, exactly one caller leads.
2. A read's transaction begins after the read was requested, so it sees every commit acknowledged before (promise 8).
3. A read is canceled before it waits, or not at all: a cancellation waits for at most two transactions.
"""

from __future__ import annotations

import sqlite3
from functools import partial

import trio

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, pb
from headway.storage._sqlite_reader import Readers, read_one, unreadable

Found = tuple[pb.Resource | None, int]
"""A resource, and the revision of the read."""

MOST_AT_ONCE = 256
"""The maximum number of reads in one transaction. It bounds how long the last one waits for the others."""


class _Read:
    __slots__ = ("error", "found", "key", "kind", "task")

    def __init__(self, kind: Kind, key: Key) -> None:
        self.kind = kind
        self.key = key
        self.found: Found | None = None
        self.error: Exception | None = None
        self.task = trio.lowlevel.current_task()


class GatheredReads:
    """The grouped reads of single resources of one store."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._waiting: list[_Read] = []
        self._leading = False

    @trio.lowlevel.enable_ki_protection
    async def read(self, kind: Kind, key: Key) -> Found:
        """Return one resource and the revision of the read. Raises StoreUnusable."""
        # The rest blocks anyway: a full checkpoint would cost every read another turn of the loop.
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
        # The callers that one transaction has served come back within one turn of the loop. Wait for them.
        await trio.lowlevel.cancel_shielded_checkpoint()
        batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
        try:
            # Without the shield, a cancellation before the thread starts would end the reads of all others.
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
            # If one page is damaged, resources on other pages can still be read.
            read.error = unreadable(readers.path, error)
            readers.failed = partial(read_one, kind=read.kind, key=read.key)
        except StoreUnusable as error:
            read.error = error
