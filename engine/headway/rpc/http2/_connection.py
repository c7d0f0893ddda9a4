"""grpclib's HTTP/2 connection and event processor, adapted to Trio and with limits on the peer.

The classes extended here are private to grpclib, so its version is pinned. `tests/rpc/test_private_names.py` fails if
one of the names used is missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
from grpclib.exceptions import StreamTerminatedError
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, Stream
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from headway.api import Handler
from headway.rpc._limits import Budget, WireLimits
from headway.rpc.http2._direct import begin_whole
from headway.rpc.http2._flow import Signal, WindowQueue
from headway.rpc.http2._frames import FrameAccount, malformed_response, malformed_trailers
from headway.rpc.http2._h2 import CountingH2
from headway.rpc.http2._requests import Head, Request, Requests
from headway.rpc.http2._stream import Http2Stream

_ENDED_AT_ONCE = 16
_WOKEN_AT_ONCE = 16
# The number of calls without a request that each connection may have, even if the server has reached its limit.
_FAIR_SHARE = 100


class WhileOpen:
    """A wrapper of a transport that drops writes once it is closing. asyncio's transport logs each such write."""

    __slots__ = ("_transport",)

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def is_closing(self) -> bool:
        """Return True if the transport is closing."""
        closing: bool = self._transport.is_closing()
        return closing

    def write(self, data: bytes) -> None:
        """Write the data, or drop it if the transport is closing."""
        if not self._transport.is_closing():
            self._transport.write(data)


class HalfOf:
    """A wrapper of a transport whose `close` closes only our half of the connection."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def close(self) -> None:
        """Close our half when everything has been sent."""
        if not self._transport.is_closing():
            # The peer may have reset the connection without the transport having noticed yet.
            with contextlib.suppress(OSError):
                self._transport.write_eof()


def _never(_: Callable[[], bool]) -> None:
    """Do nothing. It replaces the scheduler of a closed connection, whose remaining work has been scheduled."""


class Http2Connection(Connection):
    """A connection's state and its transport. Trio tasks can wait on it."""

    def __init__(
        self, connection: H2Connection, transport: Any, *, config: Any, limits: WireLimits, budget: Budget | None = None
    ) -> None:
        super().__init__(connection, transport, config=config)
        self.write_ready = Signal(is_set=True)  # type: ignore[assignment]
        self.stream_close_waiter = Signal()  # type: ignore[assignment]
        self.settings_received = Signal()
        self.window = WindowQueue(connection)
        self._for_streams: WhileOpen | None = WhileOpen(transport)
        self.encrypted = transport.get_extra_info("sslcontext") is not None
        self.closed = trio.Event()
        self.limits = limits
        self.budget = budget
        # True while incoming frames are handled. Output is collected and sent in one write instead of many.
        self.gathering = False
        # True while frames that have arrived are still to be handled, now or in a later turn.
        self.behind = False
        # True if no more calls may begin: the peer has said so, or this client has used all ids of streams.
        self.draining = False

    @property
    def h2(self) -> CountingH2:
        """h2's state machine."""
        return self._connection  # type: ignore[return-value]  # grpclib's class says its base

    def create_stream(self, *, stream_id: int | None = None, wrapper: Any = None) -> Http2Stream:  # noqa: ARG002
        """Create a stream of our own class."""
        return Http2Stream(self, self._connection, self._for_streams, stream_id=stream_id)

    def initialize(self) -> None:
        """Do nothing. grpclib would start its keepalive here on asyncio's timers; ours is a task (`Http2Protocol`)."""

    def ack(self, stream_id: int, size: int) -> None:
        """Reopen the windows after data was taken from a stream."""
        if size:
            self.h2.acknowledge(size, stream_id)
            self.flush()

    def is_closing(self) -> bool:
        """Return True if the connection is closed, or will be."""
        # It is None once this is closed, and grpclib has no transport then.
        return self._for_streams is None or self._transport.is_closing()

    def flush(self) -> None:
        """Send pending output, unless it is being collected."""
        if not self.gathering and self.h2.has_output and not self.is_closing():
            self._transport.write(self._connection.data_to_send())

    def unsent(self) -> int:
        """Return the number of bytes that wait for the peer to read."""
        size: int = self._transport.get_write_buffer_size() if hasattr(self, "_transport") else 0
        return size

    def close(self) -> None:
        """Close the connection and wake all tasks that wait on it with an error.

        A server closes only its own half and leaves the other half to the client. A socket that is closed with unread
        input discards its pending output, and the final statuses, which make clients retry, would be lost. (Over TLS,
        asyncio's transport sends its close_notify, and `TlsProtocol` does the rest.)
        """
        if hasattr(self, "_transport") and not self.h2.config.client_side and self._transport.can_write_eof():
            self._transport = HalfOf(self._transport)  # type: ignore[assignment]  # only `close` is called after this
        super().close()
        # Break the reference cycle: it refers to the transport, which refers to this connection.
        self._for_streams = None
        self.closed.set()
        error = StreamTerminatedError("Connection closed")
        for signal in (self.write_ready, self.stream_close_waiter, self.settings_received):
            signal.fail(error)  # type: ignore[union-attr]


class Http2Processor(EventsProcessor):
    """The handler of a connection's events. Resets and content are recorded in the peer's account.

    Args:
        later: runs a function soon, and repeats it while it returns True, taking turns with other connections.

    Attributes:
        calls: the number of calls that the peer has begun.
        requests: the sets of headers that its requests have had.
        halted: True from the moment in which a call begins to wait in the task that reads until that task waits for it.
            Nothing that could wake the call may be done in between: no frame is handled, and no connection ends.
        ended: True if a call has ended while frames were still to be handled.
    """

    connection: Http2Connection

    def __init__(
        self,
        handler: AbstractHandler,
        connection: Http2Connection,
        account: FrameAccount,
        later: Callable[[Callable[[], bool]], None],
    ) -> None:
        super().__init__(handler, connection)
        self.calls = 0
        self.halted = False
        self.ended = False
        self._account = account
        self._later = later
        self.requests = Requests()
        # The streams that new settings may let send, and that have not been woken yet.
        self._unwoken: list[int] = []

    def close(self, reason: str = "Connection closed") -> None:
        """Close the connection and end its streams.

        A server ends a few at a time. Ending a thousand calls at once would block every other connection for a third
        of a second.
        """
        self.connection.close()
        if not hasattr(self, "processors"):
            return
        del self.processors
        # Break the reference cycle with the protocol, so that both are freed as soon as the connection is lost.
        later, self._later = self._later, _never
        streams = list(self.streams.values())

        def end_some() -> bool:
            for stream in streams[:_ENDED_AT_ONCE]:
                stream.__terminated__(reason)
                self.handler.cancel(stream)
            del streams[:_ENDED_AT_ONCE]
            return bool(streams)

        if self.connection.h2.config.client_side:
            while end_some():
                pass
            self.handler.close()
        elif end_some():
            later(end_some)

    def process(self, event: Event) -> None:
        """Handle one event. An unknown one is ignored, as HTTP/2 demands; grpclib would end the connection."""
        if event.__class__ in getattr(self, "processors", ()):
            super().process(event)

    def process_request_received(self, event: RequestReceived) -> None:
        """Begin a call, or refuse it so that the client knows that it had no effect."""
        assert event.stream_id is not None
        # Copy to plain tuples. Python's garbage collector would traverse hpack's subclass while the call is open.
        headers: Any = [(name, value) for name, value in event.headers]
        self._begin(event.stream_id, Request(Head(headers)), ended=event.stream_ended is not None)

    def receive_request(self, stream_id: int, request: Request, *, ended: bool) -> None:
        """Begin a call, as `process_request_received` does."""
        self._begin(stream_id, request, ended=ended)
        if ended:
            self._end(stream_id)

    def handler_of(self, request: Request, size: int) -> Handler | None:
        """Return the handler of a call with ``size`` bytes of content, if it can be answered at once."""
        head = request.head
        if (
            head.malformed is not None
            or head.length not in (None, size)
            or self._is_full()
            or self.connection.is_closing()
        ):
            return None
        return self.handler.handler_of(request)  # type: ignore[attr-defined, no-any-return]  # ours: `Calls`

    def receive_whole(self, stream_id: int, request: Request, handler: Handler, body: bytes) -> None:
        """Answer a call whose only message has arrived."""
        self.calls += 1
        self.handler.answer(self, stream_id, request, handler, body)  # type: ignore[attr-defined]  # as above

    def adopt(self, stream_id: int) -> tuple[Http2Stream, Callable[[], None]]:
        """Return the stream of a call whose only message was handled already, and a function that releases it."""
        begin_whole(self.connection.h2, stream_id)
        stream = self.connection.create_stream(stream_id=stream_id)
        stream.buffer.eof()
        stream.buffer.close()
        return stream, self.register(stream)

    def _is_full(self) -> bool:
        connection = self.connection
        limits, budget = connection.limits, connection.budget
        crowded = budget is not None and budget.is_crowded(_FAIR_SHARE, limits.requests)
        return crowded or len(self.streams) >= limits.streams

    def _begin(self, stream_id: int, request: Request, *, ended: bool) -> None:
        head = request.head
        if head.malformed is not None or (head.length and ended):
            self._refuse_malformed(stream_id, "malformed request")
            return
        connection = self.connection
        if self._is_full():
            connection.h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        self.calls += 1
        stream = connection.create_stream(stream_id=stream_id)
        stream.announced = head.length
        self.handler.accept(stream, request, self.register(stream))  # type: ignore[arg-type]  # ours: `Calls`

    def _end(self, stream_id: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.__ended__()

    def process_response_received(self, event: ResponseReceived) -> None:
        """Handle a response's headers, or end the stream if they are malformed."""
        assert event.stream_id is not None
        if self._is_refused(event.stream_id):
            return
        wrong = malformed_response(event.headers)  # type: ignore[arg-type]  # they are texts here
        if wrong is None:
            super().process_response_received(event)
        else:
            self._refuse_malformed(event.stream_id, f"malformed headers: {wrong}")

    def _is_refused(self, stream_id: int) -> bool:
        """Return True if a GOAWAY, perhaps in the same read, has said that the call was not begun."""
        stream = self.streams.get(stream_id)
        return isinstance(stream, Http2Stream) and stream.refused

    def process_trailers_received(self, event: TrailersReceived) -> None:
        """Handle trailers, or end the stream if they are malformed."""
        assert event.stream_id is not None
        if self._is_refused(event.stream_id):
            return
        wrong = malformed_trailers(event.headers)  # type: ignore[arg-type]  # they are texts here
        if wrong is not None:
            self._refuse_malformed(event.stream_id, f"malformed trailers: {wrong}")
        elif self._has_announced_length(event.stream_id, 0, ended=True):
            super().process_trailers_received(event)

    def _has_announced_length(self, stream_id: int, size: int, *, ended: bool) -> bool:
        """Count ``size`` bytes of content. End the stream and return False if the total differs from content-length.

        A proxy in front of this server may have taken the rest for another request.
        """
        stream = self.streams.get(stream_id)
        if not isinstance(stream, Http2Stream) or stream.announced is None:
            return True
        stream.announced -= size
        if stream.announced < 0 or (ended and stream.announced):
            stream.announced = None
            self._refuse_malformed(stream_id, "the length of the content differs from content-length")
            return False
        return True

    def _refuse_malformed(self, stream_id: int, why: str) -> None:
        """End only the stream. Other clients may share the connection, for example behind a proxy."""
        self._account.reset(trio.current_time())
        with contextlib.suppress(ProtocolError):
            # The stream may have ended with these very headers.
            self.connection.h2.reset_stream(stream_id, ErrorCodes.PROTOCOL_ERROR)
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.__terminated__(why)
            self.handler.cancel(stream)

    def process_data_received(self, event: DataReceived) -> None:
        """Handle data. Content that a call accepts is refunded to the peer's account."""
        assert event.stream_id is not None
        size = event.flow_controlled_length or 0
        self._receive(event.stream_id, event.data, size, ended=event.stream_ended is not None)

    def receive_content(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        """Handle data that took ``size`` of the window, and the end of the request, as h2's events would."""
        self._receive(stream_id, data, size, ended=ended)
        if ended:
            self._end(stream_id)

    def _receive(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        stream = self.streams.get(stream_id)
        # An empty chunk in the inbox would mean the end of the request.
        if stream is None or not self._has_announced_length(stream_id, len(data), ended=ended) or not data:
            self.connection.ack(stream_id, size)
            return
        inbox: Any = stream.buffer
        inbox.add(data, size, last=ended)
        if inbox.open:
            self._account.received_data(len(data))

    def process_window_updated(self, event: WindowUpdated) -> None:
        """Wake the streams that can send. grpclib would wake all of them when the connection's window opens."""
        if event.stream_id:
            super().process_window_updated(event)
        else:
            self.connection.window.pass_on()

    def receive_window(self, stream_id: int) -> None:
        """Wake the stream whose window the peer has opened."""
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.window_updated.set()

    def process_remote_settings_changed(self, event: RemoteSettingsChanged) -> None:
        """Wake the tasks that wait for the first settings, for a free stream, or for the window of a stream.

        The last ones are woken a few at a time. grpclib would wake all of them: one small frame would make thousands of
        calls send in one turn of the loop, while every other connection waits.
        """
        self.connection.settings_received.set()
        self.connection.stream_close_waiter.set()
        if SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings:
            waking = bool(self._unwoken)
            self._unwoken = list(self.streams)
            if self._wake_some() and not waking:
                self._later(self._wake_some)

    def _wake_some(self) -> bool:
        """Wake some of the streams that new settings may let send, and return True if others are left."""
        some, self._unwoken = self._unwoken[:_WOKEN_AT_ONCE], self._unwoken[_WOKEN_AT_ONCE:]
        for stream_id in some:
            self.receive_window(stream_id)
        return bool(self._unwoken)

    def process_connection_terminated(self, event: ConnectionTerminated) -> None:
        """Handle a GOAWAY. Without an error code, the calls that the peer has begun may finish.

        grpclib and h2 would close the connection at once and lose them.
        """
        if event.error_code != ErrorCodes.NO_ERROR:
            super().process_connection_terminated(event)
            return
        self.connection.draining = True
        if not self.connection.h2.config.client_side:
            return
        for id, stream in list(self.streams.items()):
            if isinstance(stream, Http2Stream) and id > (event.last_stream_id or 0):
                stream.refused = True
                stream.__terminated__("the server accepts no more calls")
        # Calls that wait for a free stream can go elsewhere now.
        self.connection.stream_close_waiter.set()
        self.close_when_drained()

    def register(self, stream: Stream) -> Callable[[], None]:
        """Register a stream. On a draining connection, releasing the last stream closes the connection."""
        assert stream.id is not None
        self.streams[stream.id] = stream
        return partial(self._release, stream)

    def _release(self, stream: Stream) -> None:
        connection = self.connection
        assert stream.id is not None
        del self.streams[stream.id]
        connection.stream_close_waiter.set()
        if not connection.is_closing():
            connection.ack(stream.id, stream.buffer.unacked_size())
            self.close_when_drained()

    def close_when_drained(self) -> None:
        """Close a draining connection if it has no streams, once all calls that have arrived have begun."""
        connection = self.connection
        self.ended = connection.behind
        if connection.draining and not (connection.behind or self.streams or connection.is_closing()):
            self.close("the connection accepts no more calls")

    def process_stream_reset(self, event: StreamReset) -> None:
        """Handle a reset, and record whether the call was refused before it had any effect."""
        self._account.reset(trio.current_time())
        stream = self.streams.get(event.stream_id or 0)
        if isinstance(stream, Http2Stream):
            stream.refused = event.error_code == ErrorCodes.REFUSED_STREAM
        super().process_stream_reset(event)
