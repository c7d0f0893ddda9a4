"""A server's direct way for the frames of usual calls, which leaves h2's state as h2's own way would. No I/O.

h2 parses each frame into an object, makes a text of it, runs two state machines and returns events. Here a frame in
the usual form changes the same state at once. All else is left to h2: the first request of a connection, padding,
priorities, trailers of requests, header blocks of several frames, frames on streams that don't exist, and all errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2.connection import AllowedStreamIDs, ConnectionState, _decode_headers
from h2.exceptions import ProtocolError
from h2.stream import StreamClosedBy, StreamState

from headway.rpc.http2._frames import FrameCutter
from headway.rpc.http2._h2 import CountingH2
from headway.rpc.http2._hpack import BoundedDecoder, Pairs
from headway.rpc.http2._requests import Request

if TYPE_CHECKING:
    from headway.rpc.http2._connection import Http2Processor

_HEADER = 9
_DATA, _HEADERS, _PING, _WINDOW_UPDATE = 0, 1, 6, 8
_END_STREAM, _END_HEADERS = 0x1, 0x4
_PONG = b"\0\0\x08\x06\x01\0\0\0\0"
_LARGEST = (1 << 31) - 1
# The bytes before a message, and the most bytes of a request that is answered at once. Less than a guard may demand.
_PREFIX, _SMALL = 5, 1 << 10
_BEFORE_END = (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE)


class DirectFrames:
    """The frames of a server's connection that are handled without h2's own way."""

    __slots__ = ("_buffer", "_cutter", "_decoder", "_h2", "_machine", "_most", "_processor", "_small")

    def __init__(self, h2: CountingH2, processor: Http2Processor, cutter: FrameCutter, message_size: int) -> None:
        self._h2 = h2
        self._cutter = cutter
        self._processor = processor
        self._small = min(_SMALL, _PREFIX + message_size)
        self._machine = h2.state_machine
        # This end never changes its settings.
        self._most = h2.local_settings.max_concurrent_streams
        self._buffer = h2.incoming_buffer
        self._decoder = _RaisingDecoder(h2.decoder)

    def receive(self, frame: bytes, now: float) -> bool:
        """Handle a complete frame, or return False to leave it to h2, unchanged.

        Raises:
            ProtocolError: the header block is invalid. As in h2, a GOAWAY is ready to be sent.
        """
        if self._machine.state is not ConnectionState.SERVER_OPEN or self._buffer._headers_buffer:
            return False
        kind, flags = frame[3], frame[4]
        stream_id = int.from_bytes(frame[5:_HEADER], "big")
        if kind == _DATA:
            return self._data(stream_id, flags, frame[_HEADER:])
        if kind == _HEADERS:
            return self._headers(stream_id, flags, frame[_HEADER:], now)
        if kind == _WINDOW_UPDATE:
            return len(frame) == _HEADER + 4 and self._window(stream_id, int.from_bytes(frame[_HEADER:], "big"))
        if kind == _PING and not flags and not stream_id and len(frame) == _HEADER + 8:
            self._h2._data_to_send += _PONG + frame[_HEADER:]
            return True
        return False

    def _data(self, stream_id: int, flags: int, data: bytes) -> bool:
        h2 = self._h2
        stream = h2.streams.get(stream_id)
        if stream is None or flags & ~_END_STREAM or stream.state_machine.state is not StreamState.OPEN:
            return False
        size = len(data)
        of_all, of_stream = h2._inbound_flow_control_window_manager, stream._inbound_window_manager
        if size > of_all.current_window_size or size > of_stream.current_window_size:
            return False
        of_all.current_window_size -= size
        of_stream.current_window_size -= size
        if flags:
            stream.state_machine.state = StreamState.HALF_CLOSED_REMOTE
        self._processor.receive_content(stream_id, data, size, ended=bool(flags))
        return True

    def _headers(self, stream_id: int, flags: int, block: bytes, now: float) -> bool:
        h2 = self._h2
        if (
            flags & ~_END_STREAM != _END_HEADERS
            or stream_id <= h2.highest_inbound_stream_id
            or not stream_id & 1
            or stream_id > _LARGEST
            # h2 counts the open streams, and forgets those that have ended.
            or len(h2.streams) >= self._most
        ):
            return False
        request = self._processor.requests.known(block, h2.decoder.changes) or self._read(block)
        if not flags & _END_STREAM and self._whole(stream_id, request, now):
            return True
        stream = h2._begin_new_stream(stream_id, AllowedStreamIDs.ODD)
        machine = stream.state_machine
        machine.state = StreamState.HALF_CLOSED_REMOTE if flags & _END_STREAM else StreamState.OPEN
        machine.client = False
        machine.headers_received = True
        self._processor.receive_request(stream_id, request, ended=bool(flags & _END_STREAM))
        return True

    def _read(self, block: bytes) -> Request:
        h2, requests = self._h2, self._processor.requests
        try:
            raw = _decode_headers(self._decoder, block)  # type: ignore[arg-type]  # it calls `decode` alone
        except ProtocolError as error:
            h2._terminate_connection(error.error_code)
            raise
        request = requests.read(raw)  # type: ignore[arg-type]  # a list
        requests.keep(block, request)
        return request

    def _whole(self, stream_id: int, request: Request, now: float) -> bool:
        """Handle the only message of a call that has arrived with its headers, if the call can be answered at once.

        If the answer need not wait, h2 knows of the stream only that it has ended.
        """
        frame = self._cutter.end_of(stream_id, self._small)
        if frame is None:
            return False
        h2, size = self._h2, len(frame) - _HEADER
        window = h2._inbound_flow_control_window_manager
        if (
            size < _PREFIX
            or frame[_HEADER : _HEADER + _PREFIX] != (size - _PREFIX).to_bytes(_PREFIX, "big")
            or size > window.current_window_size
            or size > h2.local_settings.initial_window_size
            or (handler := self._processor.handler_of(request, size)) is None
        ):
            return False
        h2.account.receive(self._cutter.next() or frame, now)
        window.current_window_size -= size
        h2.acknowledge(size, stream_id)
        h2.account.received_data(size)
        self._processor.receive_whole(stream_id, request, handler, frame[_HEADER + _PREFIX :])
        return True

    def _window(self, stream_id: int, increment: int) -> bool:
        h2 = self._h2
        if not 0 < increment <= _LARGEST:
            return False
        if not stream_id:
            opened = h2.outbound_flow_control_window + increment
            if opened > _LARGEST:
                return False
            h2.outbound_flow_control_window = opened
            self._processor.connection.window.pass_on()
            return True
        stream = h2.streams.get(stream_id)
        if stream is None or stream.state_machine.state not in _BEFORE_END:
            return False
        opened = stream.outbound_flow_control_window + increment
        if opened > _LARGEST:
            return False
        stream.outbound_flow_control_window = opened
        self._processor.receive_window(stream_id)
        return True


class _RaisingDecoder:
    """The decoder in a form for h2's function, which turns hpack's errors into its own."""

    __slots__ = ("_decoder",)

    def __init__(self, decoder: BoundedDecoder) -> None:
        self._decoder = decoder

    def decode(self, data: bytes, raw: bool) -> list[tuple[bytes, bytes]]:  # noqa: ARG002
        """Decode a header block to bytes."""
        return self._decoder.read(data)


def send_reply(h2: CountingH2, stream_id: int, headers: Pairs, data: bytes) -> bool:
    """Queue the headers and the content of a reply. Return False to leave it to h2, unchanged."""
    stream = h2.streams.get(stream_id)
    if stream is None or h2.state_machine.state is not ConnectionState.SERVER_OPEN:
        return False
    machine, size = stream.state_machine, len(data)
    if (
        machine.state not in _BEFORE_END
        or machine.headers_sent
        or size > stream.outbound_flow_control_window
        or size > h2.outbound_flow_control_window
        or size > h2.max_outbound_frame_size
    ):
        return False
    block = h2.encoder.repeat(headers)
    id = stream_id.to_bytes(4, "big")
    h2._data_to_send += b"".join(
        (len(block).to_bytes(3, "big"), b"\x01\x04", id, block, size.to_bytes(3, "big"), b"\0\0", id, data)
    )
    machine.headers_sent = True
    stream.outbound_flow_control_window -= size
    h2.outbound_flow_control_window -= size
    h2.account.sent_headers()
    h2.account.sent_data(size)
    return True


def fits_whole(h2: CountingH2, data: bytes) -> bool:
    """Return True if `send_whole` can send the content now."""
    return h2.state_machine.state is ConnectionState.SERVER_OPEN and len(data) <= min(
        h2.remote_settings.initial_window_size, h2.outbound_flow_control_window, h2.max_outbound_frame_size
    )


def send_whole(h2: CountingH2, stream_id: int, headers: Pairs, data: bytes, trailers: Pairs) -> None:
    """Queue the whole reply to a request on a stream that h2 doesn't know. The content must fit."""
    size = len(data)
    first, last, id = h2.encoder.repeat(headers), h2.encoder.repeat(trailers), stream_id.to_bytes(4, "big")
    h2._data_to_send += b"".join(
        (
            *(len(first).to_bytes(3, "big"), b"\x01\x04", id, first),
            *(size.to_bytes(3, "big"), b"\0\0", id, data),
            *(len(last).to_bytes(3, "big"), b"\x01\x05", id, last),
        )
    )
    h2.highest_inbound_stream_id = stream_id
    h2._closed_streams[stream_id] = StreamClosedBy.SEND_END_STREAM
    h2.outbound_flow_control_window -= size
    h2.account.sent_reply(size)


def begin_whole(h2: CountingH2, stream_id: int) -> None:
    """Begin a stream whose request has arrived whole."""
    machine = h2._begin_new_stream(stream_id, AllowedStreamIDs.ODD).state_machine
    machine.state = StreamState.HALF_CLOSED_REMOTE
    machine.client = False
    machine.headers_received = True


def content_frames(h2: CountingH2, stream_id: int, content: memoryview) -> bytes | None:
    """Return the DATA frames of content in a reply, which the peer's windows have room for. They count as sent.

    Return None to leave it to h2, unchanged.
    """
    stream = h2.streams.get(stream_id)
    if not content or stream is None or h2.state_machine.state is not ConnectionState.SERVER_OPEN:
        return None
    machine = stream.state_machine
    if machine.state not in _BEFORE_END or not machine.headers_sent:
        return None
    head, most = b"\0\0" + stream_id.to_bytes(4, "big"), h2.max_outbound_frame_size
    parts: list[bytes | memoryview] = []
    for begin in range(0, len(content), most):
        frame = content[begin : begin + most]
        parts += (len(frame).to_bytes(3, "big"), head, frame)
        h2.account.sent_data(len(frame))
    stream.outbound_flow_control_window -= len(content)
    h2.outbound_flow_control_window -= len(content)
    return b"".join(parts)


def send_end(h2: CountingH2, stream_id: int, trailers: Pairs) -> bool:
    """Queue the trailers of a reply whose request has ended. Return False to leave it to h2, unchanged."""
    stream = h2.streams.get(stream_id)
    if stream is None or h2.state_machine.state is not ConnectionState.SERVER_OPEN:
        return False
    machine = stream.state_machine
    if machine.state is not StreamState.HALF_CLOSED_REMOTE or not machine.headers_sent or machine.trailers_sent:
        return False
    block = h2.encoder.repeat(trailers)
    h2._data_to_send += len(block).to_bytes(3, "big") + b"\x01\x05" + stream_id.to_bytes(4, "big") + block
    machine.trailers_sent = True
    machine.state = StreamState.CLOSED
    machine.stream_closed_by = StreamClosedBy.SEND_END_STREAM
    # h2 does this when the next stream begins, by a look at all streams.
    del h2.streams[stream_id]
    h2._closed_streams[stream_id] = StreamClosedBy.SEND_END_STREAM
    h2.account.sent_headers()
    return True
