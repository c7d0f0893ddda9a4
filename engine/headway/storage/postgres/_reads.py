"""Reads of resources. Each is of one revision, which it also reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

import trio

from headway.base import give_way
from headway.errors import HeadwayError, StoreUnusable
from headway.resource import Key, Kind, pb
from headway.storage._operations import Within
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._connection import Connection, Pool, Rows, Statement, only
from headway.storage.postgres._history import resource_from
from headway.storage.postgres._requests import check_texts, metadata_column, size_of

PAGE = 2000
"""The maximum number of rows in one answer."""

DECODED = 500
"""The number of resources to decode between two checkpoints: a few milliseconds."""

MOST_READ = 256
"""The maximum number of resources in one answer of gathered reads."""

Place = TypeVar("Place", bound=Hashable)
Here = tuple[str, int]
"""The session and the revision of a read."""


def rows_within(s: sql.Statements, kind: Kind, within: Within, after: Sequence[str] | None, limit: int) -> Statement:
    """Return the statement for the rows within a range and behind a key, in order of key."""
    check_texts(*kind, *within[:2], within.name_prefix, *(after or ()))
    where = ["type_group = %(group)s", "kind = %(kind)s"]
    values = dict[str, Any](group=kind[0], kind=kind[1])
    for column, value in zip(("partition", "namespace"), within[:2], strict=True):
        if value != "*":
            where.append(f"{column} = %({column})s")
            values[column] = value
    if within.name_prefix:
        where.append("name >= %(prefix)s AND starts_with(name, %(prefix)s)")
        values["prefix"] = within.name_prefix
    if within.metadata:
        where.append("metadata @> %(metadata)s::jsonb")
        values["metadata"] = metadata_column(within.metadata)
        size_of(values["metadata"])
    return _rows(s, where, values, ("partition", "namespace", "name"), after, limit)


def rows_owned(s: sql.Statements, uid: str, after: Sequence[str] | None, limit: int) -> Statement:
    """Return the statement for the rows that a uid owns, behind a kind and key, in order of kind and key."""
    check_texts(uid)
    where = ["owner_uid = %(uid)s", "owner_uid <> ''"]
    return _rows(s, where, {"uid": uid}, ("type_group", "kind", "partition", "namespace", "name"), after, limit)


def _rows(
    s: sql.Statements,
    where: list[str],
    values: dict[str, Any],
    columns: Sequence[str],
    after: Sequence[str] | None,
    limit: int,
) -> Statement:
    """Return the statement for the first rows under some conditions, in order of these columns, up to some bytes."""
    order = ", ".join(columns)
    if after is not None:
        given = {f"after{index}": part for index, part in enumerate(after)}
        where = [*where, f"({order}) > ({', '.join(f'%({each})s' for each in given)})"]
        values = {**values, **given}
    found = f"{s.rows} {' AND '.join(where)} ORDER BY {order} LIMIT %(limit)s"
    statement = f"{sql.bounded(f'revision, body, {order}', found, 'length(body)', order)} ORDER BY {order}"
    return statement, {**values, "limit": limit, "bytes": sql.ANSWER_BYTES}


async def read(reads: GatheredReads[tuple[Kind, Key]], kind: Kind, key: Key) -> tuple[pb.Resource | None, Here]:
    """Return a resource, or None, as of a read that begins after the call."""
    check_texts(*kind, *key)
    revision, session, version, body = await reads.read((kind, key))
    return (None if body is None else resource_from(version, body)), (session, revision)


class Scan:
    """Rows that are read in pages on one connection, in a transaction that the caller has begun.

    Args:
        page: returns the statement for at most a number of rows behind some columns.
        after: read only what is behind these.
        limit: the number of rows that are wanted; 0 for all.
    """

    def __init__(
        self, page: Callable[[Sequence[str] | None, int], Statement], after: Sequence[str] | None = None, limit: int = 0
    ) -> None:
        self._page = page
        self.after = after
        self.wanted = limit
        self.limit = min(limit + 1, PAGE) if limit else PAGE
        self.done = False

    def statement(self) -> Statement:
        """Return the statement for the next page."""
        return self._page(self.after, self.limit)

    def took(self, rows: Rows) -> list[tuple[int, bytes]]:
        """Note the rows of a page, and return their revisions and bodies."""
        self.done = len(rows) < self.limit and sum([len(row[1]) for row in rows]) < sql.ANSWER_BYTES
        if rows:
            self.after = rows[-1][2:]
        return [(row[0], row[1]) for row in rows]


async def begin_scan(connection: Connection, s: sql.Statements, scan: Scan) -> tuple[Here, list[tuple[int, bytes]]]:
    """Begin a transaction of one revision, and read the first page in the same round trip."""
    _, stores, rows = await connection.ask((sql.BEGIN_READ, {}), (s.here, {}), scan.statement())
    revision, session = only(stores)
    return (session, revision), scan.took(rows)


async def read_rows(readers: Pool, s: sql.Statements, scan: Scan) -> tuple[deque[list[tuple[int, bytes]]], Here]:
    """Read the rows of a scan, in pages, at one revision: all, or at least as many as are wanted."""
    async with readers.connection() as connection:
        here, page = await begin_scan(connection, s, scan)
        pages = deque([page])
        while not scan.done and not (scan.wanted and sum(map(len, pages)) >= scan.wanted):
            [rows] = await connection.ask(scan.statement())
            pages.append(scan.took(rows))
        await connection.ask((sql.COMMIT, {}))
    return pages, here


async def decoded(rows: Iterable[tuple[int, bytes]]) -> list[pb.Resource]:
    """Return the resources of rows."""
    found: list[pb.Resource] = []
    for number, row in enumerate(rows, 1):
        found.append(resource_from(*row))
        if number % DECODED == 0:
            await give_way()
    return found


async def list_part(
    readers: Pool, s: sql.Statements, kind: Kind, within: Within, after: Key | None, limit: int
) -> tuple[list[pb.Resource], Key | None, Here]:
    """Return the next resources within a range, the key to go on behind (None at the end), and where they were read."""
    scan = Scan(partial(rows_within, s, kind, within), after, limit)
    async with readers.connection() as connection:
        here, rows = await begin_scan(connection, s, scan)
        await connection.ask((sql.COMMIT, {}))
    found = await decoded(rows)
    if limit and len(found) > limit:
        found = found[:limit]
        last = found[-1].id
        assert last is not None
        assert last.tenancy is not None
        return found, (last.tenancy.partition, last.tenancy.namespace, last.name), here
    return found, None if scan.done else cast("Key", scan.after), here


async def list_all(readers: Pool, s: sql.Statements, scan: Scan) -> tuple[list[pb.Resource], Here]:
    """Return the resources of a scan, no more than are wanted."""
    pages, here = await read_rows(readers, s, scan)
    found = await decoded(row for page in _drained(pages) for row in page)
    return found[: scan.wanted or None], here


def _drained(pages: deque[list[tuple[int, bytes]]]) -> Iterator[list[tuple[int, bytes]]]:
    # Bytes and resources together would take twice the memory.
    while pages:
        yield pages.popleft()


class GatheredReads(Generic[Place]):
    """Reads of single rows: those that arrive during one share the next one.

    Args:
        readers: the connections.
        statement: returns the statement for the rows at some places, in their order.
    """

    def __init__(self, readers: Pool, statement: Callable[[Iterable[Place]], Statement]) -> None:
        self._readers = readers
        self._statement = statement
        self._waiting: dict[Place, list[_Read]] = {}
        self._wake = trio.Event()
        self._closed = False

    async def read(self, place: Place) -> tuple[Any, ...]:
        """Return a row as of a read that begins after the call."""
        if self._closed:
            raise StoreUnusable("the store is closed")
        mine = _Read()
        self._waiting.setdefault(place, []).append(mine)
        self._wake.set()
        await mine.done.wait()
        if mine.error is not None:
            raise mine.error
        return mine.row

    async def run(self) -> None:
        """Make the reads, until canceled."""
        try:
            while True:
                await self._wake.wait()
                # Those that the last answer has woken come within a turn.
                await trio.lowlevel.checkpoint()
                places = list(self._waiting)
                self._wake = trio.Event()
                for at in range(0, len(places), MOST_READ):
                    await self._read({place: self._waiting.pop(place) for place in places[at : at + MOST_READ]})
        finally:
            self._closed = True
            for reads in self._waiting.values():
                for each in reads:
                    each.fail(StoreUnusable("the store is closed"))

    async def _read(self, waiting: dict[Place, list[_Read]]) -> None:
        reads = [each for some in waiting.values() for each in some]
        try:
            [rows] = await self._readers.ask(self._statement(waiting))
            only(rows)
            for some, row in zip(waiting.values(), rows, strict=True):
                for each in some:
                    each.row = row
        except HeadwayError as error:
            for each in reads:
                each.error = type(error)(*error.args)
        except BaseException:
            for each in reads:
                each.error = StoreUnusable("the store is closed")
            raise
        finally:
            for each in reads:
                each.done.set()


class _Read:
    """A read of one caller."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.row: tuple[Any, ...] = ()
        self.error: HeadwayError | None = None

    def fail(self, error: HeadwayError) -> None:
        self.error = error
        self.done.set()
