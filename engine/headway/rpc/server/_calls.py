"""The calls of one server connection. Each runs in the task that has read it, and keeps that task if it waits."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.exceptions import StreamTerminatedError
from grpclib.metadata import Deadline
from grpclib.protocol import AbstractHandler, Stream
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from headway.api import Cardinality, Handler
from headway.rpc._channel import Report
from headway.rpc._limits import Budget, Limits
from headway.rpc._refusals import refused
from headway.rpc._services import Services
from headway.rpc.http2 import Http2Processor, Http2Stream, Request
from headway.rpc.server._answers import answered
from headway.rpc.server._running import Running
from headway.rpc.server._stream import CALL_SIZE, ServerStream
from headway.rpc.server._whole import WholeCall

STOPPING = "the server is stopping"
# These are sent and never raised.
_CANCELED = GRPCError(Status.CANCELLED, "the call was canceled")
_LATE = GRPCError(Status.DEADLINE_EXCEEDED, "the deadline has passed")
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
    """A call in progress.

    Attributes:
        stream: its stream, or None for a whole call that has none yet.
        served: the call as its handler sees it.
        running: what runs of it, or waits.
        scope: the cancel scope that can end it while it waits.
        error: the error to send to the client, or None if the handler has succeeded.
        deadline: the time of Trio's clock when ``error`` ends the call.
        is_open: True if its end must still be sent.
    """

    __slots__ = ("deadline", "error", "is_open", "release", "request", "running", "scope", "served", "stream")

    def __init__(self, request: Request, stream: Http2Stream | None, release: Callable[[], None]) -> None:
        self.stream = stream
        self.request = request
        self.release = release
        self.served: ServerStream | WholeCall | None = None
        self.running: Running | None = None
        self.scope: trio.CancelScope | None = None
        self.error: GRPCError | None = None
        self.deadline = math.inf
        self.is_open = False

    def end(self, error: GRPCError, at: float = -math.inf) -> None:
        """End the call with this error at the given time of Trio's clock, unless it ends earlier."""
        if at < self.deadline:
            self.error, self.deadline = error, at
            if self.scope is not None:
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
        stream_ends: StreamEnds,
    ) -> None:
        self._stream_ends = stream_ends
        self._nursery = nursery
        self._turn = turn
        self._replies = replies
        self._services = services
        self._limits = limits
        self._report = report
        self._begun = begun
        self._ended = ended
        self._calls: dict[Http2Stream, Call] = {}
        # The calls that do not run yet.
        self._accepted: deque[Call] = deque()
        self._stopping = False
        # The task that reads and its scope, while it reads.
        self._reader: tuple[trio.lowlevel.Task, trio.CancelScope] | None = None
        # A whole call that has begun in that task and waits, and the processor that it halts.
        self._waiting: tuple[Call, Http2Processor] | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def accept(self, stream: Stream, headers: Any, release_stream: Callable[[], None]) -> None:
        """Accept a call whose headers have arrived. They are a `Request` here. A task that leads begins it."""
        assert isinstance(stream, Http2Stream)
        self._begun()
        call = self._calls[stream] = Call(headers, stream, release_stream)
        self._accepted.append(call)

    def handler_of(self, request: Request) -> Handler | None:
        """Return the handler for `answer`, or None if the call must be accepted instead."""
        head = request.head
        unusual = head.refused is not None or head.unreadable is not None or head.is_limited or self._stopping
        if unusual or self._reader is None or head.path in self._services.encoders:
            return None
        handler = self._services.handler(head.path)
        unary = handler is not None and handler.cardinality is Cardinality.UNARY_UNARY
        return handler if unary and self._reader[0] is trio.lowlevel.current_task() else None

    def answer(
        self, processor: Http2Processor, stream_id: int, request: Request, handler: Handler, body: bytes
    ) -> None:
        """Answer a call whose only message has arrived. If it waits, it halts the processor, until it is awaited.

        A call that has ended when this returns has had no stream: no frame can have been meant for it.
        """
        assert self._reader is not None
        self._begun()
        call = Call(request, None, processor.close_when_drained)
        whole = WholeCall(
            processor.connection,
            stream_id,
            request,
            handler,
            self._services,
            body,
            request.deadline(),
            partial(self._opened, call, processor, stream_id, handler),
        )
        call.served = whole
        if self._waits(call, self._answer_whole(call, handler, whole), self._reader[1]):
            whole.opened()
            self._waiting = call, processor
            processor.halted = True

    def _opened(self, call: Call, processor: Http2Processor, stream_id: int, handler: Handler) -> ServerStream:
        """Open the stream of a whole call."""
        stream, call.release = processor.adopt(stream_id)
        call.stream = stream
        self._calls[stream] = call
        served = self._served(call, stream, handler, None)
        if processor.connection.is_closing():
            call.end(_CANCELED)
        return served

    @trio.lowlevel.disable_ki_protection
    async def _answer_whole(self, call: Call, handler: Handler, whole: WholeCall) -> None:
        call.is_open = True
        call.error = await self._handled(call, handler, whole, whole.deadline)
        if not call.is_open and call.stream is None:
            # HTTP/2 would not know of a stream that the client has begun.
            whole.http2.abandon(ErrorCodes.INTERNAL_ERROR)

    def cancel(self, stream: Stream) -> None:
        """Cancel a call that the client has canceled."""
        call = self._calls.get(stream)  # type: ignore[call-overload]
        if call is not None:
            call.end(_CANCELED)

    def close(self) -> None:
        """Cancel all calls because the connection is lost."""
        for call in self._calls.values():
            call.end(_CANCELED)

    def stop(self, *, unary: bool = False) -> None:
        """Accept no more calls and end the streaming calls, or all calls if ``unary`` is true."""
        self._stopping = True
        for call in self._calls.values():
            if unary or (call.served is not None and call.served.streaming):
                call.end(GRPCError(Status.UNAVAILABLE, STOPPING))

    def start(self) -> None:
        """Answer the accepted calls in another task, or in several. The task that reads answers them itself."""
        if self._reader is not None and self._reader[0] is trio.lowlevel.current_task():
            return
        ready = [call for call in self._accepted if self._is_ready(call)]
        self._accepted.clear()
        if ready:
            self._start_task(*ready)

    def _start_task(self, *calls: Call) -> None:
        self._nursery.start_soon(self.lead, _nothing_more, _nothing, deque(calls), name="rpc calls")

    def _is_ready(self, call: Call) -> bool:
        """Return True if some of the request has arrived. Otherwise start a task for the call, which would wait."""
        assert call.stream is not None
        if call.stream.buffer.ready:
            return True
        self._start_task(call)
        return False

    @trio.lowlevel.enable_ki_protection
    async def lead(
        self, more: Callable[[], Awaitable[bool]], follow: Callable[[], None], accepted: deque[Call] | None = None
    ) -> None:
        """Answer calls, by default the accepted ones and those that ``more`` accepts, until it returns False.

        A call runs in this task, and keeps it if it waits. Each other call then gets a task, and ``follow`` starts one
        that leads. So a call that need not wait takes no task, no cancel scope and no turn of the loop.

        A KeyboardInterrupt is raised only in handlers: a call that waits for Trio must be handed to it.
        """
        accepted = self._accepted if accepted is None else accepted
        call: Call | None = None
        try:
            with trio.CancelScope() as scope:
                reader = (trio.lowlevel.current_task(), scope)
                while (call := self._next_waiting(accepted, scope)) is None:
                    if accepted is self._accepted:
                        self._reader = reader
                    if not await more():
                        return
                    self._reader = None
                follow()
                while accepted:
                    self._start_task(accepted.popleft())
                await _going_on(call)
            # The scope may have been canceled.
            if call is not None and self._waits_to_conclude(call):
                await _going_on(call)
        except Exception as error:
            if call is None:
                # `more` has failed. The calls that it has accepted end with the connection.
                self._reader = None
                self.start()
                raise
            self._fail(call, error)
        finally:
            if call is not None:
                self._end(call)

    def _next_waiting(self, accepted: deque[Call], scope: trio.CancelScope) -> Call | None:
        """Run calls in a scope, which has the deadline of each, until one waits. Return that. The others have ended."""
        if accepted is self._accepted and self._waiting is not None:
            (call, processor), self._waiting = self._waiting, None
            processor.halted = False
            return call
        while accepted:
            call = accepted.popleft()
            if accepted is self._accepted and not self._is_ready(call):
                continue
            if self._waits(call, self._answer(call), scope):
                return call
        return None

    def _waits(self, call: Call, steps: Coroutine[Any, Any, None], scope: trio.CancelScope) -> bool:
        """Run a call in a scope, which has its deadline. Return True if it waits, or False if it has ended."""
        call.scope = scope
        try:
            call.running = Running(steps)
            if call.running.begin() or self._waits_to_conclude(call):
                return True
        except Exception as error:  # noqa: BLE001  # one call must not end the others of the server
            self._fail(call, error)
        except BaseException:
            self._end(call)
            raise
        self._end(call)
        # It belongs to the next one.
        call.scope = None
        if scope.deadline != math.inf:
            scope.deadline = math.inf
        return False

    def _fail(self, call: Call, error: Exception) -> None:
        self._report("HTTP/2", error)
        if isinstance(call.served, WholeCall):
            call.served.opened()
        if call.stream is not None:
            call.stream.abandon(ErrorCodes.INTERNAL_ERROR)

    def _end(self, call: Call) -> None:
        """Forget a call that has ended."""
        stream = call.stream
        if stream is not None and self._calls.pop(stream, None) is None:
            return
        if call.served is not None:
            call.served.hold(0)
        # Break the reference cycles. Otherwise the request stays in memory until Python's garbage collector runs.
        call.served = call.running = call.error = None
        if stream is not None:
            stream.buffer.close()
            stream.buffer.refused = None
        call.release()
        self._ended()

    @trio.lowlevel.disable_ki_protection
    async def _answer(self, call: Call) -> None:
        """Answer a call, up to its end, which is sent later if the call is open."""
        stream, request = call.stream, call.request
        assert stream is not None
        if not stream.writable:
            # The stream was reset before this began.
            return
        head = request.head
        if head.refused is not None:
            # These errors: the client has ended the call, or the connection was lost.
            with contextlib.suppress(StreamTerminatedError, ProtocolError):
                await _reject(call, head.refused, self._limits.wire.keepalive_timeout)
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
        call.served = served = self._served(call, stream, handler or _NO_HANDLER, deadline)
        call.is_open = True
        if error is None:
            assert handler is not None
            served.metadata = head.metadata()
            if served.streaming:
                with self._stream_ends.one_more() as served.apart:
                    error = await self._handled(call, handler, served, deadline)
            else:
                error = await self._handled(call, handler, served, deadline)
        # The tracebacks of its causes refer to this frame: a cycle until the garbage collector runs.
        call.error, error = error, None

    def _served(self, call: Call, stream: Http2Stream, handler: Handler, deadline: Deadline | None) -> ServerStream:
        path = call.request.head.path
        return ServerStream(
            stream,
            call.request,
            handler,
            self._services,
            self._limits,
            deadline,
            lambda error, at: call.end(refused(path, error, self._report), at),
            turn=self._turn,
            replies=self._replies,
        )

    async def _handled(
        self, call: Call, handler: Handler, stream: ServerStream | WholeCall, deadline: Deadline | None
    ) -> GRPCError | None:
        """Run the handler. Return the error to send to the client, or None if it succeeded."""
        if deadline is not None:
            left = deadline.time_remaining() + stream.apart
            if left <= 0:
                return _LATE
            call.end(_LATE, trio.current_time() + left)
        try:
            await answered(handler, stream)
        except GRPCError as error:
            # The traceback's frames hold the request and the error itself: a cycle until the garbage collector runs.
            return error.with_traceback(None)
        except (StreamTerminatedError, ProtocolError):
            # The client ended the call, or the connection was lost.
            call.is_open = False
        except Exception as error:  # noqa: BLE001  # what is not a refusal is reported and sent as UNKNOWN
            return refused(stream.path, error, self._report)
        return None

    def _waits_to_conclude(self, call: Call) -> bool:
        """Send the end of a call that has been answered or canceled. Return True if the call waits until it is sent."""
        served, error = call.served, call.error
        if not call.is_open or served is None or served.finish(error):
            return False
        call.is_open = False
        call.running = Running(_conclude(served, error))
        return call.running.begin()


def _nothing() -> None:
    """Do nothing."""


async def _nothing_more() -> bool:
    """Return False."""
    return False


async def _going_on(call: Call) -> None:
    assert call.running is not None
    await call.running


async def _conclude(served: ServerStream | WholeCall, error: GRPCError | None) -> None:
    with contextlib.suppress(StreamTerminatedError, ProtocolError):
        await served.conclude(error)


async def _reject(call: Call, status: str, patience: float) -> None:
    """Reject a request that is not gRPC with an HTTP status, when the request has ended or after a short time.

    An earlier answer would close the stream, and the rest of the request would count as frames on a closed stream.
    Until the answer is sent, the call counts as one whose request is incomplete, and its data is discarded. A client
    that doesn't read the answer within ``patience`` seconds doesn't get it.
    """
    stream = call.stream
    assert stream is not None
    stream.buffer.close()
    stream.buffer.count(CALL_SIZE)
    # GRPCError: the memory is needed for other requests.
    with trio.move_on_after(_REJECTION_DELAY) as call.scope, contextlib.suppress(GRPCError):
        await stream.buffer.wait_end()
    if stream.writable:
        with trio.move_on_after(patience):
            await stream.send_headers([(":status", status)], end_stream=True)
        stream.abandon(ErrorCodes.NO_ERROR)


async def _never_called(_: Any, __: Any) -> None:
    """Stand in for a missing handler."""


_NO_HANDLER = Handler(_never_called, Cardinality.UNARY_UNARY, object, object)
