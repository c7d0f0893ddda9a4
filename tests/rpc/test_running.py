"""Calls in the task that reads their connection: what waits keeps its task, and delays nothing else."""

from __future__ import annotations

import math
import signal
import traceback
from contextvars import ContextVar
from typing import Any

import pytest
import trio
from grpclib.const import Status
from h2.events import ResponseReceived, TrailersReceived

from headway import rpc
from headway.api import Call, Cardinality, Handler
from headway.protobuf import encode
from headway.rpc.http2 import _protocol
from headway.rpc.server import Running
from headway.rpc.server._transport import SocketTransport
from tests.rpc.raw_kit import HEADERS, Raw, connected
from tests.rpc.rpc_kit import ECHO, WAIT, Text, served

_NAME: ContextVar[str] = ContextVar("name", default="nobody")


async def test_coroutine_that_does_not_wait_ends_at_once() -> None:
    done: list[str] = []

    async def work() -> None:
        await trio.lowlevel.checkpoint()
        done.append(_NAME.get())
        _NAME.set("ada")

    async def fail() -> None:
        raise ValueError("a bug")

    assert not Running(work()).begin()
    # Nothing of the first is left in the context of the task.
    assert not Running(work()).begin()
    assert done == ["nobody", "nobody"]
    with pytest.raises(ValueError, match="a bug"):
        Running(fail()).begin()


async def test_coroutine_lets_others_run_at_the_second_time() -> None:
    """Only the first time is granted. A long computation must not block the loop."""
    steps: list[int] = []

    async def work() -> None:
        for number in range(3):
            await trio.lowlevel.checkpoint()
            steps.append(number)

    running = Running(work())
    assert running.begin()
    assert steps == [0]
    await running
    assert steps == [0, 1, 2]


async def test_waiting_coroutine_has_the_task_and_its_stack() -> None:
    tasks: list[trio.lowlevel.Task] = []
    event = trio.Event()

    async def inner() -> None:
        tasks.append(trio.lowlevel.current_task())
        await event.wait()
        tasks.append(trio.lowlevel.current_task())

    async def outer() -> None:
        running = Running(inner())
        assert running.begin()
        await running

    async with trio.open_nursery() as nursery:
        nursery.start_soon(outer)
        await trio.testing.wait_all_tasks_blocked()
        stack = traceback.StackSummary.extract(tasks[0].iter_await_frames())
        event.set()
    assert [each.name for each in stack][:2] == ["outer", "inner"]
    assert tasks[0] is tasks[1]


async def test_canceled_coroutine_cleans_up() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("work")

    with trio.CancelScope() as scope:
        running = Running(work())
        assert running.begin()
        scope.cancel()
        await running
    assert scope.cancelled_caught
    assert ended == ["work"]


class Spawned(trio.abc.Instrument):
    """The names of the tasks of the server that have begun."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if task.name.startswith("rpc "):
            self.names.append(task.name)


def _send(raw: Raw, id: int, path: str, text: str, **more: str) -> None:
    headers = [(name, path if name == ":path" else value) for name, value in HEADERS]
    raw.h2.send_headers(id, headers + [(name.replace("_", "-"), value) for name, value in more.items()])
    raw.h2.send_data(id, rpc.framed(encode(Text(text=text))), end_stream=True)


async def _status(raw: Raw, id: int) -> str:
    """Return the status of a call. A failed one may have no headers before it."""

    def has_ended(event: Any) -> bool:
        return isinstance(event, TrailersReceived | ResponseReceived) and bool(
            event.stream_id == id and event.stream_ended
        )

    ended = await raw.until(has_ended)
    return str(dict(ended.headers)[b"grpc-status"], "ascii")


async def test_calls_that_do_not_wait_start_no_task() -> None:
    """If the machine is busy, a few do: their request is read in two turns."""
    async with served() as it, connected(it.where) as raw:
        spawned = Spawned()
        trio.lowlevel.add_instrument(spawned)
        for id in range(1, 101, 2):
            _send(raw, id, ECHO, "a")
            await raw.flush()
            assert await _status(raw, id) == "0"
        trio.lowlevel.remove_instrument(spawned)
    assert len(spawned.names) < 25


async def test_call_that_waits_delays_no_other_call_of_its_connection() -> None:
    """Neither those that came with it in one write, nor later ones."""
    async with served() as it, connected(it.where) as raw:
        for id in range(1, 11, 2):
            _send(raw, id, WAIT, "a")
        _send(raw, 11, ECHO, "b")
        await raw.flush()
        assert await _status(raw, 11) == "0"
        await it.echo.until_waiting(5)
        _send(raw, 13, ECHO, "c")
        await raw.flush()
        assert await _status(raw, 13) == "0"
        raw.h2.reset_stream(1)
        await raw.flush()
        await it.echo.until_waiting(4)
        it.echo.release.set()
        assert [await _status(raw, id) for id in range(3, 11, 2)] == ["0"] * 4
        assert it.echo.cancelled == 1


async def test_more_calls_than_a_turn_takes_are_answered() -> None:
    """Some are begun by the task that works through the rest of a read."""
    async with served() as it, connected(it.where) as raw:
        for id in range(1, 201, 2):
            _send(raw, id, WAIT if id % 10 == 1 else ECHO, "a")
        await raw.flush()
        for id in range(3, 201, 2):
            if id % 10 != 1:
                assert await _status(raw, id) == "0"
        await it.echo.until_waiting(20)
        it.echo.release.set()
        assert await _status(raw, 191) == "0"


async def test_call_whose_deadline_has_passed_does_not_run() -> None:
    ran: list[Text] = []

    class Late:
        def __mapping__(self) -> dict[str, Handler]:
            async def answer(_: Call, request: Text) -> Text:
                ran.append(request)
                return request

            return {"/test.Late/Call": Handler(answer, Cardinality.UNARY_UNARY, Text, Text)}

    services: Any = rpc.Services(Late())
    async with rpc.open_server(services, ["127.0.0.1:0"]) as server, connected(server.addresses[0]) as raw:
        _send(raw, 1, "/test.Late/Call", "a", grpc_timeout="0n")
        await raw.flush()
        assert await _status(raw, 1) == str(Status.DEADLINE_EXCEEDED.value)
    assert ran == []


async def test_handler_knows_its_deadline_before_it_waits() -> None:
    """What it calls at once is given no more time. The next call of the connection has a deadline of its own."""
    seen: dict[str, float] = {}

    class Asking:
        def __mapping__(self) -> dict[str, Handler]:
            async def answer(_: Call, request: Text) -> Text:
                seen[request.text] = trio.current_effective_deadline() - trio.current_time()
                if request.text == "wait":
                    await trio.sleep_forever()
                return request

            return {"/test.Asking/Call": Handler(answer, Cardinality.UNARY_UNARY, Text, Text)}

    services: Any = rpc.Services(Asking())
    async with rpc.open_server(services, ["127.0.0.1:0"]) as server, connected(server.addresses[0]) as raw:
        for id, text, more in ((1, "soon", {"grpc_timeout": "50S"}), (3, "never", {})):
            _send(raw, id, "/test.Asking/Call", text, **more)
            await raw.flush()
            assert await _status(raw, id) == "0"
        for id, text, timeout in ((5, "later", "1H"), (7, "wait", "500m")):
            _send(raw, id, "/test.Asking/Call", text, grpc_timeout=timeout)
        await raw.flush()
        assert await _status(raw, 7) == str(Status.DEADLINE_EXCEEDED.value)
        assert await _status(raw, 5) == "0"
    assert 0 < seen["wait"] <= 0.5 < seen["soon"] <= 50 < seen["later"] <= 3600
    assert seen["never"] == math.inf


def test_interrupt_does_not_lose_a_call_that_begins_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trio would otherwise fail when it wakes the task, which has ended."""
    follow = SocketTransport._follow

    def interrupted(transport: SocketTransport) -> None:
        signal.raise_signal(signal.SIGINT)
        follow(transport)

    async def main() -> None:
        async with served() as it, connected(it.where) as raw:
            _send(raw, 1, WAIT, "a")
            await raw.flush()
            try:
                await trio.sleep(20)
            finally:
                it.echo.release.set()
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()

    # A machine that is busy between two frames of the call would otherwise begin it in a task of its own.
    monkeypatch.setattr(_protocol, "_SLICE", math.inf)
    monkeypatch.setattr(SocketTransport, "_follow", interrupted)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # or a group of one
        trio.run(main)
    assert _is_interrupt(caught.value)


def test_interrupt_is_raised_in_a_handler() -> None:
    """A handler that computes for long can be interrupted."""

    class Busy:
        def __mapping__(self) -> dict[str, Handler]:
            async def answer(_: Call, request: Text) -> Text:
                signal.raise_signal(signal.SIGINT)
                return request

            return {"/test.Busy/Call": Handler(answer, Cardinality.UNARY_UNARY, Text, Text)}

    async def main() -> None:
        services: Any = rpc.Services(Busy())
        async with rpc.open_server(services, ["127.0.0.1:0"]) as server, connected(server.addresses[0]) as raw:
            _send(raw, 1, "/test.Busy/Call", "a")
            await raw.flush()
            await trio.sleep(20)
            pytest.fail("the handler was not interrupted")

    with pytest.raises(BaseException) as caught:  # noqa: PT011  # or a group of one
        trio.run(main)
    assert _is_interrupt(caught.value)


def _is_interrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_interrupt, error.exceptions))
    return isinstance(error, KeyboardInterrupt)
