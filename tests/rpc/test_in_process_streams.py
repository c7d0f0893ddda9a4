"""How far a handler runs inside a process, and how it ends: with its reader, and never later."""

from __future__ import annotations

import gc
import types
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from typing import Any

import pytest
import trio
import trio.testing

from headway.api import Call, stream
from headway.errors import Conflict
from headway.resource import pb
from headway.rpc import InProcessChannel
from tests.rpc.in_process_kit import REQUEST, Service, raising, sending


class Recorder:
    """A streaming handler that records its progress."""

    def __init__(self, wait: Callable[[], Awaitable[object]] | None = None) -> None:
        self.wait = wait
        self.log: list[str] = []

    @stream
    async def __call__(self, _: Call, __: object) -> AsyncGenerator[int, None]:
        self.log.append("begun")
        try:
            for number in range(3):
                yield number
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


async def test_exception_thrown_into_a_waiting_reader_reaches_the_handler() -> None:
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

    @stream
    async def serve(_: Call, __: object) -> AsyncGenerator[int, None]:
        for number in range(3):
            await trio.sleep(3600)
            yield number

    async with InProcessChannel(Service(stream=serve)).stream("/test/stream", REQUEST) as items:
        times = [autojump_clock.current_time() async for _ in items]
    assert times == [3600, 7200, 10800]


async def test_calls_create_no_task() -> None:
    """A handler runs in its caller's own task, unary or streaming."""
    tasks: list[object] = []

    async def answer(_: Call, request: pb.Type) -> pb.Type:
        tasks.append(trio.lowlevel.current_task())
        await trio.lowlevel.checkpoint()
        return request

    @stream
    async def send(call: Call, request: pb.Type) -> AsyncGenerator[pb.Type, None]:
        yield await answer(call, request)

    before = trio.lowlevel.current_statistics().tasks_living
    channel = InProcessChannel(Service(call=answer, stream=send))
    await channel.unary("/test/call", REQUEST, pb.Type)
    async with channel.stream("/test/stream", REQUEST) as items:
        await anext(items)
        assert trio.lowlevel.current_statistics().tasks_living == before
    assert tasks == [trio.lowlevel.current_task()] * 2


async def test_stream_is_not_closed_under_a_task_that_reads_it() -> None:
    """Its cleanup would run in the wrong task. The reader has to be canceled first."""
    channel, recorder = recorded(trio.sleep_forever)

    async def read(items: Any) -> None:
        async for _ in items:
            pass

    async with trio.open_nursery() as nursery:
        stream = channel.stream("/test/stream", REQUEST)
        nursery.start_soon(read, await stream.__aenter__())
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="another task waits for the next item"):
            await stream.__aexit__(None, None, None)
        nursery.cancel_scope.cancel()
    assert recorder.log[-2:] == ["Cancelled", "ended"]
    await stream.__aexit__(None, None, None)


async def test_stream_stays_ended_after_its_end() -> None:
    """Reading on after the last message or after an error finds no message and no second error."""
    channel = InProcessChannel(Service(stream_one=sending(1), stream_two=raising(lambda: Conflict("over"), after=1)))
    for name, ends in (("stream_one", StopAsyncIteration), ("stream_two", Conflict)):
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

    async def serve(_: Call, __: object) -> None:
        try:
            await trio.sleep_forever()
        finally:
            log.append("ended")

    with trio.move_on_after(0.001) as scope:
        await InProcessChannel(Service(call=serve)).unary("/test/call", REQUEST, pb.Type)
    assert scope.cancelled_caught
    assert log == ["ended"]
