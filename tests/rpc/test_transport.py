"""The transport of accepted sockets: what one turn of the loop writes is sent at once, in order and within bounds."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from headway.rpc.server import Outbox, SocketTransport

PATIENCE = 20


class Counting(socket.socket):
    """A socket that counts the writes."""

    sends = 0

    def send(self, *args: object) -> int:
        self.sends += 1
        return super().send(*args)  # type: ignore[arg-type]


async def lead(more: Callable[[], Awaitable[bool]], follow: Callable[[], None]) -> None:
    """Read until the end. The data ``wait`` keeps the task, as a call that waits does."""
    while await more():
        if Heard.waits:
            Heard.waits = False
            follow()
            await trio.sleep_forever()


class Heard:
    """A protocol that records its calls from the transport."""

    waits = False

    def __init__(self) -> None:
        self.said: list[str] = []
        # What is written for the next data.
        self.answers: list[bytes] = []
        self.data = b""
        self.lost = trio.Event()
        self.made = trio.Event()

    def connection_made(self, transport: SocketTransport) -> None:
        self.transport = transport
        self.made.set()

    def data_received(self, data: bytes) -> None:
        if data == b"fail":
            raise ValueError("a bug")
        Heard.waits = data == b"wait"
        self.data += data
        for each in self.answers:
            self.transport.write(each)
        self.answers.clear()

    def eof_received(self) -> None:
        self.said.append("eof")

    def pause_writing(self) -> None:
        self.said.append("pause")

    def resume_writing(self) -> None:
        self.said.append("resume")

    def connection_lost(self, error: BaseException | None) -> None:
        self.said.append(f"lost: {error}")
        self.lost.set()


class Pair:
    """A transport and the other end of its connection."""

    def __init__(self, nursery: trio.Nursery) -> None:
        ours, theirs = socket.socketpair()
        self.socket = Counting(fileno=ours.detach())
        self.socket.setblocking(False)
        self.peer = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
        self.heard, self.outbox = Heard(), Outbox()
        self.reported: list[object] = []
        self.transport = SocketTransport(
            self.socket,
            self.heard,
            "peer",
            self.outbox,
            nursery,
            lambda _, error: self.reported.append(error),
            read_at_once=1 << 16,
            lead=lead,
        )

    async def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += await self.peer.receive_some()
        return data


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            it = Pair(nursery)
            nursery.start_soon(it.outbox.run)
            nursery.start_soon(it.transport.run)
            await it.heard.made.wait()
            await trio.testing.wait_all_tasks_blocked()
            async with it.peer:
                yield it
            await it.heard.lost.wait()
            nursery.cancel_scope.cancel()


async def test_writes_of_one_turn_are_sent_at_once() -> None:
    async with pair() as it:
        for each in (b"a", b"b", b"c"):
            it.transport.write(each)
        assert it.transport.get_write_buffer_size() == 3
        assert await it.receive(3) == b"abc"
        assert it.socket.sends == 1


async def test_data_of_a_connection_before_the_server_has_started_is_sent() -> None:
    """A server listens before it runs the outbox."""
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            it = Pair(nursery)
            nursery.start_soon(it.transport.run)
            await it.heard.made.wait()
            it.transport.write(b"early")
            nursery.start_soon(it.outbox.run)
            assert await it.receive(5) == b"early"
            await it.peer.aclose()
            await it.heard.lost.wait()
            nursery.cancel_scope.cancel()


async def test_reply_is_sent_at_once_with_the_answers_to_the_frames_that_came_with_it() -> None:
    """One write wakes the peer once."""
    async with pair() as it:
        it.heard.answers = [b"pong", b"reply"]
        await it.peer.send_all(b"call")
        assert await it.receive(9) == b"pongreply"
        assert it.socket.sends == 1


async def test_another_task_reads_while_a_call_waits() -> None:
    """What the calls before it have written is sent, and the end of the connection is noticed once."""
    async with pair() as it:
        it.heard.answers = [b"pong"]
        await it.peer.send_all(b"wait")
        assert await it.receive(4) == b"pong"
        await it.peer.send_all(b"more")
        await trio.testing.wait_all_tasks_blocked()
        assert it.heard.data == b"waitmore"
        await it.peer.aclose()
        await it.heard.lost.wait()
        assert it.heard.said == ["eof", "lost: None"]


async def test_much_data_is_sent_at_once_and_in_order() -> None:
    """The protocol pauses while the peer reads nothing, and resumes."""
    async with pair() as it:
        sent = b""
        while "pause" not in it.heard.said:
            piece = bytes([len(sent) % 251]) * 40_000
            sent += piece
            it.transport.write(piece)
        it.transport.write(b"end")
        assert await it.receive(len(sent) + 3) == sent + b"end"
        assert it.heard.said == ["pause", "resume"]


async def test_end_by_an_error_of_tls_sends_what_was_written_in_this_turn() -> None:
    """A last status, for example, whose peer breaks off the shutdown of TLS."""
    async with pair() as it:
        it.transport.write(b"bye")
        error = OSError("the shutdown of TLS failed")
        it.transport._force_close(error)
        it.transport._force_close(None)
        assert await it.receive(3) == b"bye"
        await it.heard.lost.wait()
        assert it.heard.said == [f"lost: {error}"]


async def test_abort_sends_what_was_written_in_this_turn() -> None:
    """A GOAWAY, for example. Nothing is written later."""
    async with pair() as it:
        it.transport.write(b"bye")
        it.transport.abort()
        it.transport.write(b"more")
        assert await it.receive(3) == b"bye"
        assert await it.peer.receive_some() == b""
        await it.heard.lost.wait()
        assert it.heard.said == ["lost: None"]


@pytest.mark.parametrize("half", [False, True])
async def test_close_waits_until_everything_is_sent(half: bool) -> None:
    """After the close of a half, the other half is still read."""
    async with pair() as it:
        it.transport.write(b"x" * 3_000_000)
        if half:
            it.transport.write_eof()
        else:
            it.transport.close()
        assert await it.receive(3_000_000) == b"x" * 3_000_000
        assert await it.peer.receive_some() == b""
        if half:
            await it.peer.send_all(b"late")
            await it.peer.send_eof()
        await it.heard.lost.wait()
        assert it.heard.data == (b"late" if half else b"")


async def test_paused_transport_reads_nothing() -> None:
    async with pair() as it:
        it.transport.pause_reading()
        await it.peer.send_all(b"data")
        await trio.testing.wait_all_tasks_blocked()
        assert it.heard.data == b""
        it.transport.resume_reading()
        await trio.testing.wait_all_tasks_blocked()
        assert it.heard.data == b"data"


async def test_error_of_a_protocol_ends_only_its_connection() -> None:
    async with pair() as it:
        await it.peer.send_all(b"fail")
        await it.heard.lost.wait()
        assert [str(each) for each in it.reported] == ["a bug"]
        assert it.heard.said == ["lost: a bug"]
