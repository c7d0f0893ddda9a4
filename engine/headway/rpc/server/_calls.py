"""The calls of one server connection. Each runs as a Trio task, from its headers to its trailers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.exceptions import StreamTerminatedError
from grpclib.metadata import Deadline
from grpclib.protocol import AbstractHandler, Stream
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from headway.api import Cardinality, Code, Handler, Interrupted
from headway.errors import HeadwayError
from headway.rpc._channel import Report
from headway.rpc._limits import Budget, Limits
from headway.rpc._refusals import refused
from headway.rpc._services import Services
from headway.rpc._told import told
from headway.rpc.http2 import Http2Stream, Request
from headway.rpc.server._stream import CALL_SIZE, ServerStream
from headway.rpc.server._transport import Outbox

STOPPING = "the server is stopping"
# The seconds to wait for the end of a request that is not gRPC before it is rejected.
_REJECTION_DELAY = 1.0


# The seconds between the ends of two streams. One takes 0.1 ms or more.
_APART = 0.0003


class StreamEnds:
    """The number of streams that are open on a server.

    All that are due are ended in one turn of the loop, and a client can give thousands of them the same deadline. So a
    stream ends the later, the more others were open when it began.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def one_more(self) -> Iterator[float]:
        """Count a stream while the block runs. Yield the seconds by which it ends later than it is due."""
        apart = self.count * _APART
        self.count += 1
        try:
            yield apart
        finally:
            self.count -= 1


class Call:
    """A call in progress."""

    __slots__ = ("begun", "error", "scope", "stream")

    def __init__(self, begun: int) -> None:
        # The time when it began, as the outbox counts time.
        self.begun = begun
        self.scope = trio.CancelScope()
        self.stream: ServerStream | None = None
        # The status sent to the client if the scope's deadline passes.
        self.error: GRPCError | None = None

    def end(self, error: GRPCError, at: float = -math.inf) -> None:
        """End the call with this error at the given time of Trio's clock, unless it ends earlier."""
        if at < self.scope.deadline:
            self.error = error
            self.scope.deadline = at


class Calls(AbstractHandler):
    """The calls of one connection, as grpclib's handler. grpclib calls its methods from within `data_received`.

    ``begun`` and ``ended`` are called for each call.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        services: Services,
        limits: Limits,
        report: Report,
        *,
        begun: Callable[[], None],
        ended: Callable[[], None],
        turn: trio.Lock,
        replies: Budget,
        outbox: Outbox,
        stream_ends: StreamEnds,
    ) -> None:
        self._stream_ends = stream_ends
        self._outbox = outbox
        self._nursery = nursery
        self._turn = turn
        self._replies = replies
        self._services = services
        self._limits = limits
        self._report = report
        self._begun = begun
        self._ended = ended
        self._calls: dict[Http2Stream, Call] = {}
        self._stopping = False

    def __bool__(self) -> bool:
        return bool(self._calls)

    def accept(self, stream: Stream, headers: Any, release_stream: Callable[[], None]) -> None:
        """Start a call whose headers have arrived. They are a `Request` here."""
        assert isinstance(stream, Http2Stream)
        self._begun()
        call = self._calls[stream] = Call(self._outbox.begin())
        self._nursery.start_soon(self._answer, call, stream, headers, release_stream, name="rpc call")

    def cancel(self, stream: Stream) -> None:
        """Cancel a call that the client has canceled."""
        call = self._calls.get(stream)  # type: ignore[call-overload]
        if call is not None:
            call.scope.cancel()

    def close(self) -> None:
        """Cancel all calls because the connection is lost."""
        for call in self._calls.values():
            call.scope.cancel()

    def stop(self, *, unary: bool = False) -> None:
        """Accept no more calls and end the streaming calls, or all calls if ``unary`` is true."""
        self._stopping = True
        for call in self._calls.values():
            if unary or (call.stream is not None and call.stream.streaming):
                call.end(GRPCError(Status.UNAVAILABLE, STOPPING))

    async def _answer(self, call: Call, stream: Http2Stream, request: Request, release: Callable[[], None]) -> None:
        try:
            await self._checked(call, stream, request)
        except (StreamTerminatedError, ProtocolError):
            # The client ended the call, or the connection was lost.
            pass
        except Exception as error:  # noqa: BLE001  # one call must not end the others of the server
            self._report("HTTP/2", error)
            stream.abandon(ErrorCodes.INTERNAL_ERROR)
        finally:
            del self._calls[stream]
            stream.buffer.close()
            # Break the reference cycle. Otherwise the request stays in memory until Python's garbage collector runs.
            call.stream = None
            stream.buffer.refused = None
            release()
            self._ended()
            self._outbox.end(call.begun)

    async def _checked(self, call: Call, stream: Http2Stream, request: Request) -> None:
        if not stream.writable:
            # The stream was reset before this task began.
            return
        head = request.head
        if head.refused is not None:
            await _reject(call, stream, head.refused, self._limits.wire.keepalive_timeout)
            return
        handler = self._services.handler(head.path)
        error = None
        deadline = None
        if handler is None:
            error = GRPCError(Status.UNIMPLEMENTED, f"Method not found: {head.path}")
        elif self._stopping:
            error = GRPCError(Status.UNAVAILABLE, STOPPING)
        else:
            try:
                deadline = request.deadline()
            except GRPCError as malformed:
                error = malformed.with_traceback(None)
        served = ServerStream(
            stream,
            request,
            handler or _NO_HANDLER,
            self._services,
            self._limits,
            deadline,
            lambda error, at: call.end(refused(head.path, error, self._report), at),
            turn=self._turn,
            replies=self._replies,
        )
        try:
            if error is None:
                assert handler is not None
                served.metadata = head.metadata()
                with self._stream_ends.one_more() if served.streaming else contextlib.nullcontext(0.0) as served.apart:
                    error = await self._handled(call, handler, served, deadline)
            await served.conclude(error)
        finally:
            served.hold(0)
            # The tracebacks of its causes refer to this frame: a cycle until the garbage collector runs.
            error = None

    async def _handled(
        self, call: Call, handler: Handler, stream: ServerStream, deadline: Deadline | None
    ) -> GRPCError | None:
        """Run the handler. Return the error to send to the client, or None if it succeeded."""
        call.stream = stream
        if deadline is not None:
            late = GRPCError(Status.DEADLINE_EXCEEDED, "the deadline has passed")
            call.end(late, trio.current_time() + deadline.time_remaining() + stream.apart)
        try:
            with call.scope:
                await _serve(handler, stream)
                return None
        except GRPCError as error:
            # The traceback's frames hold the request and the error itself: a cycle until the garbage collector runs.
            return error.with_traceback(None)
        except (StreamTerminatedError, ProtocolError):
            raise
        except Exception as error:  # noqa: BLE001  # what is not a refusal is reported and sent as UNKNOWN
            return refused(stream.path, error, self._report)
        if call.error is not None and trio.current_time() >= call.scope.deadline:
            return call.error
        return GRPCError(Status.CANCELLED, "the call was canceled")


async def _serve(handler: Handler, stream: ServerStream) -> None:
    if handler.admit is None:
        await _answer(handler, stream)
    else:
        async with handler.admit(stream):
            await _answer(handler, stream)


async def _answer(handler: Handler, stream: ServerStream) -> None:
    if handler.cardinality.client_streaming:
        both = _Both(stream)
        try:
            await handler.func(stream, both)
        except HeadwayError as error:
            raise both.original(error) from None
        return
    request = await stream.recv_message()
    if not handler.cardinality.server_streaming:
        await stream.send_message(await handler.func(stream, request))
        return
    async with handler.func(stream, request) as items:
        async for item in items:
            await stream.send_message(item)


class _Both:
    """The messages of a call in both directions, for its service. They fail with errors of a call (`headway.api`)."""

    def __init__(self, stream: ServerStream) -> None:
        self._stream = stream
        self._failed: tuple[HeadwayError, Exception] | None = None

    async def recv_message(self) -> Any:
        with self._failing():
            return await self._stream.recv_message()

    async def send_message(self, message: Any) -> None:
        with self._failing():
            await self._stream.send_message(message)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except GRPCError as error:
            self._failed = told(error), error
            raise self._failed[0] from error
        except (StreamTerminatedError, ProtocolError) as error:
            self._failed = Interrupted(Code.UNAVAILABLE, str(error)), error
            raise self._failed[0] from error

    def original(self, error: HeadwayError) -> Exception:
        """Return what has failed, if the service lets that error end the call."""
        failed = self._failed
        return failed[1] if failed is not None and failed[0] is error else error


async def _reject(call: Call, stream: Http2Stream, status: str, patience: float) -> None:
    """Reject a request that is not gRPC with an HTTP status, when the request has ended or after a short time.

    An earlier answer would close the stream, and the rest of the request would count as frames on a closed stream.
    Until the answer is sent, the call counts as one whose request is incomplete, and its data is discarded. A client
    that doesn't read the answer within ``patience`` seconds doesn't get it.
    """
    stream.buffer.close()
    stream.buffer.count(CALL_SIZE)
    # GRPCError: the memory is needed for other requests.
    with call.scope, trio.move_on_after(_REJECTION_DELAY), contextlib.suppress(GRPCError):
        await stream.buffer.wait_end()
    if stream.writable:
        with trio.move_on_after(patience):
            await stream.send_headers([(":status", status)], end_stream=True)
        stream.abandon(ErrorCodes.NO_ERROR)


async def _never_called(_: Any, __: Any) -> None:
    """Stand in for a missing handler."""


_NO_HANDLER = Handler(_never_called, Cardinality.UNARY_UNARY, object, object)
