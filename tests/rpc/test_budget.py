"""Partly received requests: how much of them a server keeps, and which ones it gives up so that the others continue."""

from __future__ import annotations

import functools
import tracemalloc
from typing import Any

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status
from h2.errors import ErrorCodes
from h2.events import ResponseReceived, StreamReset
from hypothesis import given
from hypothesis import strategies as st

from headway import rpc
from headway.rpc import Budget, Limits, MessageParser, WireLimits
from headway.rpc.http2 import Inbox
from headway.rpc.http2._protocol import _CALLS_AT_ONCE
from headway.rpc.server import CALL_SIZE, ServerStream
from tests.rpc.freed_kit import no_collector
from tests.rpc.hostile_kit import resident
from tests.rpc.raw_kit import HEADERS, Raw, connected
from tests.rpc.rpc_kit import ECHO, Text, served
from tests.rpc.serving_kit import serving

KIB, MIB = 1 << 10, 1 << 20


class Kept:
    """A holder without bytes."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held = 0
        self.refused = 0

    def hold(self, size: int) -> None:
        before, self.held = self.held, size
        self._budget.held(self, before, size)

    def refuse(self) -> None:
        self.refused += 1
        self.hold(0)


def test_exceeding_the_budget_gives_up_the_largest_request() -> None:
    """Among requests of about one size, the oldest is given up.

    Small requests stay, however many large ones there are.
    """
    budget = Budget(1000)
    small, older, newer = Kept(budget), Kept(budget), Kept(budget)
    older.hold(400)
    newer.hold(450)
    small.hold(100)
    small.hold(200)
    assert (older.refused, newer.refused, small.refused) == (1, 0, 0)
    assert budget.taken == 650


def test_budgets_of_connection_and_server_both_hold() -> None:
    server = Budget(1000)
    one, other = Budget(600, server), Budget(600, server)
    first, second, third = Kept(one), Kept(one), Kept(other)
    first.hold(500)
    second.hold(200)
    assert (first.refused, one.taken, server.taken) == (1, 200, 200)
    third.hold(550)
    first.hold(300)
    assert (third.refused, server.taken) == (1, 500)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 700)), max_size=60))
def test_held_bytes_never_exceed_the_budget(steps: list[tuple[int, int]]) -> None:
    """The sums are right, too, in any order of events and with any holders."""
    server = Budget(1200)
    connections = [Budget(800, server), Budget(800, server)]
    holders = [Kept(connections[number % 2]) for number in range(10)]
    for number, size in steps:
        holders[number].hold(size)
        for at, connection in enumerate(connections):
            assert connection.taken == sum(holder.held for holder in holders[at::2]) <= 800
        assert server.taken == sum(holder.held for holder in holders) <= 1200


async def test_refused_request_is_freed_at_once() -> None:
    """It is freed before its reader learns of it.

    Bytes that arrive later are not kept, and its window is returned last.
    """
    budget = Budget(100)
    acknowledged: list[int] = []
    inbox = Inbox(acknowledged.append, budget)
    inbox.add(b"x" * 90, 90)
    assert len(await inbox.take()) == 90
    # These bytes are a part of a message, so they count even after they were taken.
    assert budget.taken == 90
    inbox.add(b"x" * 20, 20)
    assert budget.taken == 0
    inbox.add(b"x" * 30, 30)
    inbox.eof()
    with pytest.raises(GRPCError) as caught:
        await inbox.take()
    assert caught.value.status is Status.RESOURCE_EXHAUSTED
    assert inbox.unacked_size() == 50
    assert acknowledged == [90]


async def _send_part(raw: Raw, streams: range, size: int, path: str = ECHO) -> None:
    """Begin a call on each of these streams and send ``size`` bytes of a message that is one byte longer."""
    part = memoryview((size + 1).to_bytes(5, "big") + b"x" * size)
    left = dict.fromkeys(streams, part)
    for id in streams:
        raw.h2.send_headers(id, [(name, path if name == ":path" else value) for name, value in HEADERS])
    while left:
        for id, data in list(left.items()):
            while data and not _refused(raw, id):
                room = min(raw.h2.local_flow_control_window(id), raw.h2.max_outbound_frame_size)
                if room <= 0:
                    break
                raw.h2.send_data(id, bytes(data[:room]))
                data = data[room:]
            left[id] = data
            if not data or _refused(raw, id):
                del left[id]
        await raw.flush()
        if left:
            raw.events += raw.h2.receive_data(await raw.stream.receive_some(1 << 20))


def _refused(raw: Raw, id: int) -> bool:
    return any(isinstance(event, ResponseReceived) and event.stream_id == id for event in raw.events)


def _statuses(raw: Raw) -> list[Any]:
    return [dict(event.headers).get(b"grpc-status") for event in raw.events if isinstance(event, ResponseReceived)]


async def test_half_sent_messages_are_bounded_and_do_not_delay_other_calls() -> None:
    """A connection sends a hundred messages of nearly the maximum size. Most are refused, and memory stays bounded."""
    limits = Limits(message_size=MIB, server_requests_size=64 * MIB, wire=WireLimits(requests_size=4 * MIB))
    async with served(limits=limits) as it, rpc.open_channel(it.where) as other, connected(it.where) as raw:
        await other.unary(ECHO, Text(text="a"), Text)
        before = resident()
        with trio.fail_after(30):
            await _send_part(raw, range(1, 200, 2), MIB - KIB)
            answer = await other.unary(ECHO, Text(text="y" * (MIB // 2)), Text)
            assert len(answer.text) == MIB // 2
            # Another call on the same connection is answered, too.
            raw.h2.send_headers(201, [(name, ECHO if name == ":path" else value) for name, value in HEADERS])
            raw.h2.send_data(201, rpc.framed(b"\x0a\x01a"), end_stream=True)
            await raw.flush()
            await raw.until(lambda event: isinstance(event, ResponseReceived) and event.stream_id == 201)
        assert it.server._budget.taken <= 4 * MIB
        refused = _statuses(raw).count(str(Status.RESOURCE_EXHAUSTED.value).encode())
        assert refused >= 95
        assert resident() - before < 48 * MIB
    assert it.server._budget.taken == 0


async def test_connections_share_the_budget_of_their_server() -> None:
    """No connection exceeds its own budget, and a small call on another connection is answered."""
    limits = Limits(message_size=MIB, server_requests_size=4 * MIB, wire=WireLimits(requests_size=2 * MIB))
    async with served(limits=limits) as it, rpc.open_channel(it.where) as other:
        async with connected(it.where) as one, connected(it.where) as two, connected(it.where) as three:
            with trio.fail_after(30):
                for raw in (one, two, three):
                    await _send_part(raw, range(1, 4, 2), 900 * KIB)
                assert (await other.unary(ECHO, Text(text="a"), Text)).text == "a"
                assert 2 * MIB < it.server._budget.taken <= 4 * MIB * 7 / 8
                for raw in (one, two):
                    await raw.until(lambda event: isinstance(event, ResponseReceived))
        while it.server._budget.taken:
            await trio.testing.wait_all_tasks_blocked()


async def test_refused_request_is_freed_without_the_garbage_collector() -> None:
    """Its parts used to be kept in a cycle: 60 connections with 400 refused requests took 900 MiB for minutes."""
    limits = Limits(message_size=64 * KIB, wire=WireLimits(requests_size=512 * KIB))
    with no_collector(ServerStream) as left:
        async with served(limits=limits) as it, connected(it.where) as raw:
            with trio.fail_after(30):
                await _send_part(raw, range(1, 40, 2), 60 * KIB)
                assert await raw.until(lambda event: isinstance(event, ResponseReceived)) is not None
            # The bytes that a reader has taken are freed before the client learns that its request was refused.
            assert 0 < it.server._budget.taken <= 512 * KIB
            await trio.aclose_forcefully(raw.stream)
            while it.server.connections:
                await trio.testing.wait_all_tasks_blocked()
            await trio.testing.wait_all_tasks_blocked()
            assert left() == []


async def test_calls_without_a_request_are_bounded() -> None:
    """A call takes memory before the first byte of its request. If there are too many, the oldest are refused."""
    limits = Limits(message_size=KIB, wire=WireLimits(requests_size=20 * CALL_SIZE))
    async with served(limits=limits) as it, connected(it.where) as raw:
        headers = [(name, ECHO if name == ":path" else value) for name, value in HEADERS]
        for id in range(1, 61, 2):
            raw.h2.send_headers(id, headers)
        # A complete request stops counting once it has been read, however long its answer takes.
        raw.h2.send_headers(61, headers)
        raw.h2.send_data(61, rpc.framed(b"\x0a\x01a"), end_stream=True)
        await raw.flush()
        await raw.until(lambda event: isinstance(event, ResponseReceived) and event.stream_id == 61)
        await raw.until(lambda _: len(_statuses(raw)) >= 11)
        assert it.server._budget.taken <= 20 * CALL_SIZE


@pytest.mark.deep
@pytest.mark.timeout(240)
async def test_unfinished_requests_of_sixty_connections_stay_within_documented_memory() -> None:
    """Each connection offers 32 MiB.

    The server process grows by less than 256 MiB, and shrinks when they have closed.
    """
    async with serving(patience=220) as server:
        before = peak = server.resident
        sent = 0

        async def send() -> None:
            nonlocal sent
            async with connected(server.where) as raw:
                await _send_part(raw, range(1, 17, 2), 4 * MIB - KIB, "/headway.resource.v1.ResourceService/Write")
                sent += 1
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(send)
            while sent < 60:  # memory use has no event
                await trio.sleep(0.05)
                peak = max(peak, server.resident)
            nursery.cancel_scope.cancel()
        assert 128 * MIB < peak - before < 256 * MIB, f"{(peak - before) >> 20} MiB"
        while server.resident > before + (peak - before) // 3:  # noqa: ASYNC110  # memory has no event
            await trio.sleep(0.1)


async def test_bytes_after_a_unary_request_are_not_kept() -> None:
    """A stream without a reader holds no memory."""
    async with served() as it, connected(it.where) as raw:
        raw.h2.send_headers(1, HEADERS)
        raw.h2.send_data(1, rpc.framed(b"\x0a\x010"))
        await raw.flush()
        await it.echo.until_waiting(1)
        for _ in range(8):
            raw.h2.send_data(1, b"x" * 16_000)
        raw.h2.ping(b"12345678")
        await raw.flush()
        await raw.until(lambda event: type(event).__name__ == "PingAckReceived")
        assert it.server._budget.taken == 0


async def test_bytes_of_a_refused_request_are_not_released_twice() -> None:
    """A reader that had taken a part of it continues for a while.

    Released twice, it would leave room for as much again.
    """
    server = Budget(1000)
    budget = Budget(100, server)
    inbox = Inbox(lambda _: None, budget)
    inbox.add(b"x" * 90, 90)
    size = len(await inbox.take())
    inbox.refuse()
    inbox.done(size)
    assert (budget.taken, server.taken) == (0, 0)


async def test_bytes_that_a_forwarder_has_not_passed_on_are_counted() -> None:
    """Connecting to the upstream may take long, and many calls may wait for it."""
    async with trio.open_nursery() as nursery:
        silent = await nursery.start(functools.partial(trio.serve_tcp, host="127.0.0.1"), _keep_silent, 0)
        upstream = f"127.0.0.1:{silent[0].socket.getsockname()[1]}"
        async with (
            rpc.open_forwarder(upstream, ["127.0.0.1:0"], grace=0) as server,
            connected(server.addresses[0]) as raw,
        ):
            await _send_part(raw, range(1, 2, 2), 60_000)
            raw.h2.ping(b"12345678")
            await raw.flush()
            await raw.until(lambda event: type(event).__name__ == "PingAckReceived")
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert server._budget.taken == 60_005 + CALL_SIZE
        nursery.cancel_scope.cancel()


async def _keep_silent(_: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def test_connection_with_most_unfinished_calls_is_refused_more() -> None:
    """A connection with few of them is served.

    Half a call costs 64 objects for Python's garbage collector to traverse.
    """
    async with served(limits=Limits(wire=WireLimits(requests=150))) as it, connected(it.where) as raw:
        raw.h2.local_settings.max_concurrent_streams = 1000
        for id in range(1, 401, 2):
            raw.h2.send_headers(id, HEADERS)
        await raw.flush()
        refused = await raw.until(lambda event: isinstance(event, StreamReset))
        assert refused.error_code == ErrorCodes.REFUSED_STREAM
        # Calls that have begun are counted one turn of the loop later.
        assert it.server._budget.holders <= 150 + 2 * _CALLS_AT_ONCE
        async with connected(it.where) as other, rpc.open_channel(it.where) as channel:
            await _send_part(other, range(1, 21, 2), 10)
            assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
            assert not any(isinstance(event, StreamReset) for event in other.events)


@pytest.mark.parametrize("into", ["inbox", "parser"])
def test_tiny_pieces_take_little_more_memory_than_their_size(into: str) -> None:
    """The bytes are kept without an object for each frame."""
    inbox, parser = Inbox(lambda _: None), MessageParser(1 << 22)
    parser.feed((1 << 20).to_bytes(5, "big"))
    drops = [number.to_bytes(2, "big") for number in range(20_000)]
    tracemalloc.start()
    try:
        for drop in drops:
            if into == "inbox":
                inbox.add(bytes(bytearray(drop)), 2)
            else:
                parser.feed(bytes(bytearray(drop)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 120_000
    assert inbox.unacked_size() == (40_000 if into == "inbox" else 0)
