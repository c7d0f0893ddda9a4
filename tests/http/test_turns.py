"""The turns of connections: none of many waits for more than a few requests of the others."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack

import pytest
import trio
from h11._receivebuffer import ReceiveBuffer
from trio.testing import wait_all_tasks_blocked

from headway.http import Bounds
from headway.http._handshake import InputTurns
from headway.http._server import App, Message, Receive, Send
from tests.http.test_connections import from_host, served

GET = b"GET /flood HTTP/1.1\r\nhost: a\r\n\r\n"
PUT = b"PUT /flood HTTP/1.1\r\nhost: a\r\ncontent-length: 3000000\r\n\r\n" + bytes(3_000_000)
CHUNKS = b"PUT /flood HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 20_000
NEIGHBOR = GET.replace(b"flood", b"neighbor")
FLOOD = 40
"""The number of connections that ask at once."""
ROOM = Bounds(connections=100, peer_connections=100, patience=60.0)
# Those that have a turn before the neighbor's request, and while it is answered. Without turns, all of them have.
A_FEW = 10


class Counted:
    """An application that counts the pieces of input of each path, which it answers after some turns of the loop."""

    def __init__(self) -> None:
        self.flooded = 0
        # The count when the neighbor's last request is answered.
        self.before = -1

    @property
    def app(self) -> App:
        async def answered(scope: Message, receive: Receive, send: Send) -> None:
            more = True
            while more:
                self.flooded += scope["path"] == "/flood"
                more = (await receive()).get("more_body", False)
            for _ in range(10):
                await trio.lowlevel.checkpoint()
            if scope["path"] != "/flood":
                self.before = self.flooded
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
            await send({"type": "http.response.body", "body": b"x"})

        return answered


async def asked(stream: trio.SocketStream) -> None:
    """Send the neighbor's request, and wait for its answer."""
    await stream.send_all(NEIGHBOR)
    answer = b""
    while not answer.endswith(b"\r\n\r\nx"):
        piece = await stream.receive_some()
        assert piece
        answer += piece


async def flood(where: str, data: bytes) -> None:
    """Send all of this from host 2, whether or not it is read, and read the answers."""
    async with from_host(where, 2) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, data)
        async for _ in stream:
            pass


@pytest.mark.parametrize("data", [GET * 300, PUT * 3, CHUNKS], ids=["pipelined requests", "large bodies", "chunks"])
async def test_neighbor_waits_for_a_few_pieces_of_a_flood(data: bytes) -> None:
    """Forty connections of another host have input all the time."""
    counted = Counted()
    async with served(counted.app, ROOM) as where, from_host(where, 3) as neighbor, trio.open_nursery() as nursery:
        with trio.fail_after(60):
            await asked(neighbor)
            for _ in range(FLOOD):
                nursery.start_soon(flood, where, data)
            while counted.flooded < 3 * FLOOD:
                await trio.lowlevel.checkpoint()
            for _ in range(5):
                since = counted.flooded
                await asked(neighbor)
                assert counted.before - since <= A_FEW
                assert counted.flooded > since
            nursery.cancel_scope.cancel()


class ChunksOfSteps(trio.abc.Instrument):
    """Counts the chunks that are read within one step of a task."""

    def __init__(self) -> None:
        self.chunks = self.most = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        self.chunks = 0

    def read(self) -> None:
        self.chunks += 1
        self.most = max(self.most, self.chunks)


async def test_chunks_after_an_answer_are_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application has answered, and reads none of them."""

    async def answered(scope: Message, receive: Receive, send: Send) -> None:  # noqa: ARG001  # ASGI's form
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": b"x"})

    counted, next_line = ChunksOfSteps(), ReceiveBuffer.maybe_extract_next_line

    def counting(buffer: ReceiveBuffer) -> bytearray | None:
        counted.read()
        return next_line(buffer)

    monkeypatch.setattr(ReceiveBuffer, "maybe_extract_next_line", counting)
    async with served(answered, ROOM) as where, from_host(where, 2) as stream:
        trio.lowlevel.add_instrument(counted)
        with trio.fail_after(60):
            # As many as one piece of input has.
            await stream.send_all(CHUNKS[: 1 << 16])
            async for _ in stream:
                pass
        trio.lowlevel.remove_instrument(counted)
    assert 1 <= counted.most <= 3


@pytest.mark.parametrize(("host", "new"), [(2, False), (3, False), (3, True)])
async def test_neighbor_waits_for_a_few_new_connections(host: int, new: bool) -> None:
    """A connection that is open already has a turn of its own, even if it is of the same host; and so has a host."""
    counted = Counted()
    async with served(counted.app, ROOM) as where, AsyncExitStack() as stack:
        with trio.fail_after(60):
            neighbor = await stack.enter_async_context(from_host(where, host))
            if not new:
                await asked(neighbor)
            others = [await stack.enter_async_context(from_host(where, 2)) for _ in range(FLOOD)]
            await wait_all_tasks_blocked()
            # The server has no turn of the loop between.
            for each in others:
                stdlib = socket.fromfd(each.socket.fileno(), socket.AF_INET, socket.SOCK_STREAM)
                stack.enter_context(stdlib).sendall(GET)
            since = counted.flooded
            await asked(neighbor)
            assert counted.before - since <= A_FEW
            await wait_all_tasks_blocked()
            assert counted.flooded == FLOOD


async def test_newest_connections_of_a_host_go_first() -> None:
    """The oldest are closed when there are too many, so those that wait behind them would never have a turn."""
    turns, order = InputTurns(), list[str]()
    turns._taken = True

    async def take(name: str) -> None:
        await turns.take(name[0], first=name[0] == "a")
        order.append(name)

    async with trio.open_nursery() as nursery:
        for name in ("a1", "a2", "a3", "b1", "b2"):
            nursery.start_soon(take, name)
            await wait_all_tasks_blocked()
        turns._pass_on()
    assert order == ["a3", "b1", "a2", "b2", "a1"]


async def test_connection_that_leaves_passes_its_turn_on() -> None:
    """Whether it waits for its turn, or has it."""
    turns = InputTurns()
    for leaving in range(3):
        scopes = [trio.CancelScope() for _ in range(3)]

        async def take(scope: trio.CancelScope) -> None:
            with scope:
                await turns.take("group")

        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(take, scope)
            await trio.lowlevel.checkpoint()
            scopes[leaving].cancel()
        with trio.fail_after(30):
            await turns.take("group")
        assert turns._waiting == {}
        assert not turns._taken
