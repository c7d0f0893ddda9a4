"""Connections to PostgreSQL on Trio: psycopg's generators say what they wait for, and Trio waits for it."""

from __future__ import annotations

import select
import socket
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from struct import pack
from typing import Any, TypeVar, cast

import psycopg
import trio
from psycopg import errors as pg_errors
from psycopg import pq
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typing_extensions import override

from headway.errors import HeadwayError, InvalidArgument, OutcomeUnknown, StoreUnusable, Unavailable, WriteRejected

CALL_TIMEOUT = 10.0
"""The seconds after which a statement, or an attempt to connect, counts as failed."""

_GRACE = 0.5
"""The seconds for which a canceled call waits for its answer, so that the connection can be used again."""

Result = TypeVar("Result")
Rows = list[tuple[Any, ...]]
Statement = tuple[str, Mapping[str, Any]]
"""A statement and its parameters."""


class _Pipeline(psycopg.AsyncPipeline):
    """A pipeline that ends with a Sync, not with a Flush behind it.

    That would stop the clock of idle_in_transaction_session_timeout.
    """

    @override
    def _fetch_gen(self, *, flush: bool) -> Any:
        return super()._fetch_gen(flush=False)


class Connection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that waits on Trio. One task uses it at a time.

    It relies on names of psycopg that its documentation does not have: `wait`, which every method of a connection
    passes its generator to, `_connect_gen`, `_pipeline` and `_fetch_gen`. A test notices if one of them goes.

    Attributes:
        outdated: returns True if the server is no longer the one that the store is on.
    """

    outdated: Callable[[], bool] = staticmethod(lambda: False)

    @override
    async def wait(
        self, gen: Generator[Any, Any, Result], interval: float = 0.0, timeout: float | None = None
    ) -> Result:
        return await _drive(gen, self.pgconn.socket, self.pgconn.finish)

    async def ask(self, *statements: Statement) -> list[Rows]:
        """Run statements in one round trip, and return the rows of each. What fails behind a COMMIT raises nothing."""
        with trio.move_on_after(CALL_TIMEOUT):
            if len(statements) == 1:
                return [await _rows(await self._run(*statements[0]))]
            return await self._ask_all(statements)
        self.drop()
        raise psycopg.OperationalError(f"no answer within {CALL_TIMEOUT:g} s")

    async def _ask_all(self, statements: Sequence[Statement]) -> list[Rows]:
        failed: BaseException | None = None
        cursors: list[psycopg.AsyncCursor[tuple[Any, ...]]] = []
        try:
            self._pipeline = _Pipeline(self)
            async with self._pipeline:
                try:
                    for each in statements:
                        cursors.append(await self._run(*each))  # those before a failure count
                except BaseException as error:  # noqa: BLE001  # raised below: psycopg would log what it meets at the end
                    failed = error
        except psycopg.Error as error:
            failed = failed or error
        finally:
            self._pipeline = None
        committed = any(each.statusmessage == "COMMIT" for each in cursors)
        if failed is not None and not (committed and isinstance(failed, psycopg.Error)):
            raise failed
        return [await _rows(each) for each in cursors]

    async def _run(self, statement: str, values: Mapping[str, Any]) -> psycopg.AsyncCursor[tuple[Any, ...]]:
        return await self.execute(statement, values or None, binary=True)

    def warn(self) -> list[str]:
        """Return a list to which the warnings of the server are added from now on."""
        warnings: list[str] = []
        self.add_notice_handler(lambda each: warnings.append(each.message_primary or ""))
        return warnings

    def hear(self, heard: set[str]) -> None:
        """Add the payloads of all notifications from now on to a set."""
        self.add_notify_handler(lambda each: heard.add(each.payload))
        self._heard = heard

    async def until_notified(self) -> None:
        """Wait until the server has sent something. Notifications that came with an answer are not waited for."""
        await trio.lowlevel.wait_readable(self.pgconn.socket)
        self.pgconn.consume_input()
        while (each := self.pgconn.notifies()) is not None:
            self._heard.add(each.extra.decode(errors="replace"))

    @property
    def is_idle(self) -> bool:
        """True if it can be used for another call. From a server that has ended it, there is something to read."""
        return (
            not self.closed
            and not self.outdated()
            and self.pgconn.transaction_status == pq.TransactionStatus.IDLE
            and not _is_ready(self.pgconn.socket, select.POLLIN)
        )

    def drop(self) -> None:
        """Close the connection at once. The server ends what is under way on it."""
        self.pgconn.finish()


async def _rows(cursor: psycopg.AsyncCursor[tuple[Any, ...]]) -> Rows:
    return await cursor.fetchall() if cursor.description is not None else []


async def _drive(gen: Generator[Any, Any, Result], fileno: int, drop: Callable[[], None]) -> Result:
    try:
        state = next(gen)
        while True:
            try:
                ready = await _wait(fileno, state)
            except trio.Cancelled:
                # The answer may be on its way. Without it the connection is of no more use.
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _GRACE):
                    while True:
                        state = gen.send(await _wait(fileno, state))
                drop()
                raise
            state = gen.send(ready)
    except StopIteration as end:
        result: Result = end.value
        return result


async def _wait(fileno: int, state: int) -> int:
    """Wait until a socket is ready for one of what psycopg waits for, and return for what."""
    if state & psycopg.waiting.WAIT_W:
        # Nearly always at once.
        if _is_ready(fileno, select.POLLOUT):
            return psycopg.waiting.READY_W
        if not state & psycopg.waiting.WAIT_R:
            await trio.lowlevel.wait_writable(fileno)
            return psycopg.waiting.READY_W
        return await _wait_either(fileno)
    await trio.lowlevel.wait_readable(fileno)
    return psycopg.waiting.READY_R


def _is_ready(fileno: int, what: int) -> bool:
    poll = select.poll()
    poll.register(fileno, what)
    return bool(poll.poll(0))


async def _wait_either(fileno: int) -> int:
    ready = 0

    async def wait(function: Callable[[int], Any], what: int) -> None:
        nonlocal ready
        await function(fileno)
        ready |= what
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, trio.lowlevel.wait_readable, psycopg.waiting.READY_R)
        nursery.start_soon(wait, trio.lowlevel.wait_writable, psycopg.waiting.READY_W)
    return ready


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
                made = await _connected(make_conninfo("", **attempt))
                await made.set_autocommit(True)
                return made
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
    gen = Connection._connect_gen(conninfo)  # see `Connection`
    try:
        fileno, state = next(gen)
        while True:
            fileno, state = gen.send(cast("Any", await _wait(fileno, state)))
    except StopIteration as end:
        made: Connection = end.value
        for column, dumper in ((Texts, _TextsDumper), (Numbers, _NumbersDumper), (Bodies, _BodiesDumper)):
            made.adapters.register_dumper(column, dumper)
        return made


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
    text = " ".join(str(error).split())
    if isinstance(error, psycopg.DataError) and error.sqlstate is None:
        return InvalidArgument(text)
    if error.sqlstate is None or error.diag.severity_nonlocalized != "ERROR":
        # The connection has ended. An error in a transaction, or of a COMMIT, undoes all of it.
        made = OutcomeUnknown(f"the connection to {where} has ended while a commit was being made: {text}")
        return made if writing else Unavailable(f"the connection to {where} has ended: {text}")
    if isinstance(error, pg_errors.InsufficientPrivilege):
        return StoreUnusable(
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
    """A column of texts for `unnest`. psycopg would look at each element to find its type, at ten times the cost."""


class Numbers(list[int]):
    """A column of whole numbers."""


class Bodies(list[bytes]):
    """A column of bytes."""


class _TextsDumper(Dumper):
    format = pq.Format.BINARY
    oid = 1009

    @override
    def dump(self, obj: Texts) -> bytes:
        return _array(25, [each.encode() for each in obj])


class _NumbersDumper(Dumper):
    format = pq.Format.BINARY
    oid = 1016

    @override
    def dump(self, obj: Numbers) -> bytes:
        return _array(20, [each.to_bytes(8, signed=True) for each in obj])


class _BodiesDumper(Dumper):
    format = pq.Format.BINARY
    oid = 1001

    @override
    def dump(self, obj: Bodies) -> bytes:
        return _array(17, obj)


def _array(oid: int, values: list[bytes]) -> bytes:
    """Return an array of one dimension in PostgreSQL's binary format."""
    parts = [pack("!5i", 1, 0, oid, len(values), 1)]
    for value in values:
        parts.append(len(value).to_bytes(4))
        parts.append(value)
    return b"".join(parts)


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
