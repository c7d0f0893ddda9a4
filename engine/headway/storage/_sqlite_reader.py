"""Reads of a store's file: a few connections, each used by one thread at a time, and what is asked through them.

Every read is one transaction that brings its revision with it, so that what is read and where it stood belong together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

import trio

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, pb
from headway.storage import _sqlite_schema as sql
from headway.storage._backend import Fence, Within
from headway.storage._log import CommitLog, LogChange
from headway.storage._sqlite_connect import connect, explained
from headway.storage._sqlite_rows import resource_from
from headway.storage._tail import SNAPSHOT_CHUNK

R = TypeVar("R")

Row = tuple[int, int, bytes]
"""(revision, seal, body) of a stored resource."""

CONNECTIONS = 4
"""Reads at the same time; more wait."""


class Readers:
    """The reading connections. `run` lends one to a function in a worker thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._limiter = trio.CapacityLimiter(CONNECTIONS)
        # Invariant: holds every connection that no thread is using; there are never more than `CONNECTIONS`.
        self._free: list[sqlite3.Connection] = []
        self._closed = False
        # The last read at which SQLite failed, until `check` has tried it with success. One that has found a resource
        # damaged is not meant: the others can be read.
        self.failed: Callable[[sqlite3.Connection], object] | None = None

    async def run(self, read: Callable[[sqlite3.Connection], R]) -> R:
        """What ``read`` returns; once its thread has begun, a cancellation waits for its end."""
        self._refuse_when_closed()
        return await trio.to_thread.run_sync(self._lend, read, limiter=self._limiter)

    async def check(self) -> None:
        """Read, and raise what that fails with. A read that has failed before is tried again."""
        failed = self.failed
        await self.run(failed or read_head)
        if self.failed is failed:
            self.failed = None

    def _refuse_when_closed(self) -> None:
        # Before the limiter, too: who closes takes all of it, and gives nothing back.
        if self._closed:
            raise StoreUnusable(f"the store in {self.path} is closed")

    def _lend(self, read: Callable[[sqlite3.Connection], R]) -> R:
        self._refuse_when_closed()
        try:
            connection = self._free.pop()
        except IndexError:
            connection = connect(self.path, read_only=True)
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
        """Refuse further reads, wait for those under way, and close the connections."""
        self._closed = True
        for _ in range(CONNECTIONS):
            await self._limiter.acquire_on_behalf_of(object())
        for connection in self._free:
            connection.close()


def unreadable(path: str, error: sqlite3.Error) -> StoreUnusable:
    """What a failed read is told."""
    return StoreUnusable(f"{path} could not be read: {explained(error)}")


class RowSnapshot:
    """Meets `Snapshot` over rows, which are decoded in a worker thread when their chunk's turn has come."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self._taken = 0

    async def next(self) -> list[pb.Resource]:
        """See `Snapshot.next`."""
        rows = self._rows[self._taken : self._taken + SNAPSHOT_CHUNK]
        chunk = await decode_rows(rows)
        self._taken += len(rows)
        return chunk


async def decode_rows(rows: Sequence[Row]) -> list[pb.Resource]:
    """The resources of some rows, decoded in worker threads, a chunk at a time."""
    decoded: list[pb.Resource] = []
    for start in range(0, len(rows), SNAPSHOT_CHUNK):
        decoded += await trio.to_thread.run_sync(_decode, rows[start : start + SNAPSHOT_CHUNK])
    return decoded


def _decode(rows: Sequence[Row]) -> list[pb.Resource]:
    return [resource_from(*row) for row in rows]


def read_one(connection: sqlite3.Connection, kind: Kind, key: Key) -> tuple[pb.Resource | None, int]:
    """One resource, and the revision at which it was read."""
    row = connection.execute(sql.READ_RESOURCE, (*kind, *key)).fetchone()
    return (None if row is None else resource_from(*row)), read_head(connection)


def read_many(
    connection: sqlite3.Connection, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
) -> tuple[list[Row], int]:
    """The rows within and behind ``after``, in order of key, and the revision at which they were read."""
    statement = sql.LIST_RESOURCES
    values: list[str | int] = list(kind)
    for column, wanted in (("partition", within.partition), ("namespace", within.namespace)):
        if wanted != "*":
            statement += f" AND {column} = ?"
            values.append(wanted)
    if within.name_prefix:
        # The comparison lets the primary key's order find the beginning; the other one is the condition.
        statement += f" AND name >= ? AND substr(name, 1, {len(within.name_prefix)}) = ?"
        values += [within.name_prefix, within.name_prefix]
    if after is not None:
        statement += sql.AFTER_KEY
        values += after
    statement += sql.IN_ORDER_OF_KEY
    if limit:
        statement += " LIMIT ?"
        values.append(limit)
    rows = connection.execute(statement, values).fetchall()
    return rows, read_head(connection)


def read_owned(connection: sqlite3.Connection, owner_uid: str) -> tuple[list[Row], int]:
    """The rows that a uid owns, and the revision at which they were read."""
    return connection.execute(sql.LIST_OWNED, (owner_uid,)).fetchall(), read_head(connection)


def read_kinds(connection: sqlite3.Connection) -> list[Kind]:
    """The kinds of which there are rows, in order: as many steps through the primary key as there are kinds."""
    kinds: list[Kind] = []
    last: Kind = ("", "")
    while (row := connection.execute(sql.NEXT_KIND, last).fetchone()) is not None:
        last = (row[0], row[1])
        kinds.append(last)
    return kinds


def read_head(connection: sqlite3.Connection) -> int:
    """The revision of the last commit."""
    (head,) = connection.execute(sql.READ_HEAD).fetchone()
    assert isinstance(head, int)
    return head


def read_fences(connection: sqlite3.Connection) -> list[Fence]:
    """Every fence, in order of controller and member."""
    return [Fence(*row) for row in connection.execute(sql.LIST_FENCES)]


def read_incarnation(connection: sqlite3.Connection, incarnation: str) -> dict[str, int | None]:
    """The revision at which an incarnation was left (None: it is the present one); empty when it isn't known."""
    return dict(connection.execute(sql.READ_INCARNATION, (incarnation,)).fetchall())


def read_log(
    connection: sqlite3.Connection, floor: int, max_changes: int, max_age: float, clock: tuple[float, float]
) -> CommitLog:
    """The commit log as the file's history has it. ``clock``: (now by the log's clock, now by the wall's)."""
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
            # What is damaged is gone, and with it what precedes it, as if it had grown too old: whoever stands before
            # it takes a new snapshot, and is not told less than happened.
            commits, floor = [], revision
    log = CommitLog(floor, max_changes=max_changes, max_age=max_age)
    for revision, changes, at in commits:
        log.append(revision, changes, at)
    head = read_head(connection)
    if head > log.head:
        # The last revisions may be fences', which have no changes and no rows.
        log.append(head, (), now)
    return log


def _changes(rows: Sequence[tuple[int, str, str, int, int, float, int, bytes]]) -> Iterator[LogChange]:
    for _, group, kind, deleted, version, _, sealed, body in rows:
        yield (group, kind), resource_from(version, sealed, body), bool(deleted)
