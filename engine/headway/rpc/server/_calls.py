"""The calls of one server connection. Each runs in the task that has read it, and keeps that task if it waits."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
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
from headway.rpc.server._running import Running
from headway.rpc.server._stream import CALL_SIZE, ServerStream

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
        served: the call as its handler sees it.
        running: what runs of it, or waits.
        scope: the cancel scope that can end it while it waits.
        error: the error to send to the client, or None if the handler has succeeded.
        deadline: the time of Trio's clock when ``error`` ends the call.
        is_open: True if its end must still be sent.
    """

    __slots__ = ("deadline", "error", "is_open", "release", "request", "running", "scope", "served", "stream")

    def __init__(self, stream: Http2Stream, request: Request, release: Callable[[], None]) -> None:
        self.stream = stream
        self.request = request
        self.release = release
        self.served: ServerStream | None = None
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

    def __bool__(self) -> bool:
        return bool(self._calls)

    def accept(self, stream: Stream, headers: Any, release_stream: Callable[[], None]) -> None:
        """Accept a call whose headers have arrived. They are a `Request` here. A task that leads begins it."""
        assert isinstance(stream, Http2Stream)
        self._begun()
        call = self._calls[stream] = Call(stream, headers, release_stream)
        self._accepted.append(call)

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
        """Answer the accepted calls in another task, or in several."""
        ready = [call for call in self._accepted if self._is_ready(call)]
        self._accepted.clear()
        if ready:
            self._start_task(*ready)

    def _start_task(self, *calls: Call) -> None:
        self._nursery.start_soon(self.lead, _nothing_more, _nothing, deque(calls), name="rpc calls")

    def _is_ready(self, call: Call) -> bool:
        """Return True if some of the request has arrived. Otherwise start a task for the call, which would wait."""
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
                while (call := self._next_waiting(accepted, scope)) is None:
                    if not await more():
                        return
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
                self.start()
                raise
            self._fail(call, error)
        finally:
            if call is not None:
                self._end(call)

    def _next_waiting(self, accepted: deque[Call], scope: trio.CancelScope) -> Call | None:
        """Run calls in a scope, which has the deadline of each, until one waits. Return that. The others have ended."""
        while accepted:
            call = accepted.popleft()
            if accepted is self._accepted and not self._is_ready(call):
                continue
            call.scope = scope
            try:
                call.running = Running(self._answer(call))
                if call.running.begin() or self._waits_to_conclude(call):
                    return call
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
        return None

    def _fail(self, call: Call, error: Exception) -> None:
        self._report("HTTP/2", error)
        call.stream.abandon(ErrorCodes.INTERNAL_ERROR)

    def _end(self, call: Call) -> None:
        """Forget a call that has ended."""
        if self._calls.pop(call.stream, None) is None:
            return
        if call.served is not None:
            call.served.hold(0)
        call.stream.buffer.close()
        # Break the reference cycles. Otherwise the request stays in memory until Python's garbage collector runs.
        call.served = call.running = call.error = call.stream.buffer.refused = None
        call.release()
        self._ended()

    @trio.lowlevel.disable_ki_protection
    async def _answer(self, call: Call) -> None:
        """Answer a call, up to its end, which is sent later if the call is open."""
        stream, request = call.stream, call.request
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
        call.served = served = ServerStream(
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

    async def _handled(
        self, call: Call, handler: Handler, stream: ServerStream, deadline: Deadline | None
    ) -> GRPCError | None:
        """Run the handler. Return the error to send to the client, or None if it succeeded."""
        if deadline is not None:
            left = deadline.time_remaining() + stream.apart
            if left <= 0:
                return _LATE
            call.end(_LATE, trio.current_time() + left)
        try:
            await (_answer if handler.admit is None else _admitted)(handler, stream)
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


async def _conclude(served: ServerStream, error: GRPCError | None) -> None:
    with contextlib.suppress(StreamTerminatedError, ProtocolError):
        await served.conclude(error)


async def _admitted(handler: Handler, stream: ServerStream) -> None:
    assert handler.admit is not None
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


async def _reject(call: Call, status: str, patience: float) -> None:
    """Reject a request that is not gRPC with an HTTP status, when the request has ended or after a short time.

    An earlier answer would close the stream, and the rest of the request would count as frames on a closed stream.
    Until the answer is sent, the call counts as one whose request is incomplete, and its data is discarded. A client
    that doesn't read the answer within ``patience`` seconds doesn't get it.
    """
    stream = call.stream
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
