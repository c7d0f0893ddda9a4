"""The stream that a handler receives for a call over the network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.events import _DispatchServerEvents
from grpclib.metadata import Deadline, encode_bin_value, encode_grpc_message
from grpclib.server import Stream
from h2.errors import ErrorCodes

from headway.api import Call, Handler
from headway.base import encodable, give_way
from headway.errors import HeadwayError
from headway.resource import AnyMessage
from headway.rpc._channel import MESSAGE_LIMIT, NOT_BEGUN, Compressed, Oversized
from headway.rpc._details import TRAILER, StatusDetails
from headway.rpc._limited import Limited
from headway.rpc._limits import Budget, Limits
from headway.rpc._services import Services
from headway.rpc._wire import Codec, Encoded, Framed, MessageParser, StreamEncoder, framed
from headway.rpc.http2 import Http2Stream, Request


class _Subtype(CodecBase):
    """A codec that only gives grpclib's stream its content type. `ServerStream` does the encoding."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # pragma: no cover
        """Raise NotImplementedError. It is never called."""
        raise NotImplementedError

    def decode(self, data: bytes, message_type: Any) -> Any:  # pragma: no cover
        """Raise NotImplementedError. It is never called."""
        raise NotImplementedError


_SUBTYPE = _Subtype()
_DETAILS = StatusDetails()
_DISPATCH = _DispatchServerEvents()
# The maximum length of a status's message, in characters. It is sent in a header, where each character takes up to
# twelve bytes, and in the details, where it takes up to six. The peer limits the size of both (`header_size`).
# The message often quotes the client's input.
_MESSAGE_LIMIT = 900
# A request of at least this many bytes is decoded in a turn of its own. A reply of that size is charged to the budget
# while it waits.
_LARGE = 4 << 10
# For each of these bytes, others get a turn of the loop before the request is decoded, up to that many. A call of
# theirs takes some twelve turns, and would otherwise wait for as many large requests.
_PER_TURN = 16 << 10
_APART = 12
# An encoded message of up to this many bytes is sent as a whole.
_JOINED = 64 << 10
CALL_SIZE = 12 << 10
"""The memory in bytes of a call before its request arrives, as measured."""

HEADERS = ((":status", "200"), ("content-type", "application/grpc+proto"))
OK = (("grpc-status", "0"),)
_ACCEPTED = {"grpc-accept-encoding": "identity"}
"""The header by which gRPC tells a client how it may encode messages."""


class ServerStream(Stream[Any, Any], Call):  # type: ignore[misc]  # grpclib has no metadata and peer at first
    """A call over the network: grpclib's server stream in a Trio task, with our codec and limits."""

    encodes = True

    def __init__(
        self,
        stream: Http2Stream,
        request: Request,
        handler: Handler,
        services: Services,
        limits: Limits,
        deadline: Deadline | None,
        end: Callable[[Exception, float], None],
        *,
        turn: trio.Lock,
        replies: Budget,
    ) -> None:
        path = request.head.path
        super().__init__(
            stream,
            path,
            handler.cardinality,  # type: ignore[arg-type]  # it has what grpclib reads of its own class
            handler.request_type,
            handler.reply_type,
            codec=_SUBTYPE,
            status_details_codec=_DETAILS,
            dispatch=_DISPATCH,
            deadline=deadline,
        )
        self._request = request
        # The second: the call may go on for as long as the client likes. A stopping server doesn't wait for such calls.
        self._client_streaming, self.streaming = handler.cardinality.value
        self._end = end
        self._turn = turn
        self._replies = replies
        # The bytes of replies that wait for the client to read, as charged to the budget.
        self._waiting = 0
        self._dropped = False
        self._inbox = stream
        self.encrypted = stream.connection.encrypted
        self._limits = limits
        self._parser = MessageParser(limits.message_size)
        self._bodies: list[bytes] = []
        # True if the handler has received a message, so that the call may have an effect.
        self.begun = False
        self._message_codec: Codec = services.codec
        self._encoder: StreamEncoder | None = services.encoders.get(path)
        stream.buffer.refused = self._refused
        if not stream.buffer.ended:
            stream.buffer.count(CALL_SIZE)

    def end_after(self, seconds: float, error: HeadwayError) -> None:
        """End the call with this error after ``seconds``, whatever its handler is doing then."""
        self._end(error, trio.current_time() + seconds)

    def limit_message(self, size: int) -> None:
        """Reject messages over this size, in addition to the limit. Call it before the first message is received."""
        self._parser = MessageParser(min(size, self._limits.message_size))

    def _refused(self, error: GRPCError) -> None:
        """Free the parts of the request and end the handler, which may hold some of them while it waits."""
        self._parser = MessageParser(self._limits.message_size)
        self._end(error, -math.inf)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of the request."""
        return self._request.headers

    @property
    def http2(self) -> Http2Stream:
        """The underlying HTTP/2 stream, for a handler that forwards bytes."""
        return self._inbox

    async def send_headers(self, headers: list[tuple[str, str]], *, end: bool = False) -> None:
        """Send raw headers: the response's headers or, with ``end``, its trailers or a trailers-only response.

        Wait while the client doesn't read.
        """
        await self._until_writable()
        await self._inbox.send_headers(headers, end_stream=end)
        self._send_initial_metadata_done = True
        self._send_trailing_metadata_done = end

    @property
    def path(self) -> str:
        """The path of the called method."""
        return self._method_name

    async def recv_message(self) -> Any:
        """Wait for the client's next message and return it, or None at the end.

        A unary request must arrive within the ``request_timeout``. A client that streams may take its time.

        Raises:
            GRPCError: the request is invalid, too large, or did not arrive in time.
        """
        inbox, streaming = self._inbox.buffer, self._client_streaming
        # It refers to this stream: a cycle until the garbage collector runs.
        refuse, self.before_decoding = self.before_decoding, None
        # Usually the request has arrived with the headers.
        while not self._bodies and inbox.ready:
            if not await self._take_some():
                return None
        if not self._bodies:
            patience = math.inf if streaming else self._limits.request_timeout
            with trio.move_on_after(patience) as scope:
                while not self._bodies:
                    if not await self._take_some():
                        return None
            if scope.cancelled_caught:
                raise GRPCError(Status.DEADLINE_EXCEEDED, f"the request did not arrive within {patience} s")
        if not streaming:
            # Discard anything after the only request.
            inbox.close()
        body = self._bodies.pop(0)
        if len(body) < _LARGE:
            message = self._decoded(body)
        else:
            if refuse is not None:
                # A refusal is the handler's own.
                self.begun = True
                refuse(self._recv_type, body)
                self.begun = False
            # Decode at most one large request per turn of the loop, even if many connections send them.
            async with self._turn:
                for _ in range(min(_APART, len(body) // _PER_TURN)):
                    await trio.lowlevel.checkpoint()
                message = self._decoded(body)
        self.begun = True
        return message

    async def _take_some(self) -> bool:
        """Take data from the inbox. Return False at the end of the client's stream."""
        data = await self._inbox.buffer.take()
        held = self._parser.held
        if not data:
            if held:
                raise GRPCError(Status.INTERNAL, "the request ended in the middle of a message")
            if not self._client_streaming:
                raise GRPCError(Status.INTERNAL, "the client sent no request")
            return False
        self._bodies = self._parser.feed(data)
        self._inbox.buffer.done(held + len(data) - self._parser.held)
        return True

    def _decoded(self, body: bytes) -> Any:
        try:
            return self._message_codec.decode(self._recv_type, body)
        except ValueError as error:
            raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from error

    def hold(self, size: int) -> None:
        """Charge ``size`` bytes of waiting replies to the budget. That may end this call or another one."""
        if size != self._waiting and not self._dropped:
            before, self._waiting = self._waiting, size
            self._replies.held(self, before, size)

    def refuse(self) -> None:
        """End the call, because the replies that wait for clients to read take too much memory."""
        self.hold(0)
        self._dropped = True
        status = Status.UNAVAILABLE if self.streaming else Status.RESOURCE_EXHAUSTED
        self._end(
            GRPCError(status, "unread replies take too much memory, and this reply is among the largest"), -math.inf
        )

    async def encode(self, message: Any) -> Framed:
        """Encode a message of a stream, to be sent later. The message need not be kept while the client reads."""
        pieces: list[bytes] = []
        for piece in (self._encoder or self._framed)(message):
            pieces.append(piece)
            await give_way()
        return Framed(pieces)

    def _framed(self, message: Any) -> Iterable[bytes]:
        return (framed(self._message_codec.encode(message)),)

    async def send_message(self, message: Any) -> None:
        """Send a message, or an item that the method's encoder accepts. Wait while the client doesn't read."""
        parts: Iterable[bytes] | None = None
        if isinstance(message, Encoded):
            data, parts = (b"".join(message.pieces), None) if message.size <= _JOINED else (b"", message.pieces)
        elif isinstance(message, Framed):
            data, parts = b"", message.pieces
        elif self._encoder is not None:
            data, parts = b"", self._encoder(message)
        else:
            data = framed(self._message_codec.encode(message))
        # The reply of a unary call is sent with its headers and trailers, in one write instead of three. It is the end
        # of the call, which therefore needs no checkpoint.
        only = parts is None and not self.streaming
        if only and self.queue(data):
            return
        # Charge it before its headers are sent, because they may have to wait, too.
        charged = self._charge(message.size if isinstance(message, Framed) else len(data))
        await trio.lowlevel.checkpoint()
        if not self._send_initial_metadata_done:
            await self._until_writable()
            await self.send_initial_metadata()
        self._send_message_done = True
        if parts is None:
            await self.send_data(data)
        else:
            for piece in parts:
                await self.send_data(piece)
                await give_way()
        if charged:
            self.hold(0)

    def queue(self, data: bytes) -> bool:
        """Queue the only message of a reply with its headers. Return False if it can't be sent at once."""
        if self._send_initial_metadata_done or not self._inbox.hold(HEADERS, data):
            return False
        self._send_initial_metadata_done = self._send_message_done = True
        return True

    def _charge(self, size: int) -> bool:
        """Charge data that is about to wait to the budget, unless it is small or the whole reply is charged already."""
        charged = size >= _LARGE and not self._waiting
        if charged:
            self.hold(size)
        return charged

    async def _until_writable(self) -> None:
        """Wait while the client doesn't read. Headers are then sent without another wait."""
        ready = self._inbox.connection.write_ready
        if ready.is_set():
            return
        with trio.move_on_after(self._limits.wire.stall_timeout) as scope:
            await ready.wait()
        if scope.cancelled_caught:
            raise _unread()

    async def send_data(self, data: bytes) -> None:
        """Send data of the response's body. Wait while the client doesn't read."""
        charged = self._charge(len(data))
        with trio.move_on_after(self._limits.wire.stall_timeout) as scope:
            await self._stream.send_data(data)
        if charged:
            self.hold(0)
        if scope.cancelled_caught:
            raise _unread()

    def finish(self, error: GRPCError | None) -> bool:
        """Send the usual trailers, if they can be sent at once. Return False if `conclude` is needed."""
        if error is None and self._send_message_done and not self._send_trailing_metadata_done:
            self._send_trailing_metadata_done = self._inbox.finish(OK)
        return self._send_trailing_metadata_done or not self._inbox.writable

    async def conclude(self, error: GRPCError | None) -> None:
        """Send the trailers."""
        stream = self._inbox
        if error is None and not self.streaming and not self._send_message_done:
            error = GRPCError(Status.UNKNOWN, "Internal Server Error")
        with trio.CancelScope(shield=True, deadline=trio.current_time() + self._limits.wire.keepalive_timeout):
            if error is None:
                await self.send_trailing_metadata()
            elif isinstance(error, Limited):
                # The handler has not received the request. It may have been read, because some limits depend on it.
                await self._send_error(error, error.trailers())
            elif isinstance(error, Compressed):
                begun = {} if self.begun else _not_begun(error)
                await self._send_error(error, {**_ACCEPTED, **begun})
            else:
                await self.send_trailing_metadata(
                    status=error.status,
                    status_message=_sendable(error.message),
                    status_details=error.details if _are_messages(error.details) else None,
                    metadata=None if self.begun else _not_begun(error),
                )
        # Anything that the client still sends is useless.
        stream.abandon(ErrorCodes.NO_ERROR)

    async def _send_error(self, error: GRPCError, more: Mapping[str, str]) -> None:
        """Send the trailers of a failed call, and more of them. grpclib sends none whose names begin with ``grpc-``."""
        message = _sendable(error.message) or ""
        given = error.details if _are_messages(error.details) else ()
        details = encode_bin_value(_DETAILS.encode(error.status, message, given)).decode("ascii")
        trailers = {
            "grpc-status": str(error.status.value),
            "grpc-message": encode_grpc_message(message),
            TRAILER: details,
            **more,
        }
        headers = [*([] if self._send_initial_metadata_done else HEADERS), *trailers.items()]
        await self._inbox.send_headers(headers, end_stream=True)


def _unread() -> GRPCError:
    return GRPCError(Status.UNAVAILABLE, "the client does not read")


def _are_messages(details: object) -> bool:
    """Return True for details that can be sent. A handler may raise an error with other objects as its details."""
    return isinstance(details, Sequence) and all(isinstance(each, AnyMessage) for each in details)


def _not_begun(error: GRPCError) -> dict[str, str]:
    """Return the trailers that say that no handler received the request."""
    if isinstance(error, Oversized):
        return {NOT_BEGUN: "1", MESSAGE_LIMIT: str(error.limit)}
    return {NOT_BEGUN: "1"}


def _sendable(message: str | None) -> str | None:
    """Return a status's message as a header can hold it: encodable, and with its middle cut out if it is too long."""
    if message is None:
        return None
    message = encodable(message)
    if len(message) <= _MESSAGE_LIMIT:
        return message
    half = _MESSAGE_LIMIT // 2
    return f"{message[:half]}…{message[1 - half :]}"
