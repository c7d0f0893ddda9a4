"""grpclib's HTTP/2 for Trio: its streams wait as Trio's tasks, and a peer is held to its limits.

What is extended here is private to grpclib, so that its version is pinned; `tests/rpc/test_private_names.py` fails
when a name is gone.
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
from h2.exceptions import ProtocolError, TooManyStreamsError

from headway.rpc._budget import Budget
from headway.rpc._frames import FrameAccount
from headway.rpc._h2 import CountingH2
from headway.rpc._headers import malformed_request, malformed_response, malformed_trailers
from headway.rpc._inbox import Inbox
from headway.rpc._limits import Limits
from headway.rpc._sending import HalfOf, WhileOpen, WindowQueue
from headway.rpc._signal import Signal

_ENDED_AT_ONCE = 16
# Bytes of one stream that are sent before others have a turn.
_SENT_AT_ONCE = 128 << 10
# Calls without a request that each connection may have, however many there are on others.
_FAIR_SHARE = 100


def _never(_: Callable[[], bool]) -> None:
    """Run nothing for a connection that is closed: all that is left of it has been asked for."""


class Http2Stream(Stream):
    """One call on a connection. Its coroutines are Trio's."""

    buffer: Inbox  # type: ignore[assignment]  # what grpclib has there is asyncio's
    connection: Http2Connection
    window_updated: Signal  # type: ignore[assignment]  # likewise

    def __init__(
        self, connection: Http2Connection, h2: H2Connection, transport: Any, *, stream_id: int | None = None
    ) -> None:
        super().__init__(connection, h2, transport, stream_id=stream_id)
        self.window_updated = Signal()
        self.headers_received = Signal()  # type: ignore[assignment]
        self.trailers_received = Signal()  # type: ignore[assignment]
        self.refused = False
        # Gives the stream back, once it has been opened by us.
        self.release: Callable[[], None] | None = None

    def init_stream(self, stream_id: int, connection: Connection) -> None:
        """grpclib's, with an inbox of our own."""
        super().init_stream(stream_id, connection)
        budget = connection.budget if isinstance(connection, Http2Connection) else None
        self.buffer = Inbox(partial(connection.ack, stream_id), budget)

    async def begin(
        self, headers: list[tuple[str, str]], data: bytes, processor: EventsProcessor, *, end: bool = True
    ) -> None:
        """Open a stream and send its request, or the beginning of one, in one write if it fits.

        grpclib's `send_request` would wake the server once for the headers and again for the message.
        """
        h2 = self._h2_connection
        while True:
            await self.connection.write_ready.wait()
            stream_id = h2.get_next_available_stream_id()
            try:
                h2.send_headers(stream_id, headers)
                break
            except TooManyStreamsError:
                self.connection.stream_close_waiter.clear()
                await self.connection.stream_close_waiter.wait()
        self.init_stream(stream_id, self.connection)
        self.release = processor.register(self)
        if not data and not end:
            self.connection.flush()
        elif self.fits(data):
            h2.send_data(stream_id, data, end_stream=end)
            self.connection.flush()
        else:
            self.connection.flush()
            await self.send_data(data, end_stream=end)

    def fits(self, data: bytes) -> bool:
        """Whether the peer would take this now, in one frame."""
        h2, id = self._h2_connection, self.id
        assert id is not None
        return len(data) <= min(h2.local_flow_control_window(id), h2.max_outbound_frame_size)

    def hold(self, headers: list[tuple[str, str]], data: bytes) -> bool:
        """Let headers and a message go out with whatever the connection sends next; False where they don't fit."""
        if not (self.connection.write_ready.is_set() and self.writable and self.fits(data)):
            return False
        assert self.id is not None
        self._h2_connection.send_headers(self.id, headers)
        self._h2_connection.send_data(self.id, data)
        return True

    async def send_data(self, data: bytes, end_stream: bool = False) -> None:
        """Send as much at once as the peer's windows allow, until all is sent. (In place of grpclib's, whose streams
        all wake whenever the window of their connection opens.)
        """
        h2, id = self._h2_connection, self.id
        assert id is not None
        connection, sent, turn = self.connection, 0, _SENT_AT_ONCE
        try:
            while True:
                if sent >= turn:
                    turn = sent + _SENT_AT_ONCE
                    await trio.lowlevel.checkpoint()
                await connection.write_ready.wait()
                window = h2.local_flow_control_window(id)
                if window <= 0:
                    await connection.window.wait(self.window_updated)
                    continue
                piece = data[sent : sent + min(window, h2.max_outbound_frame_size)]
                sent += len(piece)
                last = sent == len(data)
                h2.send_data(id, piece, end_stream=end_stream and last)
                self._transport.write(h2.data_to_send())
                if last:
                    return
        finally:
            connection.window.pass_on()

    @property
    def writable(self) -> bool:
        """Whether anything sent now would still reach the peer."""
        return not self.connection.is_closing() and self.closable

    def abandon(self, error_code: ErrorCodes = ErrorCodes.CANCEL) -> bool:
        """End the stream at once, unless it has ended; whether it had to be."""
        open = self.id is not None and self.writable
        if open:
            self.reset_nowait(error_code)
        return open

    def __terminated__(self, reason: str) -> None:
        error = StreamTerminatedError(reason)
        for signal in (self.window_updated, self.headers_received, self.trailers_received):
            signal.fail(error)  # type: ignore[union-attr]
        self.buffer.fail(error)


class Http2Connection(Connection):
    """A connection's state and its transport, for Trio's tasks."""

    def __init__(
        self, connection: H2Connection, transport: Any, *, config: Any, limits: Limits, budget: Budget | None = None
    ) -> None:
        super().__init__(connection, transport, config=config)
        self.write_ready = Signal(is_set=True)  # type: ignore[assignment]
        self.stream_close_waiter = Signal()  # type: ignore[assignment]
        self.settings_received = Signal()
        self.window = WindowQueue(connection)
        self._for_streams: WhileOpen | None = WhileOpen(transport)
        self.closed = trio.Event()
        self.limits = limits
        self.budget = budget
        # While what has arrived is looked at, what is to be sent gathers: one write in place of many.
        self.gathering = False
        # Whether the peer has said that no more calls may begin.
        self.draining = False

    @property
    def h2(self) -> CountingH2:
        """The state machine."""
        return self._connection  # type: ignore[return-value]  # grpclib's class says its base

    def create_stream(self, *, stream_id: int | None = None, wrapper: Any = None) -> Http2Stream:  # noqa: ARG002
        """grpclib's, of our class."""
        return Http2Stream(self, self._connection, self._for_streams, stream_id=stream_id)

    def initialize(self) -> None:
        """grpclib starts its keepalive here, on timers of asyncio; ours is a task (`Http2Protocol`)."""

    def flush(self) -> None:
        """Send what is to be sent, unless it is being gathered."""
        if not self.gathering and not self.is_closing():
            super().flush()

    def unsent(self) -> int:
        """Bytes that wait for the peer to read."""
        size: int = self._transport.get_write_buffer_size() if hasattr(self, "_transport") else 0
        return size

    def close(self) -> None:
        """Close, and let nobody wait for it any more.

        A server closes its own half alone, and its client the other one: closed with something unread in it, a
        socket throws away what it has to send, and the statuses that tell clients to come again would be lost. (Of
        TLS asyncio's transport does likewise, with its close_notify.)
        """
        if hasattr(self, "_transport") and not self.h2.config.client_side and self._transport.can_write_eof():
            self._transport = HalfOf(self._transport)  # type: ignore[assignment]  # all that is still called is `close`
        super().close()
        # It refers to the transport, which refers to this.
        self._for_streams = None
        self.closed.set()
        error = StreamTerminatedError("Connection closed")
        for signal in (self.write_ready, self.stream_close_waiter, self.settings_received):
            signal.fail(error)  # type: ignore[union-attr]


class Http2Processor(EventsProcessor):
    """What each event means. The peer's account says when it has sent too many that carry nothing.

    Args:
        later: runs a function soon, and again as long as it returns True, by turns with other connections.

    Attributes:
        calls: how many calls the peer has begun.
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
        self._account = account
        self._later = later

    def close(self, reason: str = "Connection closed") -> None:
        """Close the connection and end its streams, a few at a time: the ends of a thousand calls would hold up every
        other connection for a third of a second.
        """
        self.connection.close()
        if not hasattr(self, "processors"):
            return
        del self.processors
        # It refers to the protocol, which refers to this. Without the cycle both are freed when the connection is lost.
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
        """Handle one event. grpclib ends the connection at one that it doesn't know; HTTP/2 says to ignore it."""
        if event.__class__ in getattr(self, "processors", ()):
            super().process(event)

    def process_request_received(self, event: RequestReceived) -> None:
        """Begin a call, or refuse it in a way that tells the client that nothing of it has been done."""
        assert event.stream_id is not None
        if malformed_request(event.headers) is not None:  # type: ignore[arg-type]  # they are texts here
            self._refuse_malformed(event.stream_id, "malformed request")
            return
        limits, budget = self.connection.limits, self.connection.budget
        crowded = budget is not None and budget.is_crowded(_FAIR_SHARE, limits.requests)
        if crowded or len(self.streams) >= limits.streams:
            self.connection.h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return
        self.calls += 1
        # hpack's are a kind of tuples that Python's garbage collector looks through for as long as the call is open.
        event.headers = [(name, value) for name, value in event.headers]
        super().process_request_received(event)

    def process_response_received(self, event: ResponseReceived) -> None:
        """grpclib's, for headers that are well-formed."""
        assert event.stream_id is not None
        wrong = malformed_response(event.headers)  # type: ignore[arg-type]  # they are texts here
        if wrong is None:
            super().process_response_received(event)
        else:
            self._refuse_malformed(event.stream_id, f"malformed headers: {wrong}")

    def process_trailers_received(self, event: TrailersReceived) -> None:
        """grpclib's, for headers that are well-formed."""
        assert event.stream_id is not None
        wrong = malformed_trailers(event.headers)  # type: ignore[arg-type]  # they are texts here
        if wrong is None:
            super().process_trailers_received(event)
        else:
            self._refuse_malformed(event.stream_id, f"malformed trailers: {wrong}")

    def _refuse_malformed(self, stream_id: int, why: str) -> None:
        """End the stream alone: others may share the connection, as behind a proxy."""
        self._account.reset(trio.current_time())
        with contextlib.suppress(ProtocolError):
            # The stream may have ended with these very headers.
            self.connection.h2.reset_stream(stream_id, ErrorCodes.PROTOCOL_ERROR)
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.__terminated__(why)
            self.handler.cancel(stream)

    def process_data_received(self, event: DataReceived) -> None:
        """grpclib's; what a call takes pays back what frames have cost."""
        assert event.stream_id is not None
        if not event.data:
            # To who takes from the inbox it would be the end of the request.
            self.connection.ack(event.stream_id, event.flow_controlled_length or 0)
            return
        super().process_data_received(event)
        stream = self.streams.get(event.stream_id)
        if stream is not None and stream.buffer.open:  # type: ignore[attr-defined]  # our `Inbox`
            self._account.took(len(event.data))

    def process_window_updated(self, event: WindowUpdated) -> None:
        """grpclib's, which wakes every stream when the window of the connection opens."""
        if event.stream_id:
            super().process_window_updated(event)
        else:
            self.connection.window.pass_on()

    def process_remote_settings_changed(self, event: RemoteSettingsChanged) -> None:
        """grpclib's, and wake who waits for the first ones, or for more streams."""
        super().process_remote_settings_changed(event)
        self.connection.settings_received.set()
        self.connection.stream_close_waiter.set()

    def process_connection_terminated(self, event: ConnectionTerminated) -> None:
        """A GOAWAY: a peer that has nothing against us lets the calls that it has begun finish; so do we.

        grpclib, and h2 beneath it, would close at once and lose them.
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
                stream.__terminated__("the server takes no more calls")
        self._close_when_drained()

    def register(self, stream: Stream) -> Callable[[], None]:
        """grpclib's; and the last call of a connection that takes no more closes it."""
        release = super().register(stream)

        def release_stream() -> None:
            release()
            self._close_when_drained()

        return release_stream

    def _close_when_drained(self) -> None:
        if self.connection.draining and not self.streams and not self.connection.is_closing():
            self.close("the connection takes no more calls")

    def process_stream_reset(self, event: StreamReset) -> None:
        """grpclib's, and remember whether the call was refused before anything of it was done."""
        self._account.reset(trio.current_time())
        stream = self.streams.get(event.stream_id or 0)
        if isinstance(stream, Http2Stream):
            stream.refused = event.error_code == ErrorCodes.REFUSED_STREAM
        super().process_stream_reset(event)
