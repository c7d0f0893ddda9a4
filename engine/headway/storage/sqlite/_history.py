"""The history of a file: what bounds it, and the watches that read from the file what the commit log no longer has.

The commit log in memory has only the newest changes, because every change is an object with all that it refers to.
Most watchers need no others. One that was away for long, or reads slowly, reads the changes before them in pages.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

import trio
from typing_extensions import override

from headway.errors import HistoryCompacted, StoreUnusable
from headway.resource import Change, Changes, Kind, Position, StreamItem, Within, pb
from headway.storage._filter import ending_commits, filtered
from headway.storage._log import COMPACT_AFTER, FIXED_SIZE, NO_FORMERS, CommitLog, Cursor, LogChange
from headway.storage._reads import Snapshot
from headway.storage._watch import LogWatch, Pulse
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._connect import code_of, explained
from headway.storage.sqlite._reader import PAGE_BYTES, Readers, read_head
from headway.storage.sqlite._rows import resource_from

IN_MEMORY = 16 * 2**20
"""The maximum number of bytes of changes in the commit log: some ten thousand changes of small resources."""

PAGE_CHANGES = 1000
"""The number of changes at about which a page ends. A commit may have more."""


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


def read_history(
    connection: sqlite3.Connection, floor: int, formers_floor: int, bounds: Bounds, clock: tuple[float, float]
) -> tuple[KeptCommits, CommitLog]:
    """Return the kept commits of a file, and a commit log with the newest of them.

    An earlier program may have kept more, and a store may have been closed for long.

    Args:
        clock: now, by the log's clock and by the wall clock.
    """
    now, wall = clock
    kept = KeptCommits(floor, bounds)
    for revision, count, time, size in connection.execute(sql.SIZES_OF_HISTORY, (floor,)):
        # A damaged row may have no body. It is found when it is read.
        kept.append(revision, count, now - max(0.0, wall - time), size or 0)
    kept.trim(now)
    most = min(bounds.max_bytes, IN_MEMORY)
    begin = kept.floor_of_newest(most)
    formers: dict[int, dict[int, pb.Resource]] = {}
    for revision, seq, *row in connection.execute(sql.READ_FORMERS, (begin,)):
        try:
            formers.setdefault(revision, {})[seq] = resource_from(*row)
        except StoreUnusable:
            formers_floor = max(formers_floor, revision)
    commits: list[tuple[int, list[LogChange], float]] = []
    for revision, group in groupby(connection.execute(sql.READ_HISTORY, (begin,)), key=lambda row: row[0]):
        rows = list(group)
        try:
            commits.append((revision, list(_changes(rows)), now - max(0.0, wall - rows[0][5])))
        except StoreUnusable:
            # Drop a damaged commit and everything before it, as if it were too old: a watcher from before it takes a
            # new snapshot, and misses nothing.
            commits, begin = [], revision
            kept.compact(revision)
    log = CommitLog(begin, max_changes=bounds.max_changes, max_age=bounds.max_age, max_bytes=most)
    log.formers_after = max(kept.floor, formers_floor)
    for revision, changes, at in commits:
        log.append(revision, changes, at, formers.get(revision, NO_FORMERS))
    head = read_head(connection)
    if head > log.head:
        # The last revisions may belong to fences, which have no changes and no rows.
        log.append(head, (), now)
    return kept, log


def _changes(rows: Sequence[tuple[int, str, str, int, int, float, int, bytes]]) -> Iterator[LogChange]:
    for _, group, kind, deleted, version, _, sealed, body in rows:
        yield (group, kind), resource_from(version, sealed, body), bool(deleted)


class _Page(NamedTuple):
    """The next changes of a kind, the states before changes of metadata, and the revision up to which that is all."""

    changes: list[Change]
    formers: dict[int, pb.Resource]
    through: int


def _read_page(connection: sqlite3.Connection, kind: Kind, after: int, through: int, *, formers: bool) -> _Page:
    """Return the changes of a kind after a revision, in whole commits, up to ``through``.

    Raises:
        HistoryCompacted: some of the changes are no longer kept, or damaged.
    """
    (floor,) = connection.execute(sql.READ_FLOOR).fetchone()
    if after < floor:
        raise _too_far_behind(kind, after, floor)
    page = _Page([], {}, through)
    size = 0
    try:
        for revision, deleted, version, sealed, body, *former in connection.execute(
            sql.READ_CHANGES, (after, through, *kind)
        ):
            if (len(page.changes) >= PAGE_CHANGES or size >= PAGE_BYTES) and revision > page.changes[-1].revision:
                page = page._replace(through=page.changes[-1].revision)
                break
            if formers and former[0] is not None:
                page.formers[len(page.changes)] = resource_from(*former)
            page.changes.append(Change(revision, resource_from(version, sealed, body), bool(deleted), False))
            size += len(body)
    except StoreUnusable as error:
        raise _unreadable(kind, after, error) from error
    except sqlite3.DatabaseError as error:
        if code_of(error) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        raise _unreadable(kind, after, explained(error)) from error
    ending_commits(page.changes)
    return page


def _too_far_behind(kind: Kind, after: int, floor: int) -> HistoryCompacted:
    return HistoryCompacted(
        f"a watcher of {'.'.join(kind)} at revision {after} is too far behind: changes are kept after {floor}"
    )


def _unreadable(kind: Kind, after: int, why: object) -> HistoryCompacted:
    return HistoryCompacted(f"the history of {'.'.join(kind)} after revision {after} cannot be read: {why}")


class FileWatch(LogWatch):
    """A watch over the commit log that reads from the file what the log has dropped, as long as the file keeps it."""

    __slots__ = ("_kept", "_readers")

    def __init__(
        self,
        log: CommitLog,
        pulse: Pulse,
        here: Callable[[int], Position],
        cursor: Cursor,
        within: Within,
        snapshot: Snapshot | None,
        readers: Readers,
        kept: KeptCommits,
    ) -> None:
        super().__init__(log, pulse, here, cursor, within, snapshot)
        self._readers = readers
        self._kept = kept

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
            raise _too_far_behind(kind, after, self._kept.floor) from dropped
        formers = within is not None and bool(within.metadata)
        async with self._readers.pages:
            page = await self._readers.run(
                partial(_read_page, kind=kind, after=after, through=self._log.floor, formers=formers)
            )
        # The cursor's index stays among the changes that the log has dropped. The log skips what the page has.
        cursor.revision = page.through
        changes = Changes(page.changes) if page.changes else None
        if changes is not None and within is not None:
            changes = filtered(changes, within, page.formers)
        if changes is not None:
            self._announced = changes.changes[-1].revision
        return changes
