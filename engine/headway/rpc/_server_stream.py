"""What a handler is given when its call came over the network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Handler, Status
from grpclib.encoding.base import CodecBase
from grpclib.events import _DispatchServerEvents
from grpclib.metadata import Deadline
from grpclib.server import Stream
from h2.errors import ErrorCodes

from headway._turns import give_way
from headway.rpc._budget import Budget
from headway.rpc._errors import MESSAGE_LIMIT, NOT_BEGUN, Oversized
from headway.rpc._http2_stream import Http2Stream
from headway.rpc._limits import Limits
from headway.rpc._services import Services
from headway.rpc._wire import Codec, Encoded, MessageParser, StreamEncoder, framed


class _Subtype(CodecBase):
    """Tells grpclib's stream what its content type is; the encoding itself is done here."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # pragma: no cover
        """Not called."""
        raise NotImplementedError

    def decode(self, data: bytes, message_type: Any) -> Any:  # pragma: no cover
        """Not called."""
        raise NotImplementedError


_SUBTYPE = _Subtype()
_DISPATCH = _DispatchServerEvents()
# Characters of a status's message: it travels in a header, of which a peer takes few (`Limits.header_size`), each
# character by up to twelve bytes; and it often quotes what the client has sent.
_MESSAGE_LIMIT = 1000
# Bytes from which a request is decoded in a turn of its own, and a reply is counted while it waits.
_LARGE = 4 << 10
# Bytes of memory that a call takes before anything of its request has come, as measured.
_CALL = 12 << 10
_HEADERS = [(":status", "200"), ("content-type", "application/grpc+proto")]


class ServerStream(Stream[Any, Any]):
    """grpclib's server stream, in a Trio task: messages by our codec, within limits.

    Attributes:
        encodes: True: what is sent becomes bytes, as it doesn't inside a process.
    """

    encodes = True

    def __init__(
        self,
        stream: Http2Stream,
        headers: list[tuple[str, str]],
        handler: Handler,
        services: Services,
        limits: Limits,
        deadline: Deadline | None,
        end: Callable[[GRPCError, float], None],
        *,
        turn: trio.Lock,
        replies: Budget,
    ) -> None:
        path = dict(headers).get(":path", "")
        super().__init__(
            stream,
            path,
            handler.cardinality,
            handler.request_type,
            handler.reply_type,
            codec=_SUBTYPE,
            status_details_codec=None,
            dispatch=_DISPATCH,
            deadline=deadline,
        )
        self.headers = headers
        # Whether more replies are to come for as long as the client likes: a server that stops doesn't wait for those.
        self.streaming = handler.cardinality.server_streaming
        self._end = end
        self._turn = turn
        self._replies = replies
        # Bytes of replies that wait for the client to read, as the budget counts them.
        self._waiting = 0
        self._given_up = False
        self._inbox = stream
        self._limits = limits
        self._parser = MessageParser(limits.message_size)
        self._bodies: list[bytes] = []
        # Whether anybody has been given anything to act on.
        self.begun = False
        self._message_codec: Codec = services.codec
        self._encoder: StreamEncoder | None = services.encoders.get(path)
        stream.buffer.refused = self._refused
        stream.buffer.count(_CALL)

    def end_after(self, seconds: float, error: GRPCError) -> None:
        """End the call with this status in so many seconds, wherever its handler stands by then."""
        self._end(error, trio.current_time() + seconds)

    def limit_message(self, size: int) -> None:
        """Refuse messages over this size, too. To be called before the first one is received."""
        self._parser = MessageParser(min(size, self._limits.message_size))

    def _refused(self, error: GRPCError) -> None:
        """Free the parts of the request and end the handler, which may wait for something else and hold some too."""
        self._parser = MessageParser(self._limits.message_size)
        self._end(error, -math.inf)

    @property
    def http2(self) -> Http2Stream:
        """The stream beneath, for a handler that passes bytes on."""
        return self._inbox

    async def send_headers(self, headers: list[tuple[str, str]], *, end: bool = False) -> None:
        """Send headers as they are: those of the answer, or with ``end`` its trailers, or both in one."""
        await self._inbox.send_headers(headers, end_stream=end)
        self._send_initial_metadata_done = True
        self._send_trailing_metadata_done = end

    @property
    def path(self) -> str:
        """The method that was called."""
        return self._method_name

    async def recv_message(self) -> Any:
        """The next message of the client, None at the end. A client that doesn't send its request is not waited
        for for ever; one that streams may take its time.
        """
        patience = float("inf") if self._cardinality.client_streaming else self._limits.request_timeout
        with trio.move_on_after(patience) as scope:
            while not self._bodies:
                data = await self._inbox.buffer.take()
                if not data:
                    if self._parser.held:
                        raise GRPCError(Status.INTERNAL, "the request ended in the middle of a message")
                    if not self._cardinality.client_streaming:
                        raise GRPCError(Status.INTERNAL, "the client sent no request")
                    return None
                held = self._parser.held
                self._bodies = self._parser.feed(data)
                self._inbox.buffer.done(held + len(data) - self._parser.held)
        if not self._cardinality.client_streaming:
            # What comes behind the one request is nobody's.
            self._inbox.buffer.close()
        if scope.cancelled_caught:
            raise GRPCError(Status.DEADLINE_EXCEEDED, f"the request was not there after {patience} s")
        body = self._bodies.pop(0)
        if len(body) < _LARGE:
            message = self._decoded(body)
        else:
            # One of them in a turn of the loop, however many connections send them.
            async with self._turn:
                message = self._decoded(body)
        self.begun = True
        return message

    def _decoded(self, body: bytes) -> Any:
        try:
            return self._message_codec.decode(self._recv_type, body)
        except ValueError as error:
            raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from error

    def hold(self, size: int) -> None:
        """Count so many bytes of replies as held for the client. A call may be given up for what others hold."""
        if size != self._waiting and not self._given_up:
            before, self._waiting = self._waiting, size
            self._replies.held(self, before, size)

    def refuse(self) -> None:
        """End the call: of all replies that wait for their clients to read, too much is held."""
        self.hold(0)
        self._given_up = True
        status = Status.UNAVAILABLE if self.streaming else Status.RESOURCE_EXHAUSTED
        self._end(
            GRPCError(status, "too much waits for clients to read, and this reply is among the largest"), -math.inf
        )

    async def send_message(self, message: Any) -> None:
        """Send a message, or whatever the method's encoder takes. Waits while the client doesn't read."""
        await trio.lowlevel.checkpoint()
        parts: Iterable[bytes] | None = message.pieces if isinstance(message, Encoded) else None
        if parts is None and self._encoder is not None:
            parts = self._encoder(message)
        data = framed(self._message_codec.encode(message)) if parts is None else b""
        # The one reply of a call goes out with its headers and trailers: one write in place of three.
        only = parts is None and not self._cardinality.server_streaming
        if only and not self._send_initial_metadata_done and self._inbox.hold(_HEADERS, data):
            self._send_initial_metadata_done = self._send_message_done = True
            return
        if not self._send_initial_metadata_done:
            await self.send_initial_metadata()
        self._send_message_done = True
        if parts is None:
            await self.send_data(data)
        else:
            for piece in parts:
                await self.send_data(piece)
                await give_way()

    async def send_data(self, data: bytes) -> None:
        """Send what stands in a stream after the headers. Waits while the client doesn't read."""
        counted = len(data) >= _LARGE and not self._waiting
        if counted:
            self.hold(len(data))
        with trio.move_on_after(self._limits.stall_timeout) as scope:
            await self._stream.send_data(data)
        if counted:
            self.hold(0)
        if scope.cancelled_caught:
            raise GRPCError(Status.UNAVAILABLE, "the client does not read")

    async def conclude(self, error: GRPCError | None) -> None:
        """Send the trailers, if that is still possible and hasn't been done."""
        stream = self._inbox
        if self._send_trailing_metadata_done or not stream.writable:
            return
        if error is None and not self._cardinality.server_streaming and not self._send_message_done:
            error = GRPCError(Status.UNKNOWN, "Internal Server Error")
        with trio.CancelScope(shield=True, deadline=trio.current_time() + self._limits.keepalive_timeout):
            if error is None:
                await self.send_trailing_metadata()
            else:
                await self.send_trailing_metadata(
                    status=error.status,
                    status_message=_shortened(error.message),
                    metadata=None if self.begun else _not_begun(error),
                )
        # What the client still wanted to send is of no use now.
        stream.abandon(ErrorCodes.NO_ERROR)


def _not_begun(error: GRPCError) -> dict[str, str]:
    """The trailers that say so."""
    if isinstance(error, Oversized):
        return {NOT_BEGUN: "1", MESSAGE_LIMIT: str(error.limit)}
    return {NOT_BEGUN: "1"}


def _shortened(message: str | None) -> str | None:
    """What of a status's message a header has room for."""
    if message is None or len(message) <= _MESSAGE_LIMIT:
        return message
    half = _MESSAGE_LIMIT // 2
    return f"{message[:half]}…{message[1 - half :]}"
