"""A watch over a commit log: a snapshot that was read at one revision, then the changes of the log after it."""

from __future__ import annotations

from collections.abc import Callable

import trio
from typing_extensions import override

from headway.base import Pulse
from headway.resource import Bookmark, EndOfSnapshot, Position, SnapshotChunk, StreamItem
from headway.storage._backend import Watch
from headway.storage._filter import filtered
from headway.storage._log import CommitLog, Cursor
from headway.storage._operations import Within
from headway.storage._reads import Snapshot


class LogWatch(Watch):
    """A `Watch` over a `CommitLog`."""

    __slots__ = ("_announced", "_cursor", "_here", "_log", "_opened", "_pulse", "_snapshot", "_within")

    def __init__(
        self,
        log: CommitLog,
        pulse: Pulse,
        here: Callable[[int], Position],
        cursor: Cursor,
        within: Within,
        snapshot: Snapshot | None,
    ) -> None:
        self._log = log
        self._pulse = pulse
        self._here = here
        self._cursor = cursor
        # None if every resource matches.
        self._within = None if within.everything else within
        # The reader knows that the stream is complete up to this revision.
        self._announced = cursor.revision
        self._snapshot = snapshot
        self._opened = False

    @trio.lowlevel.enable_ki_protection
    @override
    async def next(self) -> StreamItem:
        # Every checkpoint comes before an item is taken, so that a canceled call has taken nothing.
        if not self._opened:
            await trio.lowlevel.checkpoint()
            return await self._open()
        cursor = self._cursor
        while True:
            # Waiting is itself a checkpoint. Another one before it would cost every event a turn of the loop.
            if self._log.head > cursor.revision or cursor.revision > self._announced:
                await trio.lowlevel.checkpoint()
            else:
                await self._pulse.wait()
            item = self._take()
            if item is not None:
                return item

    async def _open(self) -> StreamItem:
        chunk = await self._snapshot.next() if self._snapshot is not None else []
        if chunk:
            return SnapshotChunk(chunk)
        resumed = self._snapshot is None
        self._snapshot = None
        self._opened = True
        position = self._here(self._cursor.revision)
        return Bookmark(position, resumed=True) if resumed else EndOfSnapshot(position)

    def _take(self) -> StreamItem | None:
        cursor, log = self._cursor, self._log
        # At a mark, a bookmark announces the session before the first change that belongs to it.
        unannounced = cursor.revision > self._announced and bool(log.marks) and cursor.revision in log.marks
        if log.head > cursor.revision and not unannounced:
            changes = log.take(cursor)
            if changes is not None and self._within is not None:
                changes = filtered(changes, self._within, log.formers(cursor, changes))
            if changes is not None:
                self._announced = changes.changes[-1].revision
                return changes
        if cursor.revision > self._announced:
            self._announced = cursor.revision
            return Bookmark(self._here(cursor.revision))
        return None

    @override
    def close(self) -> None:
        """Do nothing: the watch holds no resources."""
