"""Connections to PostgreSQL on Trio: psycopg's wrapper of libpq, which never blocks, and Trio waits for its socket."""

from __future__ import annotations

import re
import select
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from itertools import chain, count, zip_longest
from typing import Any

import psycopg
import trio
from psycopg import errors as pg_errors
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headway.errors import HeadwayError, InvalidArgument, OutcomeUnknown, StoreUnusable, Unavailable, WriteRejected

CALL_TIMEOUT = 10.0
"""The seconds after which a statement, or an attempt to connect, counts as failed."""

_GRACE = 0.5
"""The seconds for which a canceled call waits for its answer, so that the connection can be used again."""


class NotPermitted(StoreUnusable, Unavailable):
    """The server does not permit it to this user. It can be used again, without a restart, once the user may do it."""


Rows = list[tuple[Any, ...]]
Statement = tuple[str, Mapping[str, Any]]
"""A statement and its parameters."""


class Connection:
    """A connection that waits on Trio. One task uses it at a time.

    Each call is a pipeline of statements with a Sync at its end. psycopg's own pipelines have a Flush behind that,
    which would stop the clock of idle_in_transaction_session_timeout. With its
    cursors, they took a third of the processor time of a write.

    Args:
        pgconn: the open connection.

    Attributes:
        outdated: returns True if the server is no longer the one that the store is on.
        warnings: what the server has warned of.
    """

    outdated: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn = pgconn
        self._loading = Transformer()
        self._prepared: dict[_Shape, bytes] = {}
        self._names = count()
        self.warnings: list[str] = []
        self._heard: set[str] = set()
        pgconn.nonblocking = 1
        pgconn.enter_pipeline_mode()
        pgconn.notice_handler = self._notice

    async def ask(self, *statements: Statement) -> list[Rows]:
        """Run statements in one round trip, and return the rows of each. What fails behind a COMMIT raises nothing."""
        with trio.CancelScope(deadline=trio.current_time() + CALL_TIMEOUT):
            return await self._ask(statements)
        self.drop()
        raise psycopg.OperationalError(f"no answer within {CALL_TIMEOUT:g} s")

    async def _ask(self, statements: Sequence[Statement]) -> list[Rows]:
        prepares = self._send([(query, *_dumped(query, values)) for query, values in statements])
        results: list[pq.abc.PGresult] = []
        try:
            broken = await self._receive(results)
        except trio.Cancelled:
            # The answer may be on its way. Without it the connection is of no more use.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _GRACE) as patience:
                broken = await self._receive(results)
            if patience.cancelled_caught:
                self.drop()
                raise
        rows: list[Rows] = []
        committed = False
        # What fails at the Sync, which commits without a COMMIT, has a result behind all others.
        for prepared, result in zip_longest(prepares, results):
            if result is None:
                break
            if result.status in _FAILED:
                broken = pg_errors.error_from_result(result)
                break
            if prepared is not None:
                self._prepared.update([prepared])
                continue
            committed = committed or result.command_status == b"COMMIT"
            self._loading.set_pgresult(result, format=pq.Format.BINARY)
            rows.append(self._loading.load_rows(0, result.ntuples, tuple))
        if broken is not None and not committed:
            raise broken
        return rows

    def _send(
        self, statements: Sequence[tuple[str, tuple[int, ...], list[bytes]]]
    ) -> list[tuple[_Shape, bytes] | None]:
        """Send statements. Return what each result prepares in the server, at its first use; None for an answer."""
        prepares: list[tuple[_Shape, bytes] | None] = []
        pgconn, new = self._pgconn, dict[_Shape, bytes]()
        for query, oids, values in statements:
            shape = (query, oids)
            name = self._prepared.get(shape) or new.get(shape)
            if name is None:
                name = new[shape] = b"h%d" % next(self._names)
                pgconn.send_prepare(name, _numbered(query)[0], oids)
                prepares.append((shape, name))
            pgconn.send_query_prepared(name, values, [pq.Format.BINARY] * len(values), pq.Format.BINARY)
            prepares.append(None)
        pgconn.pipeline_sync()
        return prepares

    async def _receive(self, results: list[pq.abc.PGresult]) -> psycopg.Error | None:
        """Add the results up to the Sync to a list. Return why there are no more, if the connection ends before."""
        pgconn = self._pgconn
        try:
            while pgconn.flush():
                await _wait_either(pgconn.socket)
                self._consume()
            while True:
                while pgconn.is_busy():
                    await trio.lowlevel.wait_readable(pgconn.socket)
                    self._consume()
                result = pgconn.get_result()
                if result is None:
                    # Each result has a None behind it. So has each connection that has ended.
                    if pgconn.status == pq.ConnStatus.BAD:
                        return psycopg.OperationalError(pgconn.get_error_message())
                elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                    self._take_notifications()
                    return None
                else:
                    results.append(result)
        except psycopg.Error as error:
            return error

    def _consume(self) -> None:
        self._pgconn.consume_input()
        self._take_notifications()

    def _take_notifications(self) -> None:
        while (each := self._pgconn.notifies()) is not None:
            self._heard.add(each.extra.decode(errors="replace"))

    def _notice(self, result: pq.abc.PGresult) -> None:
        text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        self.warnings.append(text.decode(errors="replace"))

    def hear(self, heard: set[str]) -> None:
        """Add the payloads of all notifications from now on to a set."""
        self._heard = heard

    async def until_notified(self) -> None:
        """Wait until the server has sent something. Notifications that came with an answer are not waited for."""
        await trio.lowlevel.wait_readable(self._pgconn.socket)
        self._consume()

    @property
    def closed(self) -> bool:
        """True if it has ended."""
        return self._pgconn.status == pq.ConnStatus.BAD

    @property
    def is_idle(self) -> bool:
        """True if it can be used for another call. From a server that has ended it, there is something to read."""
        return (
            not self.closed
            and not self.outdated()
            and self._pgconn.transaction_status == pq.TransactionStatus.IDLE
            and not _is_ready(self._pgconn.socket, select.POLLIN)
        )

    @property
    def process(self) -> int:
        """The process id of the server's end."""
        return self._pgconn.backend_pid

    def drop(self) -> None:
        """Close the connection at once. The server ends what is under way on it."""
        self._pgconn.finish()


def only(rows: Rows) -> tuple[Any, ...]:
    """Return the row of the store. Raise Unavailable if it is missing, as while somebody restores the tables."""
    if not rows:
        raise Unavailable("the store has no row in its table now: it may come back")
    return rows[0]


_Shape = tuple[str, tuple[int, ...]]
"""A statement with the types of its values, which is what a server prepares."""

_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED)


@lru_cache(1024)
def _numbered(query: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with numbered parameters, and their names in that order."""
    names: dict[str, int] = {}
    text = re.sub(r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", query)
    return text.encode(), tuple(names)


def _dumped(query: str, values: Mapping[str, Any]) -> tuple[tuple[int, ...], list[bytes]]:
    """Return the types of the values of a statement, and the values. Raises DataError."""
    try:
        dumped = [
            (oid, dump(value))
            for value in map(values.__getitem__, _numbered(query)[1])
            for oid, dump in [_DUMPS[type(value)]]
        ]
    except (struct.error, UnicodeEncodeError) as error:
        raise psycopg.DataError(f"a value cannot be sent to PostgreSQL: {error}") from None
    return tuple(oid for oid, _ in dumped), [value for _, value in dumped]


def _is_ready(fileno: int, what: int) -> bool:
    poll = select.poll()
    poll.register(fileno, what)
    return bool(poll.poll(0))


async def _wait_either(fileno: int) -> None:
    """Wait until a socket can be read or written."""

    async def wait(function: Callable[[int], Awaitable[None]]) -> None:
        await function(fileno)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, trio.lowlevel.wait_readable)
        nursery.start_soon(wait, trio.lowlevel.wait_writable)


async def connect(parameters: Mapping[str, str], where: str) -> Connection:
    """Connect to the first of the hosts that accepts writes.

    Raises:
        Unavailable: none can be reached, or accepts writes.
        StoreUnusable: the server refuses this user, or does not have the database.
    """
    failures: list[psycopg.Error | OSError] = []
    for attempt in await _attempts(parameters, failures):
        with trio.move_on_after(CALL_TIMEOUT) as patience:
            try:
                return await _connected(make_conninfo("", **{**attempt, "client_encoding": "utf8"}))
            except psycopg.Error as error:
                failures.append(error)
        if patience.cancelled_caught:
            failures.append(psycopg.OperationalError(f"{attempt.get('host', 'the server')} did not answer"))
    texts = list(dict.fromkeys(" ".join(str(each).split()) for each in failures))
    text = f"{where} can't be reached: {'; '.join(texts)}"
    codes = {each.sqlstate for each in failures if isinstance(each, psycopg.Error)}
    # What libpq says while it connects has no SQLSTATE.
    refused = codes & {"28000", "28P01", "3D000", "42501"} or any(each in text for each in _REFUSALS)
    raise (StoreUnusable if refused else Unavailable)(text)


_REFUSALS = ("password authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist")


async def _connected(conninfo: str) -> Connection:
    pgconn = pq.PGconn.connect_start(conninfo.encode())
    try:
        while pgconn.status != pq.ConnStatus.BAD:
            polled = pgconn.connect_poll()
            if polled == pq.PollingStatus.OK:
                return Connection(pgconn)
            if polled == pq.PollingStatus.READING:
                await trio.lowlevel.wait_readable(pgconn.socket)
            elif polled == pq.PollingStatus.WRITING:
                await trio.lowlevel.wait_writable(pgconn.socket)
        raise psycopg.OperationalError(pgconn.get_error_message())
    except BaseException:
        pgconn.finish()
        raise


async def _attempts(parameters: Mapping[str, str], failures: list[psycopg.Error | OSError]) -> list[dict[str, str]]:
    """Return the parameters of each attempt. Names are looked up here, because libpq would block for it."""
    hosts, ports = parameters.get("host", ""), parameters.get("port", "").split(",")
    if not hosts or "hostaddr" in parameters:
        return [dict(parameters)]
    found: list[dict[str, str]] = []
    for index, host in enumerate(hosts.split(",")):
        port = ports[min(index, len(ports) - 1)]
        one = {**parameters, "host": host, **({"port": port} if port else {})}
        if not host or host.startswith(("/", "@")):
            found.append(one)
            continue
        try:
            resolved = await trio.socket.getaddrinfo(host, port or 5432, type=socket.SOCK_STREAM)
        except OSError as error:
            failures.append(OSError(f"{host}: {error.strerror or error}"))
            continue
        found += [{**one, "hostaddr": str(address[0])} for *_, address in resolved]
    return found


def checked_parameters(given: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return what libpq makes of a URL and of further parameters. Raises InvalidArgument."""
    try:
        found = conninfo_to_dict(make_conninfo(given, **options))
        return {key: str(value) for key, value in found.items() if value is not None}
    except psycopg.Error as error:
        raise InvalidArgument(" ".join(str(error).split())) from None


def known_options() -> list[str]:
    """Return the names of libpq's options."""
    return [each.keyword.decode() for each in pq.Conninfo.get_defaults()]


def refused_value(parameters: Mapping[str, str]) -> str:
    """Return why libpq refuses a value before it connects; empty if it refuses none."""
    hosts = parameters.get("host") or parameters.get("hostaddr") or ""
    # Nothing listens there, and with a password, libpq looks for none in a file.
    nowhere = {**parameters, "host": ",".join("/" for _ in hosts.split(",")), "password": "-"}
    for name in ("hostaddr", "service"):
        nowhere.pop(name, None)
    connection = pq.PGconn.connect_start(make_conninfo("", **nowhere).encode())
    why = " ".join(connection.error_message.decode(errors="replace").split())
    connection.finish()
    return why if why.startswith(("invalid ", "could not match ", "weak ")) else ""


@contextmanager
def understood(where: str, *, writing: bool = False) -> Any:
    """Raise the errors of psycopg in the block as those of a store.

    Args:
        where: the address of the server.
        writing: True if a commit may be under way, so that it is not known whether it has happened.
    """
    try:
        yield
    except psycopg.Error as error:
        # The text is that of the cause. What libpq was doing says nothing more to whoever reads a log.
        raise _explained(where, error, writing=writing) from None


def _explained(where: str, error: psycopg.Error, *, writing: bool) -> HeadwayError:
    # Without the statement, and what in it the server points to.
    text = " ".join((error.diag.message_primary or str(error)).split())
    if isinstance(error, psycopg.DataError) and error.sqlstate is None:
        return InvalidArgument(text)
    if error.sqlstate is None or error.diag.severity_nonlocalized != "ERROR":
        # The connection has ended. An error in a transaction, or of a COMMIT, undoes all of it.
        made = OutcomeUnknown(f"the connection to {where} has ended while a commit was being made: {text}")
        return made if writing else Unavailable(f"the connection to {where} has ended: {text}")
    if isinstance(error, pg_errors.InsufficientPrivilege):
        # As in the middle of a restore, which grants at its end.
        return NotPermitted(
            f"{where} does not permit it: {text}; docs/guides/postgres.md has the rights that are needed"
        )
    if isinstance(error, pg_errors.UndefinedTable | pg_errors.InvalidSchemaName):
        # It may come back, as when an administrator restores it.
        return Unavailable(f"the store at {where} is not there: {text}")
    if isinstance(error, pg_errors.UndefinedColumn):
        return StoreUnusable(f"the store at {where} is of another program: {text}")
    if isinstance(error, pg_errors.ReadOnlySqlTransaction):
        return Unavailable(f"{where} accepts no writes: {text}")
    if error.sqlstate[:2] in ("0A", "42"):
        return StoreUnusable(f"{where} cannot do it: {text} (SQLSTATE {error.sqlstate})")
    if error.sqlstate[:2] in ("53", "58"):
        return WriteRejected(f"{where} could not write: {text}. Nothing was written")
    # All others may pass, such as the end of a deadlock.
    return Unavailable(f"{where} has given up: {text} (SQLSTATE {error.sqlstate}). Nothing was written")


class Texts(list[str]):
    """A column of texts for `unnest`."""


class Numbers(list[int]):
    """A column of whole numbers."""


class Bodies(list[bytes]):
    """A column of bytes."""


_LENGTH = struct.Struct("!i").pack
_NUMBER = struct.Struct("!q").pack


def _array(oid: int, values: Sequence[bytes]) -> bytes:
    """Return an array of one dimension in PostgreSQL's binary format."""
    elements = chain.from_iterable(zip(map(_LENGTH, map(len, values)), values, strict=True))
    return b"".join((struct.pack("!5i", 1, 0, oid, len(values), 1), *elements))


_BOOL, _BYTEA, _INT8, _TEXT, _FLOAT8 = 16, 17, 20, 25, 701

_DUMPS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    bool: (_BOOL, lambda value: b"\1" if value else b"\0"),
    bytes: (_BYTEA, bytes),
    int: (_INT8, _NUMBER),
    str: (_TEXT, str.encode),
    float: (_FLOAT8, struct.Struct("!d").pack),
    Bodies: (1001, lambda values: _array(_BYTEA, values)),
    Numbers: (1016, lambda values: _array(_INT8, list(map(_NUMBER, values)))),
    Texts: (1009, lambda values: _array(_TEXT, list(map(str.encode, values)))),
}
"""The type of PostgreSQL for each type of value, and its binary format."""


class Pool:
    """Connections that are lent to one task at a time.

    Args:
        open: opens a connection.
        where: the address of the server.
        most: the number of connections; further tasks wait.
    """

    def __init__(self, open: Callable[[], Any], where: str, most: int) -> None:
        self._open = open
        self._where = where
        self._free: list[Connection] = []
        self._limiter = trio.CapacityLimiter(most)
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection. One that is not idle afterwards is closed."""
        async with self._lent():
            # The oldest is first, so that none stays that is of no more use.
            while self._free and not self._free[0].is_idle:
                self._free.pop(0).drop()
            if self._closed:
                raise StoreUnusable(f"the store at {self._where} is closed")
            made = self._free.pop(0) if self._free else await self._open()
            try:
                with understood(self._where):
                    yield made
            finally:
                if made.is_idle and not self._closed:
                    self._free.append(made)
                else:
                    made.drop()

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[None]:
        borrower = object()
        await self._limiter.acquire_on_behalf_of(borrower)
        try:
            yield
        finally:
            self._limiter.release_on_behalf_of(borrower)

    async def ask(self, *statements: Statement) -> list[Rows]:
        """Run statements on one connection, in one round trip, and return the rows of each."""
        async with self.connection() as connection:
            return await connection.ask(*statements)

    def close(self) -> None:
        """Close the connections: those that are lent, when they are given back."""
        self._closed = True
        while self._free:
            self._free.pop().drop()
