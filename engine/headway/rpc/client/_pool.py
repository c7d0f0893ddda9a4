"""The connection pool of a channel. It opens a connection when no other has room, and fails over to other servers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.exceptions import StreamTerminatedError
from grpclib.protocol import AbstractHandler
from h2.errors import ErrorCodes

from headway.api import Lagging, Metadata
from headway.base import retry_delay, silence_in_forked_child
from headway.errors import HeadwayError, RateLimited
from headway.rpc._addresses import Address
from headway.rpc._channel import ChannelClosed, NotHttp2, NotReached, Obstacle, Report
from headway.rpc._limited import Limited
from headway.rpc._limits import Limits, Rate
from headway.rpc._loop import Carrier
from headway.rpc._tls import speaking_http2
from headway.rpc._told import told
from headway.rpc.client._admitted import Admission, OpensCall
from headway.rpc.client._call import RemoteCall
from headway.rpc.client._foreign import (
    ENDS_AFTER_HANDSHAKE,
    EXPECTS_TLS,
    FIRST_BYTES,
    certificate_refused,
    expects_tls,
    foreign_answer,
    foreign_handshake,
)
from headway.rpc.http2 import Http2Protocol

Avoids = Callable[[HeadwayError], bool]

# How many seconds a lagging server gets no new streams, if there is another one.
_AVOIDED = 60.0
# The maximum rate of canceled calls on one connection. It is half of what a server accepts before it ends the
# connection, and with it all other calls on it.
_RESETS = Rate(500, 50)


def never(error: HeadwayError) -> bool:  # noqa: ARG001  # as `Avoids` has it
    """Return False: avoid no server because of an error."""
    return False


class _NoRequests(AbstractHandler):
    """The handler of a client's connection. The server must not begin calls on it."""

    def accept(self, stream: Any, headers: Any, release_stream: Any) -> None:  # noqa: ARG002
        """Refuse the stream. A server that opens streams violates the protocol."""
        stream.abandon(ErrorCodes.REFUSED_STREAM)
        release_stream()

    def cancel(self, stream: Any) -> None:
        """Do nothing. The stream itself raises the error."""

    def close(self) -> None:
        """Do nothing. The streams themselves raise the error."""


class _Protocol(Http2Protocol):
    """The client side of a connection. It closes the connection if the server doesn't speak HTTP/2."""

    first = b""

    def data_received(self, data: bytes) -> None:
        """Check the first bytes. Those of another protocol would look to the HTTP/2 parser like an endless frame."""
        if len(self.first) < FIRST_BYTES:
            self.first += data[: FIRST_BYTES - len(self.first)]
            if foreign_answer(self.first) is not None:
                self.processor.close("it does not speak HTTP/2")
                return
        super().data_received(data)


class _Failed(Exception):
    """A server cannot be used.

    Attributes:
        foreign: True if it does not speak HTTP/2.
    """

    def __init__(self, obstacle: Obstacle, *, foreign: bool) -> None:
        super().__init__(obstacle.reason)
        self.obstacle = obstacle
        self.foreign = foreign


class _Endpoint:
    """A server, and the earliest time of the next attempt to connect."""

    def __init__(self, where: Address) -> None:
        self.where = where
        self.failures = 0
        self.not_before = 0.0
        self.avoided_until = 0.0

    def failed(self) -> None:
        self.not_before = trio.current_time() + retry_delay(self.failures)
        self.failures += 1


class _Connection:
    """A connection and the number of its calls."""

    def __init__(self, protocol: Http2Protocol, endpoint: _Endpoint) -> None:
        self.protocol = protocol
        self.endpoint = endpoint
        # None admits every call.
        self.admission: Admission | None = None
        # Invariant: there are no more calls than resets left, because any call may need one.
        self.calls = 0
        self._resets = _RESETS.bucket(trio.current_time())

    @property
    def gone(self) -> bool:
        connection = self.protocol.connection
        return connection.draining or connection.is_closing()

    def has_room(self, most: int) -> bool:
        announced: int = self.protocol.connection.h2.remote_settings.max_concurrent_streams
        if self.gone or not self.protocol.is_solvent:
            return False
        return self.calls + 1 <= min(most, announced, self._resets.left(trio.current_time()))

    def release(self, call: RemoteCall) -> None:
        """Release a call, and cancel it if it has not ended."""
        if call.release():
            self._resets.charge(trio.current_time())
        self.calls -= 1


class Pool:
    """A pool of connections for one kind of calls."""

    def __init__(
        self,
        carrier: Carrier,
        endpoints: Sequence[Address],
        tls: ssl.SSLContext | None,
        server_name: str | None,
        limits: Limits,
        connect_timeout: float,
        report: Report,
        *,
        patient: bool = True,
        avoids: Avoids = never,
        admits: Callable[[OpensCall], Admission] | None = None,
    ) -> None:
        self._carrier = carrier
        # The endpoint used last is first. One that fails is moved to the end.
        self._endpoints = [_Endpoint(each) for each in endpoints]
        self._tls = None if tls is None else speaking_http2(tls)
        self._server_name = server_name
        self._limits = limits
        self._connect_timeout = connect_timeout
        self._report = report
        # True if a call waits until a server may be tried again. Otherwise it fails at once with the last failure.
        self._patient = patient
        self._avoids = avoids
        self._admits = admits
        self._connections: list[_Connection] = []
        self._protocols: set[Http2Protocol] = set()
        self._connecting = trio.Lock()
        self._closed = False
        # The obstacles of the last attempt that reached no server. Each failure is a new list, compared by identity.
        self._failure: list[tuple[str, Obstacle]] = []
        # `_foreign`: in that attempt, all servers spoke another protocol. `_reached`: a server has spoken HTTP/2
        # before. In that case a proxy may be answering for a server that is down.
        self._foreign = False
        self._reached = False
        self._changed = trio.Event()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._protocols)

    @asynccontextmanager
    async def open_call(self, request: object = None, metadata: Metadata | None = None) -> AsyncIterator[RemoteCall]:
        """Open a call on a connection that has room for it, and that admits a call with this request.

        Raises:
            NotReached: no server can be reached.
        """
        if self._closed:
            raise ChannelClosed
        line = self._with_room() or await self._new_connection()
        admitted: _Connection | None = None
        while line.admission is not None and line is not admitted and not line.admission.admits(request):
            try:
                await line.admission.admit(request, metadata)
            except RateLimited as refused:
                # This call waits, and is repeated, as if a limit had refused the call itself.
                raise Limited(str(refused), refused.retry_after) from refused
            # In the meantime, the connection may have ended, or other calls may have taken its room.
            admitted, line = line, self._with_room() or await self._new_connection()
        try:
            with self._call_on(line) as call:
                yield call
        except Lagging:
            self._avoid(line.endpoint)
            raise
        except (GRPCError, HeadwayError) as error:
            # The block of a stream raises what a caller learns.
            if self._avoids(told(error) if isinstance(error, GRPCError) else error):
                self._avoid(line.endpoint)
            raise

    @contextmanager
    def _call_on(self, line: _Connection) -> Iterator[RemoteCall]:
        line.calls += 1
        where = line.endpoint.where
        host = "localhost" if where.path else str(where)
        call = RemoteCall(line.protocol, host, "https" if self._tls else "http", self._limits.message_size)
        try:
            yield call
        finally:
            line.release(call)

    def _avoid(self, endpoint: _Endpoint) -> None:
        """Avoid an endpoint for new calls for a while. Its connections are kept for the calls on them."""
        endpoint.avoided_until = trio.current_time() + _AVOIDED
        self._endpoints.sort(key=lambda each: each is endpoint)

    def _with_room(self) -> _Connection | None:
        """Return a connection with room for a call, or None.

        Avoided servers are not used. If all are avoided, the one whose time ends first is used.
        """
        first = min(self._avoided(each) for each in self._endpoints)
        return self._with_room_to([each for each in self._endpoints if self._avoided(each) <= first])

    def _avoided(self, endpoint: _Endpoint) -> float:
        return max(endpoint.avoided_until - trio.current_time(), 0)

    def _with_room_to(self, endpoints: list[_Endpoint]) -> _Connection | None:
        self._connections = [line for line in self._connections if not line.gone]
        with_room = (
            line
            for line in self._connections
            if line.has_room(self._limits.wire.streams) and line.endpoint in endpoints
        )
        return next(with_room, None)

    async def _new_connection(self) -> _Connection:
        failure = self._failure
        async with self._connecting:
            line = self._with_room()
            if line is not None:
                # Another task has connected while this one waited for the lock.
                return line
            if self._failure is not failure:
                # Another task has tried and failed. The waiting tasks share its failure instead of trying in turn.
                raise self._unreachable()
            await self._wait_for_backoff()
            obstacles: list[tuple[str, Obstacle]] = []
            foreign = 0
            now = trio.current_time()
            for endpoint in sorted(self._endpoints, key=lambda each: (each.not_before > now, self._avoided(each))):
                line = self._with_room_to([endpoint])
                if line is not None:
                    # The server is avoided, but no other one can be reached.
                    return line
                try:
                    protocol = await self._connect(endpoint.where)
                except (OSError, TimeoutError, StreamTerminatedError, trio.TooSlowError, _Failed) as error:
                    foreign += isinstance(error, _Failed) and error.foreign
                    obstacles.append((str(endpoint.where), _obstacle(error)))
                    endpoint.failed()
                    self._endpoints.sort(key=lambda each: each is endpoint)
                    continue
                endpoint.failures = 0
                self._reached = True
                line = _Connection(protocol, endpoint)
                if self._admits is not None:
                    line.admission = self._admits(partial(self._call_on, line))
                self._connections.append(line)
                return line
            self._failure = obstacles
            self._foreign = foreign == len(obstacles)
        raise self._unreachable()

    def _unreachable(self) -> NotReached:
        return (NotHttp2 if self._foreign and not self._reached else NotReached)(self._failure)

    async def _wait_for_backoff(self) -> None:
        wait = min(endpoint.not_before for endpoint in self._endpoints) - trio.current_time()
        if wait > 0 and not self._patient:
            raise self._unreachable()
        await trio.sleep(max(wait, 0))

    async def _connect(self, where: Address) -> _Protocol:
        """Connect, and wait for the server's settings.

        Raises:
            _Failed: the server cannot be used.
        """
        loop = self._carrier.loop
        options: dict[str, Any] = {}
        if self._tls is not None and not where.path:
            options = {"ssl": self._tls, "server_hostname": self._server_name or where.host}
        protocol = self._protocol()
        try:
            with trio.fail_after(self._connect_timeout):
                if where.path:
                    await loop.run_aio_coroutine(loop.create_unix_connection(lambda: protocol, where.path))
                else:
                    await loop.run_aio_coroutine(
                        loop.create_connection(lambda: protocol, where.host, where.port, **options)
                    )
                try:
                    await protocol.connection.settings_received.wait()
                except BaseException:
                    protocol.abort()
                    raise
        except (OSError, TimeoutError, StreamTerminatedError, trio.TooSlowError) as error:
            foreign = foreign_handshake(error) or foreign_answer(protocol.first)
            silent = isinstance(error, StreamTerminatedError | ConnectionResetError) and not protocol.first
            if silent and not self._reached and not where.path and self._tls is None:
                with trio.move_on_after(self._connect_timeout):
                    foreign = EXPECTS_TLS if await expects_tls(where) else None
            if foreign is not None:
                raise _Failed(foreign, foreign=True) from error
            if silent and options:
                raise _Failed(ENDS_AFTER_HANDSHAKE, foreign=False) from error
            raise
        except (ValueError, TypeError) as error:
            # The system or TLS does not accept the host, the path or the server's name.
            raise _Failed(Obstacle(f"invalid name: {error}"), foreign=False) from error
        return protocol

    def _protocol(self) -> _Protocol:
        return _Protocol(
            _NoRequests(),
            self._limits,
            nursery=self._carrier.nursery,
            turn=trio.Lock(),
            client_side=True,
            started=self._started,
            ended=self._ended,
            report=self._report,
        )

    def _started(self, protocol: Http2Protocol) -> None:
        self._protocols.add(protocol)
        silence_in_forked_child(protocol)
        self._carrier.nursery.start_soon(protocol.keep_alive, name="rpc connection")

    def _ended(self, protocol: Http2Protocol) -> None:
        self._protocols.discard(protocol)
        # The protocol refers to this pool. Its connection would be kept until the next call, or in a cycle.
        self._connections = [line for line in self._connections if line.protocol is not protocol]
        self._changed.set()

    async def close(self) -> None:
        """Close every connection, and reject later calls."""
        self._closed = True
        for protocol in list(self._protocols):
            protocol.send_goaway()
            protocol.processor.close("the channel is closed")
        with trio.move_on_after(1.0):
            while self._protocols:
                self._changed = trio.Event()
                await self._changed.wait()
        for protocol in list(self._protocols):
            protocol.abort()
        await self._carrier.loop.synchronize()


def _obstacle(error: Exception) -> Obstacle:
    if isinstance(error, _Failed):
        return error.obstacle
    if isinstance(error, trio.TooSlowError):
        return Obstacle("it does not answer")
    return certificate_refused(error) or Obstacle(str(error) or type(error).__name__)
