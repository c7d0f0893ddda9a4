"""The channel inside a process: a caller sees what a server over the network would show."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import socket
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import grpclib.client
import grpclib.server
import pytest
import trio
import trio.testing
from grpclib import GRPCError
from grpclib.const import Cardinality, Handler, Status

from headway.resource import pb
from headway.rpc import InProcessChannel
from headway.service import unary_handlers

Serve = Callable[[Any], Awaitable[None]]


class Service:
    """Handlers by path. A handler without a streaming name is unary."""

    def __init__(self, **handlers: Serve) -> None:
        self._handlers = handlers

    def __mapping__(self) -> dict[str, Handler]:
        return {
            f"/test/{name}": Handler(
                handler,
                Cardinality.UNARY_STREAM if name.startswith("stream") else Cardinality.UNARY_UNARY,
                pb.Type,
                pb.Type,
            )
            for name, handler in self._handlers.items()
        }


REQUEST = pb.Type(kind="Request")


@dataclass
class Seen:
    """The messages that a caller received, and how the call ended."""

    messages: list[object] = field(default_factory=list)
    status: Status = Status.OK
    message: str | None = None

    @contextlib.contextmanager
    def ending(self) -> Any:
        try:
            yield
        except GRPCError as error:
            self.status, self.message = error.status, error.message


async def in_process(path: str, service: Service, reported: list[BaseException]) -> Seen:
    channel, seen = InProcessChannel(service, report=lambda _, error: reported.append(error)), Seen()
    with seen.ending():
        if "stream" in path:
            async with channel.stream(path, REQUEST) as items:
                async for item in items:
                    seen.messages.append(item)
        else:
            seen.messages.append(await channel.unary(path, REQUEST, pb.Type))
    return seen


async def over_a_wire(path: str, service: Service) -> Seen:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server, seen = grpclib.server.Server([service]), Seen()
        await server.start(sock=listener)
        channel = grpclib.client.Channel(*listener.getsockname())
        try:
            with seen.ending():
                if "stream" in path:
                    method: Any = grpclib.client.UnaryStreamMethod(channel, path, pb.Type, pb.Type)
                    async with method.open() as stream:
                        await stream.send_message(REQUEST, end=True)
                        async for item in stream:
                            seen.messages.append(item)
                else:
                    unary: Any = grpclib.client.UnaryUnaryMethod(channel, path, pb.Type, pb.Type)
                    seen.messages.append(await unary(REQUEST))
        finally:
            channel.close()
            server.close()
            await server.wait_closed()
    return seen


def raising(make: Callable[[], Exception], *, after: int = 0) -> Serve:
    async def serve(stream: Any) -> None:
        request = await stream.recv_message()
        for number in range(after):
            await stream.send_message(pb.Type(group=request.kind, kind=str(number)))
        raise make()

    return serve


def sending(*messages: object) -> Serve:
    async def serve(stream: Any) -> None:
        await stream.recv_message()
        for message in messages:
            await stream.send_message(message)

    return serve


ENDINGS: list[tuple[str, Serve, bool]] = [
    ("refuses", raising(lambda: GRPCError(Status.NOT_FOUND, "name 'x' is not there")), False),
    ("refuses_without_words", raising(lambda: GRPCError(Status.ABORTED)), False),
    (
        "refuses_in_other_letters",
        raising(lambda: GRPCError(Status.INVALID_ARGUMENT, "größer als 100 % ist zu viel")),
        False,
    ),
    ("refuses_after_its_answer", raising(lambda: GRPCError(Status.DATA_LOSS, "late"), after=1), False),
    ("crashes", raising(lambda: ValueError("a secret")), True),
    ("crashes_after_its_answer", raising(lambda: ValueError("a secret"), after=1), True),
    ("crashes_in_a_group", raising(lambda: ExceptionGroup("two", [GRPCError(Status.NOT_FOUND, "x")])), True),
    ("times_out", raising(lambda: TimeoutError("slow")), True),
    ("stops", raising(lambda: StopAsyncIteration()), True),
    ("answers", sending(pb.Type(kind="Reply")), False),
    ("answers_nothing", sending(), True),
    ("answers_something_else", sending(pb.Id(name="x")), True),
    ("stream_answers", sending(pb.Type(kind="One"), pb.Type(kind="Two")), False),
    ("stream_answers_nothing", sending(), False),
    ("stream_refuses", raising(lambda: GRPCError(Status.NOT_FOUND, "no")), False),
    ("stream_refuses_in_the_middle", raising(lambda: GRPCError(Status.OUT_OF_RANGE, "too far"), after=2), False),
    ("stream_crashes", raising(lambda: ValueError("a secret")), True),
    ("stream_crashes_in_the_middle", raising(lambda: ValueError("a secret"), after=2), True),
    ("stream_crashes_by_stopping", raising(lambda: StopAsyncIteration(), after=2), True),
]


@pytest.mark.parametrize(("name", "serve", "crashes"), ENDINGS, ids=lambda each: each if isinstance(each, str) else "")
def test_in_process_caller_sees_the_same_as_a_remote_one(name: str, serve: Serve, crashes: bool) -> None:
    """Messages, status and words are equal. A missing answer is UNKNOWN, and reported in full."""
    path, service, reported = f"/test/{name}", Service(**{name: serve}), list[BaseException]()
    wire = asyncio.run(over_a_wire(path, service))
    assert trio.run(in_process, path, service, reported) == wire
    assert (len(reported) == 1) is crashes
    if crashes:
        assert (wire.status, wire.message) == (Status.UNKNOWN, "Internal Server Error")


@pytest.mark.parametrize("path", ["/test/nothing", "/test/stream_nothing"])
def test_unknown_method_is_unimplemented(path: str) -> None:
    """The message names the path, as a gRPC server's does, and nothing is reported. grpclib's own client does not get
    this far: it insists on a header that its server's answer lacks.
    """
    reported: list[BaseException] = []
    ours = trio.run(in_process, path, Service(), reported)
    assert (ours.status, ours.message) == (Status.UNIMPLEMENTED, f"Method not found: {path}")
    assert reported == []


async def test_wrapper_around_a_handler_is_called() -> None:
    """The handler may be able to answer without a stream, and the wrapper may copy its attributes."""

    async def answer(request: pb.Type) -> pb.Type:
        return pb.Type(group=request.kind)

    bare = unary_handlers("test", unary=(answer, pb.Type, pb.Type))["/test/unary"].func
    called: list[str] = []

    @functools.wraps(bare)
    async def wrapped(stream: Any) -> None:
        called.append("wrapped")
        await bare(stream)

    for handler in (bare, wrapped):
        reply = await InProcessChannel(Service(unary=handler)).unary("/test/unary", REQUEST, pb.Type)
        assert reply.group == "Request"
    assert called == ["wrapped"]


async def test_in_process_channel_copies_nothing() -> None:
    """A handler gets the caller's own request and metadata, and a caller the handler's own messages."""
    replies = [pb.Type(kind="One"), pb.Type(kind="Two")]
    requests: list[tuple[object, object]] = []

    async def serve(stream: Any) -> None:
        requests.append((await stream.recv_message(), stream.metadata))
        for reply in replies[: len(requests)]:
            await stream.send_message(reply)

    channel, metadata = InProcessChannel(Service(call=serve, stream_call=serve)), {"who": "me"}
    assert await channel.unary("/test/call", REQUEST, pb.Type, metadata=metadata) is replies[0]
    async with channel.stream("/test/stream_call", REQUEST, metadata=metadata) as items:
        assert [id(item) async for item in items] == [id(reply) for reply in replies]
    for request, given in requests:
        assert request is REQUEST
        assert given is metadata


class Recorder:
    """A streaming handler that records its progress."""

    def __init__(self, wait: Callable[[], Awaitable[object]] | None = None) -> None:
        self.wait = wait
        self.log: list[str] = []

    async def __call__(self, stream: Any) -> None:
        self.log.append("begun")
        try:
            for number in range(3):
                await stream.send_message(number)
                self.log.append(f"sent {number}")
            if self.wait is not None:
                await self.wait()
        except BaseException as error:
            self.log.append(type(error).__name__)
            raise
        finally:
            self.log.append("ended")


def recorded(wait: Callable[[], Awaitable[object]] | None = None) -> tuple[InProcessChannel, Recorder]:
    recorder = Recorder(wait)
    return InProcessChannel(Service(stream=recorder.__call__)), recorder


async def test_handler_runs_only_as_far_as_its_reader() -> None:
    """A slow reader delays its own handler. There is no buffer between the two."""
    channel, recorder = recorded()
    async with channel.stream("/test/stream", REQUEST) as items:
        assert recorder.log == []
        assert await anext(items) == 0
        assert recorder.log == ["begun"]
        assert await anext(items) == 1
        assert recorder.log == ["begun", "sent 0"]


async def test_leaving_the_block_early_closes_the_handler() -> None:
    """The handler is closed at its pending send, and has cleaned up when the block has been left."""
    channel, recorder = recorded()
    async with channel.stream("/test/stream", REQUEST) as items:
        await anext(items)
    assert recorder.log == ["begun", "GeneratorExit", "ended"]
    with pytest.raises(StopAsyncIteration):
        await anext(items)


async def test_error_in_the_block_closes_the_handler_and_propagates() -> None:
    """The error belongs to the reader and does not reach the handler."""
    channel, recorder = recorded()

    async def read() -> None:
        async with channel.stream("/test/stream", REQUEST) as items:
            await anext(items)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await read()
    assert recorder.log == ["begun", "GeneratorExit", "ended"]


async def test_canceled_reader_cancels_its_waiting_handler(autojump_clock: trio.testing.MockClock) -> None:
    """The handler sees Cancelled at its own await and cleans up before the reader continues."""
    channel, recorder = recorded(trio.sleep_forever)
    read: list[object] = []
    with trio.move_on_after(5) as scope:
        async with channel.stream("/test/stream", REQUEST) as items:
            async for item in items:
                read.append(item)
    assert scope.cancelled_caught
    assert read == [0, 1, 2]
    assert recorder.log[-2:] == ["Cancelled", "ended"]
    assert autojump_clock.current_time() == 5


def test_exception_thrown_into_a_waiting_reader_reaches_the_handler() -> None:
    """A run that is torn down closes its coroutines at their current await, and the handler cleans up."""

    @types.coroutine
    def trap() -> Generator[str, None, None]:
        yield "a trap"

    channel, recorder = recorded(trap)

    async def read() -> None:
        async with channel.stream("/test/stream", REQUEST) as items:
            async for _ in items:
                pass

    reader = read()
    assert reader.send(None) == "a trap"
    with pytest.raises(KeyboardInterrupt):
        reader.throw(KeyboardInterrupt())
    assert recorder.log[-2:] == ["KeyboardInterrupt", "ended"]


async def test_handler_that_catches_its_own_cancellation_finishes() -> None:
    """The handler's own scope is canceled, and Trio's rules apply to it."""

    async def patient() -> None:
        with trio.move_on_after(0.001):
            await trio.sleep_forever()

    channel, recorder = recorded(patient)
    async with channel.stream("/test/stream", REQUEST) as items:
        assert [item async for item in items] == [0, 1, 2]
    assert recorder.log[-1] == "ended"
    assert "Cancelled" not in recorder.log


async def test_handler_uses_the_clock_of_its_reader(autojump_clock: trio.testing.MockClock) -> None:
    """Virtual time works in the handler, too: an hour between two messages costs nothing."""

    async def serve(stream: Any) -> None:
        for number in range(3):
            await trio.sleep(3600)
            await stream.send_message(number)

    async with InProcessChannel(Service(stream=serve)).stream("/test/stream", REQUEST) as items:
        times = [autojump_clock.current_time() async for _ in items]
    assert times == [3600, 7200, 10800]


async def test_calls_create_no_task() -> None:
    """A handler runs in its caller's own task, unary or streaming."""
    tasks: list[object] = []

    async def serve(stream: Any) -> None:
        tasks.append(trio.lowlevel.current_task())
        await trio.lowlevel.checkpoint()
        await stream.send_message(REQUEST)

    before = trio.lowlevel.current_statistics().tasks_living
    channel = InProcessChannel(Service(call=serve, stream=serve))
    await channel.unary("/test/call", REQUEST, pb.Type)
    async with channel.stream("/test/stream", REQUEST) as items:
        await anext(items)
        assert trio.lowlevel.current_statistics().tasks_living == before
    assert tasks == [trio.lowlevel.current_task()] * 2


async def test_stream_that_is_closed_while_another_task_reads_it_ends_there() -> None:
    """The reader's cancellation stays a cancellation, the handler is not blamed, and a reader that is woken ends."""
    woken, ends = trio.Event(), list[str]()
    for cancels in (True, False):
        lot = trio.Event()
        channel, recorder = recorded(lot.wait)

        async def read(items: Any) -> None:
            try:
                async for _ in items:
                    pass
            except trio.Cancelled:
                ends.append("canceled")
                raise
            ends.append("ended")
            woken.set()

        async with trio.open_nursery() as nursery:
            async with channel.stream("/test/stream", REQUEST) as items:
                nursery.start_soon(read, items)
                await trio.testing.wait_all_tasks_blocked()
            assert recorder.log[-2:] == ["GeneratorExit", "ended"]
            if cancels:
                nursery.cancel_scope.cancel()
            else:
                lot.set()
    assert ends == ["canceled", "ended"]


async def test_stream_stays_ended_after_its_end() -> None:
    """Reading on after the last message or after an error finds no message and no second error."""
    channel = InProcessChannel(
        Service(stream_one=sending(1), stream_two=raising(lambda: GRPCError(Status.ABORTED, "over"), after=1))
    )
    for name, ends in (("stream_one", StopAsyncIteration), ("stream_two", GRPCError)):
        async with channel.stream(f"/test/{name}", REQUEST) as items:
            await anext(items)
            for error in (ends, StopAsyncIteration, StopAsyncIteration):
                with pytest.raises(error):
                    await anext(items)


async def test_stream_that_is_never_entered_leaves_no_coroutine() -> None:
    """A coroutine that was never awaited would warn, and warnings are errors in this suite."""
    channel, recorder = recorded()
    channel.stream("/test/stream", REQUEST)
    async with channel.stream("/test/stream", REQUEST):
        pass
    gc.collect()
    assert recorder.log == []


async def test_two_streams_of_one_handler_are_independent() -> None:
    channel, _ = recorded()
    async with channel.stream("/test/stream", REQUEST) as first, channel.stream("/test/stream", REQUEST) as second:
        assert [await anext(first), await anext(first), await anext(second)] == [0, 1, 0]
        rest: list[AsyncIterator[Any]] = [first, second]
        assert [[item async for item in each] for each in rest] == [[2], [1, 2]]


async def test_canceling_a_unary_call_cancels_its_handler() -> None:
    """The cancellation is not turned into an answer."""
    log: list[str] = []

    async def serve(_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            log.append("ended")

    with trio.move_on_after(0.001) as scope:
        await InProcessChannel(Service(call=serve)).unary("/test/call", REQUEST, pb.Type)
    assert scope.cancelled_caught
    assert log == ["ended"]
