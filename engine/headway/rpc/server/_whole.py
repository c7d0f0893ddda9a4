"""A unary call whose request has arrived whole, which is answered without a stream of its own as long as it can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpclib import GRPCError
from grpclib.const import Status
from grpclib.metadata import Deadline

from headway.api import Call, Handler
from headway.errors import HeadwayError
from headway.rpc._services import Services
from headway.rpc._wire import Framed, framed
from headway.rpc.http2 import Http2Connection, Http2Stream, Request, fits_whole, send_whole
from headway.rpc.server._stream import HEADERS, OK, ServerStream


class WholeCall(Call):
    """A call over the network whose only message has arrived with its headers.

    Most of these are answered before the next frame is handled. HTTP/2's streams, windows and buffers, and what grpclib
    needs, take longer than such an answer. So they are made only for a call that waits, fails, or has a reply that
    cannot be sent at once. From then on a `ServerStream` does the work, and the handler keeps this object.

    Attributes:
        path: the path of the called method.
        deadline: the deadline of the call, or None.
        begun: True if the handler has received the message.
    """

    encodes = True
    streaming = False

    def __init__(
        self,
        connection: Http2Connection,
        stream_id: int,
        request: Request,
        handler: Handler,
        services: Services,
        body: bytes,
        deadline: Deadline | None,
        open_stream: Callable[[], ServerStream],
    ) -> None:
        super().__init__(request.head.metadata())
        self.path = request.head.path
        self.peer = connection.get_peer()
        self.encrypted = connection.encrypted
        self.deadline = deadline
        self.begun = False
        self._connection = connection
        self._id = stream_id
        self._request_type, self._reply_type = handler.request_type, handler.reply_type
        self._codec = services.codec
        self._body = body
        self._open_stream = open_stream
        self._stream: ServerStream | None = None
        # The reply, until it is sent with the end of the call.
        self._reply: bytes | None = None

    def opened(self) -> ServerStream:
        """Return the stream of the call. The first time, this opens it, and it takes the reply over."""
        stream = self._stream
        if stream is None:
            stream = self._stream = self._open_stream()
            stream.begun = self.begun
            reply, self._reply = self._reply, None
            if reply is not None:
                stream.queue(reply)
        return stream

    @property
    def http2(self) -> Http2Stream:
        """The HTTP/2 stream."""
        return self.opened().http2

    def received(self) -> Any:
        """Return the message.

        Raises:
            GRPCError: it is invalid.
        """
        try:
            message = self._codec.decode(self._request_type, self._body)
        except ValueError as error:
            raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from error
        self.begun = True
        if self._stream is not None:
            self._stream.begun = True
        return message

    async def send_message(self, message: Any) -> None:
        """Send the reply. If it can be sent at once, it waits for the end of the call, because its guard may fail."""
        if self._stream is None and message.__class__ is self._reply_type:
            data = framed(self._codec.encode(message))
            connection = self._connection
            if connection.write_ready.is_set() and not connection.is_closing() and fits_whole(connection.h2, data):
                self._reply = data
                return
            message = Framed([data])
        await self.opened().send_message(message)

    def hold(self, size: int) -> None:
        """Charge ``size`` bytes of the reply to the budget. That may end this call or another one."""
        if size or self._stream is not None:
            self.opened().hold(size)

    def end_after(self, seconds: float, error: HeadwayError) -> None:
        """End the call with this error after ``seconds``, whatever its handler is doing then."""
        self.opened().end_after(seconds, error)

    def finish(self, error: GRPCError | None) -> bool:
        """Send the usual end, if it can be sent at once. Return False if `conclude` is needed."""
        if error is None and self._reply is not None:
            # Nothing has waited since it was found to fit.
            send_whole(self._connection.h2, self._id, HEADERS, self._reply, OK)
            return True
        return self.opened().finish(error)

    async def conclude(self, error: GRPCError | None) -> None:
        """Send the trailers."""
        await self.opened().conclude(error)
