"""Reads of a store's file: a pool of connections, each used by one thread at a time, and the queries.

Every read is one transaction that also reads the revision, so the data and its revision are consistent.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

import trio

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, pb
from headway.storage import _sqlite_schema as sql
from headway.storage._log import CommitLog, LogChange
from headway.storage._operations import Fence, Within
from headway.storage._reads import SNAPSHOT_CHUNK
from headway.storage._sqlite_connect import connect, explained
from headway.storage._sqlite_rows import resource_from

R = TypeVar("R")

Row = tuple[int, int, bytes]
"""(revision, seal, body) of a stored resource."""


class RowChunk:
    """Some rows in few objects: freeing a million rows one by one would stop the loop for 150 ms."""

    __slots__ = ("_bodies", "_numbers", "_rest")

    def __init__(self, rows: Sequence[Row]) -> None:
        # Three numbers per row: revision, seal, and the length of its body. Damaged rows may have values of other
        # types.
        self._rest = None if all(map(_is_whole, rows)) else list(rows)
        self._numbers = array("q")
        if self._rest is None:
            for revision, sealed, body in rows:
                self._numbers.extend((revision, sealed, len(body)))
        self._bodies = b"" if self._rest is not None else b"".join([body for _, _, body in rows])

    def decode(self) -> list[pb.Resource]:
        """Return the resources. Raises StoreUnusable for a damaged one."""
        if self._rest is not None:
            return [resource_from(*row) for row in self._rest]
        decoded: list[pb.Resource] = []
        end = 0
        numbers = iter(self._numbers)
        for revision, sealed, length in zip(numbers, numbers, numbers, strict=True):
            decoded.append(resource_from(revision, sealed, self._bodies[end : end + length]))
            end += length
        return decoded


class Rows:
    """The result of a read, in chunks. Each chunk is released when it is decoded."""

    __slots__ = ("chunks",)

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.chunks: deque[RowChunk] = deque()
        while rows := cursor.fetchmany(SNAPSHOT_CHUNK):
            self.chunks.append(RowChunk(rows))


def _is_whole(row: tuple[object, object, object]) -> bool:
    return isinstance(row[0], int) and isinstance(row[1], int) and isinstance(row[2], bytes)


CONNECTIONS = 4
"""The number of concurrent reads; further ones wait."""


def connect_readers(path: str) -> list[sqlite3.Connection]:
    """Open the reading connections of a store, and read once with each, so that SQLite holds every file that it needs.

    None of them is opened later, when it could find another file at the path, or no free descriptor. Raises
    StoreUnusable.
    """
    connections: list[sqlite3.Connection] = []
    try:
        for _ in range(CONNECTIONS):
            connections.append(connect(path, read_only=True))
            read_head(connections[-1])
    except BaseException as error:
        for connection in connections:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise unreadable(path, error) from error
        raise
    return connections


class Readers:
    """The pool of reading connections. `run` lends one to a function in a worker thread."""

    def __init__(self, path: str, connections: Sequence[sqlite3.Connection]) -> None:
        self.path = path
        self._limiter = trio.CapacityLimiter(len(connections))
        # Invariant: contains every connection that no thread uses. The limiter lends no more than there are.
        self._free = list(connections)
        self._closed = False
        # The last read that failed in SQLite, until `check` has retried it with success. A read that found a damaged
        # resource does not count: the others can be read.
        self.failed: Callable[[sqlite3.Connection], object] | None = None

    async def run(self, read: Callable[[sqlite3.Connection], R]) -> R:
        """Run ``read`` and return its result. Once its thread has started, a cancellation waits for it."""
        self._refuse_when_closed()
        return await trio.to_thread.run_sync(self._lend, read, limiter=self._limiter)

    async def check(self) -> None:
        """Read, and raise the error if that fails. A read that failed before is retried."""
        failed = self.failed
        await self.run(failed or read_head)
        if self.failed is failed:
            self.failed = None

    def _refuse_when_closed(self) -> None:
        # Also checked before the limiter: closing takes all of it and returns nothing.
        if self._closed:
            raise StoreUnusable(f"the store in {self.path} is closed")

    def _lend(self, read: Callable[[sqlite3.Connection], R]) -> R:
        self._refuse_when_closed()
        connection = self._free.pop()
        try:
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self.failed = read
            raise unreadable(self.path, error) from error
        finally:
            self._free.append(connection)

    async def close(self) -> None:
        """Refuse further reads, wait for those in progress, and close the connections."""
        self._closed = True
        for _ in range(int(self._limiter.total_tokens)):
            await self._limiter.acquire_on_behalf_of(object())
        for connection in self._free:
            connection.close()


def unreadable(path: str, error: sqlite3.Error) -> StoreUnusable:
    """Return the error for a failed read."""
    return StoreUnusable(f"{path} could not be read: {explained(error)}")


class RowSnapshot:
    """A `Snapshot` over rows, which are decoded in a worker thread one chunk at a time."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def next(self) -> list[pb.Resource]:
        """Return the next chunk of resources; an empty list at the end."""
        if not self._rows.chunks:
            return []
        chunk = await trio.to_thread.run_sync(self._rows.chunks[0].decode)
        self._rows.chunks.popleft()
        return chunk


async def decode_rows(rows: Rows) -> list[pb.Resource]:
    """Return the resources of some rows, decoded in worker threads one chunk at a time."""
    decoded: list[pb.Resource] = []
    while rows.chunks:
        decoded += await trio.to_thread.run_sync(rows.chunks.popleft().decode)
    return decoded


def read_one(connection: sqlite3.Connection, kind: Kind, key: Key) -> tuple[pb.Resource | None, int]:
    """Return one resource and the revision of the read."""
    row = connection.execute(sql.READ_RESOURCE, (*kind, *key)).fetchone()
    return (None if row is None else resource_from(*row)), read_head(connection)


def read_many(
    connection: sqlite3.Connection, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
) -> tuple[Rows, int]:
    """Return the rows within a range and behind ``after``, ordered by key, and the revision of the read."""
    statement = sql.LIST_RESOURCES
    values: list[str | int] = list(kind)
    for column, wanted in (("partition", within.partition), ("namespace", within.namespace)):
        if wanted != "*":
            statement += f" AND {column} = ?"
            values.append(wanted)
    if within.name_prefix:
        # The comparison lets SQLite find the start in the primary key; the second term is the actual condition.
        statement += f" AND name >= ? AND substr(name, 1, {len(within.name_prefix)}) = ?"
        values += [within.name_prefix, within.name_prefix]
    if after is not None:
        statement += sql.AFTER_KEY
        values += after
    statement += sql.IN_ORDER_OF_KEY
    if limit:
        statement += " LIMIT ?"
        values.append(limit)
    rows = Rows(connection.execute(statement, values))
    return rows, read_head(connection)


def read_owned(connection: sqlite3.Connection, owner_uid: str) -> tuple[Rows, int]:
    """Return the rows that a uid owns, and the revision of the read."""
    return Rows(connection.execute(sql.LIST_OWNED, (owner_uid,))), read_head(connection)


def read_kinds(connection: sqlite3.Connection) -> list[Kind]:
    """Return the kinds that have rows, in order. It takes one step through the primary key per kind."""
    kinds: list[Kind] = []
    last: Kind = ("", "")
    while (row := connection.execute(sql.NEXT_KIND, last).fetchone()) is not None:
        last = (row[0], row[1])
        kinds.append(last)
    return kinds


def read_head(connection: sqlite3.Connection) -> int:
    """Return the revision of the last commit."""
    (head,) = connection.execute(sql.READ_HEAD).fetchone()
    assert isinstance(head, int)
    return head


def read_fences(connection: sqlite3.Connection) -> list[Fence]:
    """Return every fence, ordered by controller and member."""
    return [Fence(*row) for row in connection.execute(sql.LIST_FENCES)]


def read_session(connection: sqlite3.Connection, incarnation: str) -> dict[str, int | None]:
    """Return the last revision of a session by its id (None: it is the current one); empty if it is unknown."""
    return dict(connection.execute(sql.READ_INCARNATION, (incarnation,)).fetchall())


def read_log(
    connection: sqlite3.Connection, floor: int, max_changes: int, max_age: float, clock: tuple[float, float]
) -> CommitLog:
    """Return the commit log from the file's history. ``clock`` is the current time by the log's clock and by the wall
    clock.
    """
    newest_not_kept = connection.execute(sql.NEWEST_NOT_KEPT, (max_changes,)).fetchone()
    if newest_not_kept is not None:
        floor = max(floor, newest_not_kept[0])
    now, wall = clock
    commits: list[tuple[int, list[LogChange], float]] = []
    for revision, group in groupby(connection.execute(sql.READ_HISTORY, (floor,)), key=lambda row: row[0]):
        rows = list(group)
        try:
            commits.append((revision, list(_changes(rows)), now - max(0.0, wall - rows[0][5])))
        except StoreUnusable:
            # Drop a damaged commit and everything before it, as if it were too old: a watcher from before it takes a
            # new snapshot, and misses nothing.
            commits, floor = [], revision
    log = CommitLog(floor, max_changes=max_changes, max_age=max_age)
    for revision, changes, at in commits:
        log.append(revision, changes, at)
    head = read_head(connection)
    if head > log.head:
        # The last revisions may belong to fences, which have no changes and no rows.
        log.append(head, (), now)
    return log


def _changes(rows: Sequence[tuple[int, str, str, int, int, float, int, bytes]]) -> Iterator[LogChange]:
    for _, group, kind, deleted, version, _, sealed, body in rows:
        yield (group, kind), resource_from(version, sealed, body), bool(deleted)
