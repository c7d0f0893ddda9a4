"""The kept history of a store on a disk, of which the commit log in memory has only the newest changes.

Every change in memory is an object with all that it refers to, and most watchers need only the newest. One that was
away for long, or reads slowly, reads the changes before them from the store, in pages.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio
from typing_extensions import override

from headway.errors import HistoryCompacted
from headway.resource import Change, Changes, Kind, Position, StreamItem, pb
from headway.storage._filter import filtered
from headway.storage._log import COMPACT_AFTER, FIXED_SIZE, CommitLog, Cursor
from headway.storage._operations import Within
from headway.storage._reads import Snapshot
from headway.storage._watch import LogWatch, Pulse


class Bounds(NamedTuple):
    """The bounds of a history, as `SqliteBackend` describes them."""

    max_changes: int
    max_age: float
    max_bytes: int


class KeptCommits:
    """The commits whose changes are the history of a file, in as little memory as they can be. Pure.

    The oldest are dropped first. The newest is always kept.

    Attributes:
        floor: the last revision that was dropped.
        dropped_bytes: the bytes of all changes that were dropped.
    """

    def __init__(self, floor: int, bounds: Bounds) -> None:
        self.floor = floor
        self.dropped_bytes = 0
        self._bounds = bounds
        # The revision, the time, the number of changes and the bytes of each kept commit, from `_first` on.
        self._revisions = array("q")
        self._times = array("d")
        self._counts = array("q")
        self._sizes = array("q")
        self._first = 0
        self._count = self._bytes = 0

    def append(self, revision: int, count: int, time: float, size: int) -> None:
        """Append a commit with its number of changes, its time and its bytes."""
        self._revisions.append(revision)
        self._times.append(time)
        self._counts.append(count)
        self._sizes.append(size)
        self._count += count
        self._bytes += size

    def trim(self, now: float) -> None:
        """Drop the commits that are outside the bounds."""
        while self._first + 1 < len(self._revisions) and (
            self._count > self._bounds.max_changes
            or self._bytes > self._bounds.max_bytes
            or self._times[self._first] + self._bounds.max_age < now
        ):
            self._drop()

    def compact(self, revision: int) -> None:
        """Drop the commits up to a revision."""
        while self._first < len(self._revisions) and self._revisions[self._first] <= revision:
            self._drop()

    def floor_of_newest(self, most: int) -> int:
        """Return the revision after which the changes take at most ``most`` bytes of memory, or are one commit."""
        last = len(self._revisions) - 1
        for at in range(last, self._first - 1, -1):
            most -= self._sizes[at] + FIXED_SIZE * self._counts[at]
            if most < 0 and at < last:
                return self._revisions[at]
        return self.floor

    def _drop(self) -> None:
        first = self._first
        self.floor = self._revisions[first]
        self._count -= self._counts[first]
        self._bytes -= self._sizes[first]
        self.dropped_bytes += self._sizes[first]
        self._first = first = first + 1
        if first > COMPACT_AFTER and first * 2 > len(self._revisions):
            for each in (self._revisions, self._times, self._counts, self._sizes):
                del each[:first]
            self._first = 0


class Page(NamedTuple):
    """The next changes of a kind, the states before changes of metadata, and the revision up to which that is all."""

    changes: list[Change]
    formers: dict[int, pb.Resource]
    through: int


ReadPage = Callable[[Kind, int, int, bool], Awaitable[Page]]
"""Reads the changes of a kind after a revision, in whole commits, up to another. True: with the states before them.

It raises HistoryCompacted if some of them are no longer kept.
"""


def too_far_behind(kind: Kind, after: int, floor: int) -> HistoryCompacted:
    """Return the error for a watcher that needs changes that are no longer kept."""
    return HistoryCompacted(
        f"a watcher of {'.'.join(kind)} at revision {after} is too far behind: changes are kept after {floor}"
    )


class KeptWatch(LogWatch):
    """A watch over the commit log that reads from the store what the log has dropped, as long as the store keeps it."""

    __slots__ = ("_kept", "_read")

    def __init__(
        self,
        log: CommitLog,
        pulse: Pulse,
        here: Callable[[int], Position],
        cursor: Cursor,
        within: Within,
        snapshot: Snapshot | None,
        kept: KeptCommits,
        read: ReadPage,
    ) -> None:
        super().__init__(log, pulse, here, cursor, within, snapshot)
        self._kept = kept
        self._read = read

    @override
    def poll(self) -> StreamItem | None:
        try:
            return super().poll()
        except HistoryCompacted:
            return None

    @trio.lowlevel.enable_ki_protection
    @override
    async def _next(self, *, changes_only: bool) -> StreamItem:
        while True:
            try:
                return await super()._next(changes_only=changes_only)
            except HistoryCompacted as dropped:
                item = await self._read_dropped(dropped)
            if item is not None:
                return item

    async def _read_dropped(self, dropped: HistoryCompacted) -> StreamItem | None:
        """Return the next changes of those that the log has dropped, if any are in this part, and move the cursor."""
        if not self._opened:
            # It is about the snapshot.
            raise dropped
        cursor, within = self._cursor, self._within
        kind, after = cursor.log.kind, cursor.revision
        if after < self._kept.floor:
            raise too_far_behind(kind, after, self._kept.floor) from dropped
        formers = within is not None and bool(within.metadata)
        page = await self._read(kind, after, self._log.floor, formers)
        # The cursor's index stays among the changes that the log has dropped. The log skips what the page has.
        cursor.revision = page.through
        changes = Changes(page.changes) if page.changes else None
        if changes is not None and within is not None:
            changes = filtered(changes, within, page.formers)
        if changes is not None:
            self._announced = changes.changes[-1].revision
        return changes
