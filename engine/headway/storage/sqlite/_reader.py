"""Reads of a store's file: a pool of connections, each used by one thread at a time, and the queries.

Every read is one transaction that also reads the revision, so the data and its revision are consistent.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain, islice
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import trio

from headway.base import CALLER, CallerTurns, ThreadCalls, by_turns
from headway.errors import HeadwayError, StoreUnusable
from headway.protobuf import encode
from headway.resource import Key, Kind, pb
from headway.storage._operations import Fence, Within
from headway.storage._reads import SNAPSHOT_CHUNK
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._connect import connect, explained
from headway.storage.sqlite._rows import Row, Rows, resource_from

R = TypeVar("R")

FullKey = tuple[str, str, str, str, str]
"""The kind of a resource and its key."""

CONNECTIONS = 4
"""The number of concurrent reads; further ones wait."""

PAGE_CONNECTIONS = 2
"""How many of them may read lists and pages of snapshots. The others are left for reads of single resources."""

PAGE_BYTES = 256 << 10
"""The bytes of rows, at about which a page of a snapshot ends. One row may take more."""


def connect_readers(path: str) -> list[sqlite3.Connection]:
    """Open the reading connections of a store, and read once with each, so that SQLite holds every file that it needs.

    None of them is opened later, when it could find another file at the path, or no free descriptor. Raises
    StoreUnusable.
    """
    connections: list[sqlite3.Connection] = []
    with ExitStack() as undo:
        for _ in range(CONNECTIONS):
            connections.append(connect(path, read_only=True))
            undo.callback(connections[-1].close)
            try:
                read_head(connections[-1])
            except sqlite3.Error as error:
                raise unreadable(path, error) from error
        undo.pop_all()
    return connections


class _Retry:
    """A read that failed in SQLite, to be repeated. Its other errors, like a damaged resource, are not SQLite's."""

    def __init__(self, read: Callable[[sqlite3.Connection], object]) -> None:
        self._read = read

    def __call__(self, connection: sqlite3.Connection) -> None:
        with suppress(HeadwayError):
            self._read(connection)


class _Lent(NamedTuple):
    """A connection, and the calls of the threads that use it."""

    connection: sqlite3.Connection
    thread: ThreadCalls[Any]


class Readers:
    """The pool of reading connections. `run` lends one to a function in a worker thread."""

    def __init__(
        self, path: str, connections: Sequence[sqlite3.Connection], threads: Sequence[ThreadCalls[Any]]
    ) -> None:
        self.path = path
        self.connections = tuple(connections)
        self._limiter = trio.CapacityLimiter(len(connections))
        # Lists and pages take this one first.
        self.pages = CallerTurns(PAGE_CONNECTIONS)
        # Invariant: contains every connection that no thread uses. The limiter lends no more than there are.
        self._free = [_Lent(each, thread) for each, thread in zip(connections, threads, strict=True)]
        self._closed = False
        # The last read that failed in SQLite, until `check` has retried it with success. A read that found a damaged
        # resource does not count: the others can be read.
        self.failed: _Retry | None = None

    @trio.lowlevel.enable_ki_protection
    async def run(self, read: Callable[[sqlite3.Connection], R]) -> R:
        """Run ``read`` and return its result. Once its thread has started, a cancellation waits for it."""
        self._refuse_when_closed()
        await trio.lowlevel.checkpoint_if_cancelled()
        borrower = object()
        try:
            self._limiter.acquire_on_behalf_of_nowait(borrower)
        except trio.WouldBlock:
            await self._limiter.acquire_on_behalf_of(borrower)
        try:
            self._refuse_when_closed()
            lent = self._free.pop()
            try:
                found: R = await lent.thread.run(partial(self._read, lent.connection, read))
                return found
            finally:
                self._free.append(lent)
        finally:
            self._limiter.release_on_behalf_of(borrower)

    async def check(self) -> None:
        """Read, and raise the error if SQLite cannot. A read that failed before is retried."""
        failed = self.failed
        read: Callable[[sqlite3.Connection], object] = failed or read_head
        await self.run(read)
        if self.failed is failed:
            self.failed = None

    def _refuse_when_closed(self) -> None:
        # Also checked before the limiter: closing takes all of it and returns nothing.
        if self._closed:
            raise StoreUnusable(f"the store in {self.path} is closed")

    def _read(self, connection: sqlite3.Connection, read: Callable[[sqlite3.Connection], R]) -> R:
        try:
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self.failed = read if isinstance(read, _Retry) else _Retry(read)
            raise unreadable(self.path, error) from error

    async def close(self) -> None:
        """Refuse further reads, wait for those in progress, and close the connections."""
        self._closed = True
        for _ in range(int(self._limiter.total_tokens)):
            await self._limiter.acquire_on_behalf_of(object())
        for lent in self._free:
            lent.connection.close()
            lent.thread.close()


def unreadable(path: str, error: sqlite3.Error) -> StoreUnusable:
    """Return the error for a failed read."""
    return StoreUnusable(f"{path} could not be read: {explained(error)}")


Found = tuple[pb.Resource | None, int]
"""A resource, and the revision of the read."""

MOST_AT_ONCE = 256
"""The maximum number of reads in one transaction. It bounds how long the last one waits for the others."""

MOST_BYTES = 1 << 20
"""The bytes of rows, at about which a transaction ends. One row may take more. It bounds the memory of large rows."""

MOST_SECONDS = 0.02
"""The time after which a transaction ends. To find a row, SQLite may have to read large rows beside it."""


class _Read:
    __slots__ = ("caller", "error", "found", "key", "kind", "task")

    def __init__(self, kind: Kind, key: Key) -> None:
        self.kind = kind
        self.key = key
        self.found: Found | None = None
        self.error: Exception | None = None
        self.task = trio.lowlevel.current_task()
        self.caller = CALLER.get()


class GatheredReads:
    """The grouped reads of single resources: reads that arrive during a transaction share the next one, and its thread.

    Passing a function to a worker thread costs many times what SQLite needs to find one row. As for writers there is no
    background task. A caller that finds no read in progress reads for all that wait, and then hands over to the first
    of those that came since. Callers over the network take turns, so that none waits for all the reads of another.

    Invariants:

    1. While any read waits or is in progress, exactly one caller leads.
    2. A read's transaction begins after the read was requested, so it sees every commit acknowledged before
       (promise 8).
    3. A read is canceled before its transaction begins, or not at all: a cancellation waits for at most one.
    4. The read of the leader is the first one of its transaction, which reads at least that.
    """

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
            await trio.lowlevel.wait_task_rescheduled(partial(self._give_up, mine))
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
        # The first one stays the first one. What is left of the last transaction is in turns already, and goes first.
        waiting = list(by_turns(self._waiting, lambda read: read.caller))
        batch, self._waiting = waiting[:MOST_AT_ONCE], waiting[MOST_AT_ONCE:]
        left: list[_Read] = []
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
                if read.found is None and read.error is None:
                    left.append(read)
                else:
                    trio.lowlevel.reschedule(read.task)
            self._waiting[:0] = left
            self._leading = bool(self._waiting)
            if self._waiting:
                trio.lowlevel.reschedule(self._waiting[0].task)

    def _give_up(self, read: _Read, _: object) -> trio.lowlevel.Abort:
        if read not in self._waiting:
            return trio.lowlevel.Abort.FAILED
        self._waiting.remove(read)
        return trio.lowlevel.Abort.SUCCEEDED


def _read_all(readers: Readers, batch: list[_Read], connection: sqlite3.Connection) -> None:
    left, until = MOST_BYTES, perf_counter() + MOST_SECONDS
    for read in batch:
        try:
            row = _row_of(connection, read.kind, read.key)
            left -= 0 if row is None else sys.getsizeof(row[2])
            read.found = _found(connection, row)
        except sqlite3.Error as error:
            # If one page is damaged, resources on other pages can still be read.
            read.error = unreadable(readers.path, error)
            readers.failed = _Retry(partial(read_one, kind=read.kind, key=read.key))
        except StoreUnusable as error:
            read.error = error
        if left <= 0 or perf_counter() >= until:
            # The others are read in the next transactions.
            return


def read_one(connection: sqlite3.Connection, kind: Kind, key: Key) -> Found:
    """Return one resource and the revision of the read."""
    return _found(connection, _row_of(connection, kind, key))


def _row_of(connection: sqlite3.Connection, kind: Kind, key: Key) -> Row | None:
    row: Row | None = connection.execute(sql.READ_RESOURCE, (*kind, *key)).fetchone()
    return row


def _found(connection: sqlite3.Connection, row: Row | None) -> Found:
    return (None if row is None else resource_from(*row)), read_head(connection)


def read_many(
    connection: sqlite3.Connection, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
) -> tuple[Rows, int]:
    """Return the rows within a range and behind ``after``, ordered by key, and the revision of the read."""
    queries = _queries(connection, kind, within, after)
    rows: Iterable[Row] = chain.from_iterable(connection.execute(sql.ROWS + where, values) for where, values in queries)
    if limit and within.metadata:
        rows = (row for row in rows if within.admits(resource_from(*row)))
    return Rows(islice(rows, limit or None), within), read_head(connection)


Query = tuple[str, list[str | int | bytes]]
"""A condition and the values in it."""


def read_page(
    connection: sqlite3.Connection, kind: Kind, within: Within, after: Key | None, limit: int = 0
) -> tuple[list[Row], Key | None]:
    """Return the next rows within a range and behind ``after``, ordered by key, and the last of their keys.

    The rows are at most ``limit`` if it is given, at most `SNAPSHOT_CHUNK`, and about `PAGE_BYTES`. Some may have other
    metadata. The key is None if no row is left behind them.
    """
    return _page_of(connection, _queries(connection, kind, within, after), sql.KEYS, limit)


def read_part(
    connection: sqlite3.Connection, kind: Kind, within: Within, after: Key | None, limit: int
) -> tuple[list[pb.Resource], Key | None, int]:
    """Return the resources of a page, its last key if another one may follow, and the revision of the read."""
    page, end = read_page(connection, kind, within, after, limit)
    return within.select([resource_from(*row) for row in page]), end, read_head(connection)


def read_owned_page(
    connection: sqlite3.Connection, owner_uid: str, after: FullKey | None
) -> tuple[list[Row], FullKey | None]:
    """Return the next rows that a uid owns, like `read_page`. They are of all kinds."""
    behind = "" if after is None else f" AND ({sql.FULL_KEY}) > (?, ?, ?, ?, ?)"
    query = f"{sql.OWNED}{behind} ORDER BY {sql.FULL_KEY}", [owner_uid, *(after or ())]
    return _page_of(connection, [query], f"SELECT {sql.FULL_KEY}", 0)


def _page_of(
    connection: sqlite3.Connection, queries: Iterable[Query], keys: str, limit: int
) -> tuple[list[Row], Any | None]:
    page: list[Row] = []
    size = 0
    most = min(limit or SNAPSHOT_CHUNK, SNAPSHOT_CHUNK)
    for where, values in queries:
        before = len(page)
        for row in connection.execute(sql.ROWS + where, values):
            page.append(row)
            size += sys.getsizeof(row[2])
            if size >= PAGE_BYTES or len(page) >= most:
                # To make a text of each column of each row would take longer than to find the last row again.
                last = (*values, len(page) - before - 1)
                return page, connection.execute(f"{keys}{where} LIMIT 1 OFFSET ?", last).fetchone()
    return page, None


def _queries(connection: sqlite3.Connection, kind: Kind, within: Within, after: Key | None) -> Iterator[Query]:
    """Yield conditions and their values. Together they find the rows within a range and behind ``after``, by key.

    SQLite reads no row before it is needed, because only columns that may differ are compared with ``after``. With one
    of the others among them, it would read and sort all rows first.
    """
    if within.partition == "*" and within.namespace != "*":
        # SQLite reads only the namespace in each partition.
        for partition in _partitions(connection, kind, "" if after is None else after[0]):
            yield from _queries(connection, kind, within._replace(partition=partition), after)
        return
    given = [each for each in within[:2] if each != "*"]
    where = sql.OF_KIND + "".join(f" AND {column} = ?" for column in _COLUMNS[: len(given)])
    values: list[str | int | bytes] = [*kind, *given]
    left, prefix = _COLUMNS[len(given) :], within.name_prefix
    before = given if after is None else [*after[: len(given)]]
    if before > given:
        return
    # One comparison lets SQLite find the start in the primary key.
    if after is not None and before == given and (len(left) > 1 or after[2] >= prefix):
        where += f" AND ({', '.join(left)}) > ({', '.join('?' * len(left))})"
        values += after[len(given) :]
    elif prefix:
        where += " AND name >= ?"
        values.append(prefix)
    if prefix:
        where += f" AND substr(name, 1, {len(prefix)}) = ?"
        values.append(prefix)
    for key, value in within.metadata:
        # Any other part of the body may hold the same bytes. The reader of the rows decides.
        where += " AND instr(body, ?)"
        values.append(encode(pb.Resource(metadata={key: value})))
    yield f"{where} ORDER BY {', '.join(left)}", values


_COLUMNS = ("partition", "namespace", "name")


def _partitions(connection: sqlite3.Connection, kind: Kind, first: str) -> Iterator[str]:
    """Yield the partitions of a kind from ``first`` on. It takes one step through the primary key for each."""
    found = connection.execute(sql.FIRST_PARTITION, (*kind, first)).fetchone()
    while found is not None:
        yield found[0]
        found = connection.execute(sql.NEXT_PARTITION, (*kind, *found)).fetchone()


def read_kinds(connection: sqlite3.Connection) -> list[Kind]:
    """Return the kinds that have rows, in order. It takes one step through the primary key per kind."""
    kinds: list[Kind] = []
    last: Kind = ("", "")
    while (row := connection.execute(sql.NEXT_KIND, last).fetchone()) is not None:
        last = (row[0], row[1])
        kinds.append(last)
    return kinds


def count_kinds(connection: sqlite3.Connection) -> dict[Kind, int]:
    """Return the number of rows of each kind."""
    return {(group, kind): count for group, kind, count in connection.execute(sql.COUNT_KINDS)}


def read_head(connection: sqlite3.Connection) -> int:
    """Return the revision of the last commit."""
    (head,) = connection.execute(sql.READ_HEAD).fetchone()
    assert isinstance(head, int)
    return head


def read_fences(connection: sqlite3.Connection) -> list[Fence]:
    """Return every fence, ordered by controller and member."""
    return [Fence(*row) for row in connection.execute(sql.LIST_FENCES)]


def read_session(connection: sqlite3.Connection, session: str) -> dict[str, int | None]:
    """Return the last revision of a session by its id (None: it is the current one); empty if it is unknown."""
    return dict(connection.execute(sql.READ_SESSION, (session,)).fetchall())
