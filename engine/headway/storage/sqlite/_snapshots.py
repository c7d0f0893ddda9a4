"""Snapshots of the file that are read in pages, and the rows that they need although commits have replaced them.

A snapshot is of the revision at which it was opened, however late its pages are read. SQLite would keep that state for
one long transaction. But each watcher that reads slowly would then take a connection, and the write-ahead log would
grow for as long as one of them reads. So the writer keeps the rows that it replaces while a snapshot is open. All
snapshots share them.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

from typing_extensions import override

from headway.errors import HistoryCompacted
from headway.resource import Key, Kind, pb, resource_key, type_name
from headway.storage._operations import Within
from headway.storage._reads import Snapshot
from headway.storage.sqlite._reader import Readers, read_owned_page, read_page
from headway.storage.sqlite._rows import Row, resource_from

MOST_REPLACED = 256 << 20
"""The maximum number of bytes of replaced rows to keep.

Beyond it, the oldest snapshots of the kind that has the most of them cannot be read to their end.
"""

# Bytes of memory of a kept row without its body: its tuples, numbers and key. A transaction takes as much.
_ROW = 400


class ReplacedRow(NamedTuple):
    """A row that the commit of ``revision`` has replaced or deleted."""

    revision: int
    kind: Kind
    key: Key
    row: Row


class _Batch(NamedTuple):
    head: int
    rows: list[ReplacedRow]
    size: int


class ReplacedRows:
    """The rows of a store that its open snapshots may need although commits have replaced them.

    Invariants:

    1. Every row of a kind that was replaced by a commit above the kind's floor, and that an open snapshot needs, is
       here before a reader can see the commit.
    2. Rows that no open snapshot of their kind needs are dropped with the next commit.
    """

    def __init__(self) -> None:
        self._batches: dict[Kind, deque[_Batch]] = {}
        # The last revision whose rows were dropped although an open snapshot needed them; 0 if there is none.
        self._floors: dict[Kind, int] = {}
        self._sizes: dict[Kind, int] = {}
        self._last: list[Kind] = []
        self._snapshots: WeakSet[FileSnapshot] = WeakSet()
        # The writer's thread adds batches, the loop drops them, and the threads of readers look at them.
        self._lock = threading.Lock()

    def add(self, head: int, rows: Sequence[ReplacedRow]) -> None:
        """Add the rows that a transaction replaces, before its commit. ``head`` is its last revision."""
        by_kind: dict[Kind, list[ReplacedRow]] = {}
        for each in rows:
            by_kind.setdefault(each.kind, []).append(each)
        with self._lock:
            self._last = [*by_kind]
            for kind, found in by_kind.items():
                size = _ROW + sum(_ROW + sys.getsizeof(each.row[2]) for each in found)
                self._batches.setdefault(kind, deque()).append(_Batch(head, found, size))
                self._sizes[kind] = self._sizes.get(kind, 0) + size

    def take_back(self) -> None:
        """Drop the rows that were added last, because their transaction was not stored."""
        with self._lock:
            for kind in self._last:
                self._sizes[kind] -= self._batches[kind].pop().size

    def register(self, snapshot: FileSnapshot) -> None:
        """Keep what a snapshot needs for as long as it is referenced. Call this in the event loop."""
        self._snapshots.add(snapshot)

    def published(self) -> None:
        """Drop what no snapshot needs, and what is too much.

        Call this in the event loop, while no transaction is in progress: later snapshots then begin at the last
        revision that was added, or above it.
        """
        if not self._snapshots:
            # No thread looks at them without a snapshot.
            self._batches.clear()
            self._sizes.clear()
            return
        oldest: dict[Kind, int] = {}
        for each in self._snapshots:
            for kind in self._batches if each.kind is None else (each.kind,):
                # Otherwise it has ended: its next page is an error.
                if each.revision >= self._floors.get(kind, 0):
                    oldest[kind] = min(each.revision, oldest.get(kind, each.revision))
        with self._lock:
            for kind, batches in [*self._batches.items()]:
                needed = oldest.get(kind)
                while batches and (needed is None or batches[0].head <= needed):
                    self._sizes[kind] -= batches.popleft().size
                if not batches:
                    del self._batches[kind], self._sizes[kind]
            while sum(self._sizes.values()) > MOST_REPLACED:
                kind = max(self._sizes, key=self._sizes.__getitem__)
                self._floors[kind], _, size = self._batches[kind].popleft()
                self._sizes[kind] -= size

    def find(self, kind: Kind | None, revision: int, matches: Callable[[ReplacedRow], bool]) -> list[Row]:
        """Return the matching rows of ``revision`` that were replaced since, of one kind or of all.

        Raises HistoryCompacted if some are no longer kept.
        """
        with self._lock:
            kinds = {*self._batches, *self._floors} if kind is None else (kind,)
            for each in kinds:
                if self._floors.get(each, 0) > revision:
                    raise HistoryCompacted(
                        f"the snapshot of {'.'.join(each)} at revision {revision} was read too slowly: more than "
                        f"{MOST_REPLACED >> 20} MiB of resources have been replaced since; begin with a new one"
                    )
            batches = [batch for each in kinds for batch in self._batches.get(each, ())]
        return [
            row.row
            for batch in batches
            if batch.head > revision
            for row in batch.rows
            if row.row[0] <= revision < row.revision and matches(row)
        ]


class FileSnapshot(Snapshot):
    """The resources within a range at one revision, in order of key. Each page is read when it is asked for.

    Attributes:
        in_order: True: see `CutSnapshot`.
        kind: their kind; None for all kinds.
        revision: the revision.
    """

    in_order = True

    def __init__(
        self, readers: Readers, replaced: ReplacedRows, kind: Kind | None, within: Within, revision: int
    ) -> None:
        self.kind = kind
        self.revision = revision
        self._readers = readers
        self._replaced = replaced
        self._within = within
        # The last key of the pages that were read; None before the first and after the last.
        self._after: Any | None = None
        self._complete = False
        replaced.register(self)

    @override
    async def next(self) -> list[pb.Resource]:
        while not self._complete:
            async with self._readers.pages:
                resources, self._after = await self._readers.run(partial(self._page, after=self._after))
            self._complete = self._after is None
            if resources:
                return resources
        return []

    def _page(self, connection: sqlite3.Connection, after: Any | None) -> tuple[list[pb.Resource], Any | None]:
        """Return the next resources, and the last key up to which they were read; None at the end."""
        page, end = self._read(connection, after)

        def is_former(row: ReplacedRow) -> bool:
            key = self._row_key(row)
            return (after is None or key > after) and (end is None or key <= end) and self._may_match(row)

        # After the read, so that the rows of each commit that it has seen are found.
        former = self._replaced.find(self.kind, self.revision, is_former)
        # All are decoded, because only that shows a damaged row, whose revision would not count.
        decoded = [(row[0], resource_from(*row)) for row in page]
        resources = [each for revision, each in decoded if revision <= self.revision]
        if former:
            # A row that was replaced after the read is in both.
            by_key = {self._key(each): each for each in (*resources, *(resource_from(*row) for row in former))}
            resources = [by_key[key] for key in sorted(by_key)]
        return self._select(resources), end

    def _read(self, connection: sqlite3.Connection, after: Any | None) -> tuple[list[Row], Any | None]:
        assert self.kind is not None
        return read_page(connection, self.kind, self._within, after)

    def _row_key(self, row: ReplacedRow) -> Any:
        return row.key

    def _key(self, resource: pb.Resource) -> Any:
        return resource_key(resource)

    def _may_match(self, row: ReplacedRow) -> bool:
        return self._within.matches(row.key)

    def _select(self, resources: list[pb.Resource]) -> list[pb.Resource]:
        return self._within.select(resources) if self._within.metadata else resources


class OwnedSnapshot(FileSnapshot):
    """The resources of all kinds that a uid owns, at one revision."""

    def __init__(self, readers: Readers, replaced: ReplacedRows, owner_uid: str, revision: int) -> None:
        super().__init__(readers, replaced, None, Within(), revision)
        self._owner_uid = owner_uid

    @override
    def _read(self, connection: sqlite3.Connection, after: Any | None) -> tuple[list[Row], Any | None]:
        return read_owned_page(connection, self._owner_uid, after)

    @override
    def _row_key(self, row: ReplacedRow) -> Any:
        return (*row.kind, *row.key)

    @override
    def _key(self, resource: pb.Resource) -> Any:
        return (*type_name(resource.id.type).unversioned, *resource_key(resource))  # type: ignore[union-attr]  # whole

    @override
    def _may_match(self, row: ReplacedRow) -> bool:
        # Only bytes that contain the uid are decoded. They may have it elsewhere. A damaged row may hold no bytes.
        body = row.row[2]
        whole = isinstance(body, bytes)
        return whole and self._owner_uid.encode() in body

    @override
    def _select(self, resources: list[pb.Resource]) -> list[pb.Resource]:
        return [each for each in resources if each.owner is not None and each.owner.uid == self._owner_uid]
