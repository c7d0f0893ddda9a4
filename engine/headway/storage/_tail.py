"""A watch over a commit log: a snapshot that was read at one revision, then the log's tail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import trio

from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
    resource_key,
)
from headway.storage._backend import Within
from headway.storage._log import CommitLog, Cursor

SNAPSHOT_CHUNK = 1000
"""Resources in one chunk of a snapshot."""


class Pulse:
    """Wakes everybody who waits, and whoever waits later only at the next beat."""

    def __init__(self) -> None:
        self._lot = trio.lowlevel.ParkingLot()

    def beat(self) -> None:
        """Wake all who wait now. Never blocks."""
        self._lot.unpark_all()

    async def wait(self) -> None:
        """Wait for the next beat."""
        await self._lot.park()


class LogWatch:
    """Meets `Watch` over a `CommitLog`."""

    def __init__(
        self,
        log: CommitLog,
        pulse: Pulse,
        here: Callable[[int], Position],
        cursor: Cursor,
        within: Within,
        snapshot: Sequence[pb.Resource] | None,
    ) -> None:
        self._log = log
        self._pulse = pulse
        self._here = here
        self._cursor = cursor
        self._within = within
        # The revision that the reader knows this stream to be complete up to.
        self._told = cursor.revision
        self._opening: Iterator[StreamItem] | None = self._open(snapshot)

    def _open(self, snapshot: Sequence[pb.Resource] | None) -> Iterator[StreamItem]:
        position = self._here(self._cursor.revision)
        if snapshot is None:
            yield Bookmark(position, resumed=True)
            return
        for start in range(0, len(snapshot), SNAPSHOT_CHUNK):
            yield SnapshotChunk(list(snapshot[start : start + SNAPSHOT_CHUNK]))
        yield EndOfSnapshot(position)

    async def next(self) -> StreamItem:
        """See `Watch.next`."""
        # The one checkpoint stands before anything is taken, so that a cancelled call has taken nothing.
        await trio.lowlevel.checkpoint()
        if self._opening is not None:
            item = next(self._opening, None)
            if item is not None:
                return item
            self._opening = None
        while True:
            item = self._take()
            if item is not None:
                return item
            await self._pulse.wait()

    def _take(self) -> StreamItem | None:
        cursor = self._cursor
        if self._log.has_news(cursor):
            changes = self._log.take(cursor)
            if changes and not self._within.everything:
                changes = _filtered(changes, self._within)
            if changes:
                self._told = changes[-1].revision
                return Changes(changes)
        if cursor.revision > self._told:
            self._told = cursor.revision
            return Bookmark(self._here(cursor.revision))
        return None

    def close(self) -> None:
        """See `Watch.close`."""


def _filtered(changes: list[Change], within: Within) -> list[Change]:
    """Those within, with `more` said of what is left of each commit."""
    kept = [change for change in changes if within.matches(resource_key(change.resource))]
    for index, change in enumerate(kept):
        more = index + 1 < len(kept) and kept[index + 1].revision == change.revision
        if more != change.more:
            kept[index] = change._replace(more=more)
    return kept
