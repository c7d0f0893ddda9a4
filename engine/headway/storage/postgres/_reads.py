"""Reads of resources. Each is of one revision, which it also reads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import trio

from headway.base import give_way
from headway.errors import HeadwayError, StoreUnusable
from headway.protobuf import encode
from headway.resource import Key, Kind, pb
from headway.storage._operations import Within
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._connection import Connection, Pool, Rows, Statement
from headway.storage.postgres._history import resource_from
from headway.storage.postgres._requests import check_texts

PAGE = 2000
"""The maximum number of rows in one answer."""

DECODED = 500
"""The number of resources to decode between two checkpoints: a few milliseconds."""

MOST_READ = 256
"""The maximum number of resources in one answer of gathered reads."""

Place = TypeVar("Place", bound=Hashable)
Here = tuple[str, int]
"""The session and the revision of a read."""


def rows_within(s: sql.Statements, kind: Kind, within: Within, after: Key | None, limit: int) -> Statement:
    """Return the statement for the rows within a range and behind a key, in order of key.

    Other resources than those of the metadata may be among them: the bytes may be in another part of a body.
    """
    check_texts(*kind, *within[:2], within.name_prefix, *(after or ()))
    where, values = [], dict[str, Any](group=kind[0], kind=kind[1], limit=limit, bytes=sql.ANSWER_BYTES)
    for column, value in zip(("partition", "namespace"), within[:2], strict=True):
        if value != "*":
            where.append(f"{column} = %({column})s")
            values[column] = value
    if within.name_prefix:
        where.append("name >= %(prefix)s AND starts_with(name, %(prefix)s)")
        values["prefix"] = within.name_prefix
    if after is not None:
        where.append("(partition, namespace, name) > (%(after0)s, %(after1)s, %(after2)s)")
        values.update({f"after{index}": part for index, part in enumerate(after)})
    for index, (key, value) in enumerate(within.metadata):
        where.append(f"position(%(metadata{index})s in body) > 0")
        values[f"metadata{index}"] = encode(pb.Resource(metadata={key: value}))
    conditions = "".join(f" AND {each}" for each in where)
    order = "partition, namespace, name"
    found = f"{s.rows}{conditions} ORDER BY {order} LIMIT %(limit)s"
    return f"{sql.bounded(f'revision, body, {order}', found, 'length(body)', order)} ORDER BY {order}", values


async def read(reads: GatheredReads[tuple[Kind, Key]], kind: Kind, key: Key) -> tuple[pb.Resource | None, Here]:
    """Return a resource, or None, as of a read that begins after the call."""
    check_texts(*kind, *key)
    revision, session, version, body = await reads.read((kind, key))
    return (None if body is None else resource_from(version, body)), (session, revision)


class Scan:
    """The rows within a range, read in pages on one connection, in a transaction that the caller has begun."""

    def __init__(self, s: sql.Statements, kind: Kind, within: Within, after: Key | None, limit: int = 0) -> None:
        self._sql = s
        self._kind = kind
        self._within = within
        self.after = after
        # Those with other metadata are among what is read.
        self.limit = min(limit + 1, PAGE) if limit and not within.metadata else PAGE
        self.done = False

    def statement(self) -> Statement:
        """Return the statement for the next page."""
        return rows_within(self._sql, self._kind, self._within, self.after, self.limit)

    def took(self, rows: Rows) -> list[tuple[int, bytes]]:
        """Note the rows of a page, and return their revisions and bodies."""
        self.done = len(rows) < self.limit and sum([len(row[1]) for row in rows]) < sql.ANSWER_BYTES
        if rows:
            self.after = (rows[-1][2], rows[-1][3], rows[-1][4])
        return [(row[0], row[1]) for row in rows]


async def begin_scan(connection: Connection, s: sql.Statements, scan: Scan) -> tuple[Here, list[tuple[int, bytes]]]:
    """Begin a transaction of one revision, and read the first page in the same round trip."""
    _, [(revision, session)], rows = await connection.ask((sql.BEGIN_READ, {}), (s.here, {}), scan.statement())
    return (session, revision), scan.took(rows)


async def read_rows(
    readers: Pool, s: sql.Statements, kind: Kind, within: Within, after: Key | None = None, limit: int = 0
) -> tuple[list[list[tuple[int, bytes]]], Here]:
    """Read the rows within a range, in pages, at one revision: all, or as many as ``limit`` resources may need."""
    scan = Scan(s, kind, within, after, limit)
    async with readers.connection() as connection:
        here, page = await begin_scan(connection, s, scan)
        pages = [page]
        while not scan.done and not (limit and not within.metadata and sum(map(len, pages)) >= limit):
            [rows] = await connection.ask(scan.statement())
            pages.append(scan.took(rows))
        await connection.ask((sql.COMMIT, {}))
    return pages, here


async def decoded(rows: Iterable[tuple[int, bytes]], within: Within = Within()) -> list[pb.Resource]:  # noqa: B008  # immutable
    """Return the resources of rows, without those of other metadata."""
    found: list[pb.Resource] = []
    for number, row in enumerate(rows, 1):
        found.append(resource_from(*row))
        if number % DECODED == 0:
            await give_way()
    return within.select(found) if within.metadata else found


async def list_part(
    readers: Pool, s: sql.Statements, kind: Kind, within: Within, after: Key | None, limit: int
) -> tuple[list[pb.Resource], Key | None, Here]:
    """Return the next resources within a range, the key to go on behind (None at the end), and where they were read."""
    scan = Scan(s, kind, within, after, limit)
    async with readers.connection() as connection:
        here, rows = await begin_scan(connection, s, scan)
        await connection.ask((sql.COMMIT, {}))
    found = await decoded(rows, within)
    if limit and len(found) > limit:
        found = found[:limit]
        last = found[-1].id
        assert last is not None
        assert last.tenancy is not None
        return found, (last.tenancy.partition, last.tenancy.namespace, last.name), here
    return found, None if scan.done else scan.after, here


async def list_all(
    readers: Pool, s: sql.Statements, kind: Kind, within: Within, after: Key | None, limit: int
) -> tuple[list[pb.Resource], Here]:
    """Return the resources within a range and behind a key, at most ``limit`` of them unless that is 0."""
    pages, here = await read_rows(readers, s, kind, within, after, limit)
    found = await decoded(chain.from_iterable(pages), within)
    return found[:limit] if limit else found, here


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

    async def read(self, place: Place) -> tuple[Any, ...]:
        """Return a row as of a read that begins after the call."""
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
                waiting, self._waiting, self._wake = self._waiting, {}, trio.Event()
                places = list(waiting)
                for at in range(0, len(places), MOST_READ):
                    await self._read({place: waiting[place] for place in places[at : at + MOST_READ]})
        finally:
            for reads in self._waiting.values():
                for each in reads:
                    each.fail(StoreUnusable("the store is closed"))

    async def _read(self, waiting: dict[Place, list[_Read]]) -> None:
        reads = [each for some in waiting.values() for each in some]
        try:
            [rows] = await self._readers.ask(self._statement(waiting))
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


async def list_owned(readers: Pool, s: sql.Statements, uid: str) -> tuple[Sequence[pb.Resource], Here]:
    """Return the resources that a uid owns, in order of kind and key."""
    check_texts(uid)
    _, [(revision, session)], rows, _ = await readers.ask(
        (sql.BEGIN_READ, {}), (s.here, {}), (s.owned, {"uid": uid}), (sql.COMMIT, {})
    )
    return await decoded([(row[0], row[1]) for row in rows]), (session, revision)
