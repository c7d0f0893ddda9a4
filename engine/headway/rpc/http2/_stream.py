"""grpclib's HTTP/2 stream for one call, adapted to Trio."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from grpclib.exceptions import StreamTerminatedError
from grpclib.protocol import Connection, EventsProcessor, Stream
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import TooManyStreamsError

from headway.base import give_way
from headway.rpc._limits import Budget
from headway.rpc.http2._direct import content_frames, send_end, send_reply
from headway.rpc.http2._flow import Inbox, Signal
from headway.rpc.http2._hpack import Pairs

if TYPE_CHECKING:
    from headway.rpc.http2._connection import Http2Connection

# The bytes that one stream sends before others get a turn.
_SENT_AT_ONCE = 128 << 10
# The bytes of a stream in one write, which may all stay unsent.
_WRITTEN_AT_ONCE = 64 << 10


class Http2Stream(Stream):
    """A call on a connection. Its methods run in Trio tasks."""

    buffer: Inbox  # type: ignore[assignment]  # grpclib's is asyncio's
    connection: Http2Connection
    window_updated: Signal  # type: ignore[assignment]  # grpclib's is asyncio's

    def __init__(
        self, connection: Http2Connection, h2: H2Connection, transport: Any, *, stream_id: int | None = None
    ) -> None:
        # Not grpclib's own: its buffer and its events take a tenth of a short call, and none of them is used.
        self.connection = connection
        self._h2_connection = h2
        self._transport = transport
        self.wrapper = None
        self.headers = self.trailers = None
        self.window_updated = Signal()
        self.headers_received = Signal()  # type: ignore[assignment]
        self.trailers_received = Signal()  # type: ignore[assignment]
        if stream_id is not None:
            self.init_stream(stream_id, connection)
        self.refused = False
        # The bytes of content that are still to come, if the request has a content-length.
        self.announced: int | None = None
        # Releases the stream. Set if this end has opened it.
        self.release: Callable[[], None] | None = None

    def init_stream(self, stream_id: int, connection: Connection) -> None:
        """Initialize the stream with our own inbox."""
        self.id = stream_id
        budget: Budget | None = getattr(connection, "budget", None)
        self.buffer = Inbox(partial(connection.ack, stream_id), budget)

    async def begin(
        self, headers: list[tuple[str, str]], data: bytes, processor: EventsProcessor, *, end: bool = True
    ) -> None:
        """Open the stream and send a request or the beginning of one, in a single write if it fits.

        grpclib's `send_request` would wake the server twice: for the headers and for the message.

        Raises:
            StreamTerminatedError: the connection has ended or accepts no more calls. If the stream has no id, nothing
                was sent.
        """
        h2 = self._h2_connection
        while True:
            await self.connection.write_ready.wait()
            if self.connection.draining:
                # It has begun to drain since the call got this connection. The server would ignore the stream.
                raise StreamTerminatedError("it accepts no more calls")
            stream_id = h2.get_next_available_stream_id()
            try:
                h2.send_headers(stream_id, headers)
                break
            except TooManyStreamsError:
                self.connection.stream_close_waiter.clear()
                await self.connection.stream_close_waiter.wait()
        self.init_stream(stream_id, self.connection)
        self.release = processor.register(self)
        if stream_id == h2.HIGHEST_ALLOWED_STREAM_ID:
            # No id is left for another call. The connection closes when its last call ends.
            self.connection.draining = True
        if not data and not end:
            self.connection.flush()
        elif self.fits(data):
            h2.send_data(stream_id, data, end_stream=end)
            self.connection.flush()
        else:
            self.connection.flush()
            await self.send_data(data, end_stream=end)

    def fits(self, data: bytes) -> bool:
        """Return True if the data can be sent now, in one frame."""
        h2, id = self._h2_connection, self.id
        assert id is not None
        return len(data) <= min(h2.local_flow_control_window(id), h2.max_outbound_frame_size)

    def hold(self, headers: Pairs | list[tuple[str, str]], data: bytes) -> bool:
        """Queue headers and a message for the connection's next write. Return False if they don't fit.

        Headers in a tuple are the same in many replies.
        """
        connection, id = self.connection, self.id
        assert id is not None
        if not connection.write_ready.is_set() or connection.is_closing():
            return False
        h2 = connection.h2
        if not (isinstance(headers, tuple) and send_reply(h2, id, headers, data)):
            if not (self.writable and self.fits(data)):
                return False
            h2.send_headers(id, headers)
            h2.send_data(id, data)
        return True

    def finish(self, trailers: Pairs) -> bool:
        """Send the trailers of a reply at once. Return False if they must wait, or if the request has not ended."""
        connection = self.connection
        assert self.id is not None
        if not connection.write_ready.is_set() or not send_end(connection.h2, self.id, trailers):
            return False
        connection.flush()
        return True

    async def send_data(self, data: bytes, end_stream: bool = False) -> None:
        """Send data as the peer's windows allow, until all is sent.

        It replaces grpclib's method, because that wakes all streams whenever the connection's window opens.
        """
        h2, id = self.connection.h2, self.id
        assert id is not None
        connection, sent, turn, content = self.connection, 0, _SENT_AT_ONCE, memoryview(data)
        try:
            while True:
                if sent >= turn:
                    turn = sent + _SENT_AT_ONCE
                    await give_way()
                await connection.write_ready.wait()
                window = h2.local_flow_control_window(id)
                if window <= 0:
                    await connection.window.wait(self.window_updated)
                    continue
                size = min(len(data) - sent, window, _WRITTEN_AT_ONCE)
                frames = None if end_stream else content_frames(h2, id, content[sent : sent + size])
                if frames is None:
                    size = min(size, h2.max_outbound_frame_size)
                    h2.send_data(id, data[sent : sent + size], end_stream=end_stream and sent + size == len(data))
                if pending := h2.data_to_send():
                    self._transport.write(pending)
                if frames is not None:
                    self._transport.write(frames)
                sent += size
                if sent == len(data):
                    return
        finally:
            connection.window.pass_on()

    @property
    def writable(self) -> bool:
        """True if data sent now can still reach the peer."""
        h2 = self._h2_connection
        if self.connection.is_closing() or h2.state_machine.state is ConnectionState.CLOSED:
            return False
        stream = h2.streams.get(self.id or 0)
        return stream is not None and not stream.closed

    def abandon(self, error_code: ErrorCodes = ErrorCodes.CANCEL) -> bool:
        """Reset the stream unless it has ended. Return True if it was reset."""
        open = self.id is not None and self.writable
        if open:
            self.reset_nowait(error_code)
        return open

    def __terminated__(self, reason: str) -> None:
        error = StreamTerminatedError(reason)
        for signal in (self.window_updated, self.headers_received, self.trailers_received):
            signal.fail(error)  # type: ignore[union-attr]
        self.buffer.fail(error)
