"""Snapshots for watches: their rows are read at once, and decoded as the reader takes them.

A transaction that stayed open for as long as a slow reader reads would keep PostgreSQL from cleaning up dead rows. So
the rows wait in the process, as bytes, and there is a bound for all of them.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from weakref import WeakSet

import trio
from typing_extensions import override

from headway.errors import HistoryCompacted
from headway.resource import Kind, pb
from headway.storage._operations import Within
from headway.storage._reads import Snapshot
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._connection import Pool
from headway.storage.postgres._reads import Here, Scan, decoded, read_rows, rows_owned, rows_within

MOST_BYTES = 256 << 20
"""The bytes of rows that wait for readers. Beyond it, the snapshot whose reader has paused for longest is given up."""

_ROW = 150
"""The bytes of memory of a row beside its body."""


class RowSnapshot(Snapshot):
    """Resources at one revision, in order of key.

    Attributes:
        in_order: True: see `CutSnapshot`.
        size: the bytes of the rows that wait.
        read_at: when the reader last asked.
    """

    in_order = True

    def __init__(self, pages: deque[list[tuple[int, bytes]]], snapshots: Snapshots) -> None:
        self._pages = pages
        self._snapshots = snapshots
        self._given_up = False
        self.size = sum(_size(page) for page in pages)
        self.read_at = trio.current_time()

    @override
    async def next(self) -> list[pb.Resource]:
        self.read_at = trio.current_time()
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._pages:
            found = await decoded(self._pages[0])
            if not self._pages:
                break  # It was given up meanwhile.
            self.size -= _size(self._pages.popleft())
            if found:
                return found
        if self._given_up:
            raise HistoryCompacted(
                f"a snapshot was read too slowly: others need the {MOST_BYTES >> 20} MiB for rows; begin with a new one"
            )
        self._snapshots.forget(self)
        await trio.lowlevel.checkpoint()
        return []

    def give_up(self) -> None:
        """Drop what was not read."""
        self._pages.clear()
        self.size = 0
        self._given_up = True


class Snapshots:
    """The snapshots of an open store that were not read to their ends."""

    def __init__(self, readers: Pool, statements: sql.Statements) -> None:
        self._readers = readers
        self._sql = statements
        # Weak, because a closed watch drops its snapshot without a word here.
        self._open: WeakSet[RowSnapshot] = WeakSet()

    async def read(self, kind: Kind, within: Within) -> tuple[RowSnapshot, Here]:
        """Read the resources within a range."""
        return await self._read(Scan(partial(rows_within, self._sql, kind, within)))

    async def read_owned(self, uid: str) -> tuple[RowSnapshot, Here]:
        """Read the resources that a uid owns, in order of kind and key."""
        return await self._read(Scan(partial(rows_owned, self._sql, uid)))

    async def _read(self, scan: Scan) -> tuple[RowSnapshot, Here]:
        pages, here = await read_rows(self._readers, self._sql, scan)
        made = RowSnapshot(pages, self)
        for each in sorted(self._open, key=lambda each: each.read_at):
            if made.size + sum(each.size for each in self._open) <= MOST_BYTES:
                break
            each.give_up()
            self._open.discard(each)
        self._open.add(made)
        return made, here

    def forget(self, snapshot: RowSnapshot) -> None:
        """Note that a snapshot was read to its end."""
        self._open.discard(snapshot)


def _size(page: list[tuple[int, bytes]]) -> int:
    return sum([len(row[1]) + _ROW for row in page])
