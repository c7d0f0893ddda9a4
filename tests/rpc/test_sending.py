"""A server's streams take turns at the window of their connection, and their output is dropped when it is lost."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, TrailersReceived, WindowUpdated
from h2.settings import SettingCodes
from hyperframe.frame import PingFrame, SettingsFrame

from headway import rpc
from headway.events import ConnectionEnded
from headway.protobuf import encode
from headway.rpc import HealthCheckRequest, Limits, Rate, WireLimits
from headway.rpc.http2 import Signal, WindowQueue
from tests.rpc.hostile_bytes import PREFACE
from tests.rpc.raw_kit import HEADERS, Raw, connected
from tests.rpc.rpc_kit import ECHO, FLOOD, Text, served

WATCH = "/grpc.health.v1.Health/Watch"


async def begin(raw: Raw, path: str, message: bytes) -> int:
    """Open a call and return the number of its stream."""
    id = raw.h2.get_next_available_stream_id()
    raw.h2.send_headers(id, [(name, path if name == ":path" else value) for name, value in HEADERS])
    raw.h2.send_data(id, rpc.framed(message), end_stream=True)
    await raw.flush()
    return id


async def shut_window(raw: Raw) -> None:
    """Make the server send until the window of the connection is closed."""
    id, left = await begin(raw, FLOOD, encode(Text())), 65_535
    while left:
        events, raw.events = raw.events, []
        left -= sum(event.flow_controlled_length for event in events if isinstance(event, DataReceived))
        if left:
            raw.events += raw.h2.receive_data(await raw.stream.receive_some(65_536))
    raw.h2.reset_stream(id)
    await raw.flush()


async def until_received(raw: Raw, kind: type[Any], ids: list[int]) -> None:
    """Wait for an event of this kind on each of the streams."""
    missing = set(ids)

    def last(event: Any) -> bool:
        if isinstance(event, kind):
            missing.discard(event.stream_id)
        return not missing

    assert await raw.until(last) is not None


async def test_one_byte_window_wakes_only_a_few_streams() -> None:
    """Otherwise each frame of a dozen bytes would run a thousand tasks."""
    h2 = H2Connection(H2Configuration(client_side=False))
    h2.outbound_flow_control_window = 0
    queue, woken = WindowQueue(h2), 0

    async def send() -> None:
        nonlocal woken
        try:
            while True:
                await queue.wait(Signal())
                woken += 1
                h2.outbound_flow_control_window = 0
        finally:
            queue.pass_on()

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        for opened in range(1, 4):
            h2.outbound_flow_control_window = 1
            queue.pass_on()
            await trio.testing.wait_all_tasks_blocked()
            assert opened <= woken <= opened * 16
        nursery.cancel_scope.cancel()


async def test_every_stream_resumes_when_the_window_opens() -> None:
    """The streams that are woken first may be canceled before they have sent."""
    async with served() as it, connected(it.where) as raw:
        await shut_window(raw)
        ids = [await begin(raw, WATCH, encode(HealthCheckRequest(service=""))) for _ in range(90)]
        await until_received(raw, ResponseReceived, ids)
        raw.h2.increment_flow_control_window(1)
        for id in ids[:20]:
            raw.h2.reset_stream(id)
        raw.h2.increment_flow_control_window(10_000)
        await raw.flush()
        await until_received(raw, DataReceived, ids[20:])


class Woken(trio.abc.Instrument):
    """The largest number of tasks that were scheduled for one turn of the loop."""

    def __init__(self) -> None:
        self.most = self._now = 0

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002  # the name is Trio's
        self._now = 0

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002  # likewise
        self._now += 1
        self.most = max(self.most, self._now)


async def test_settings_that_open_every_window_wake_only_a_few_streams_at_once() -> None:
    """Otherwise 30 bytes a second kept a server busy with thousands of calls, and every other caller waited seconds."""
    async with served() as it, connected(it.where) as raw:
        raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        ids = [await begin(raw, ECHO, encode(Text(text="ada"))) for _ in range(200)]
        await until_received(raw, ResponseReceived, ids)
        await trio.testing.wait_all_tasks_blocked()
        woken = Woken()
        trio.lowlevel.add_instrument(woken)
        raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
        await raw.flush()
        await until_received(raw, TrailersReceived, ids)
        trio.lowlevel.remove_instrument(woken)
        assert woken.most < 60


async def test_streams_with_a_closed_window_do_not_block_others() -> None:
    """A stream that is woken and cannot send passes the window on."""
    h2 = H2Connection(H2Configuration(client_side=False))
    h2.outbound_flow_control_window = 0
    queue, sent = WindowQueue(h2), trio.Event()

    async def wait_twice() -> None:
        updated = Signal()
        for _ in range(2):
            await queue.wait(updated)

    async def send() -> None:
        await queue.wait(Signal())
        sent.set()

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(wait_twice)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        h2.outbound_flow_control_window = 1
        queue.pass_on()
        await trio.testing.wait_all_tasks_blocked()
        assert sent.is_set()
        nursery.cancel_scope.cancel()


async def test_client_that_reads_no_ping_answers_is_disconnected(tmp_path: Path) -> None:
    """The answers wait in the server's memory, and no stream's window bounds them."""
    ended: list[object] = []
    limits = Limits(wire=WireLimits(unsent=1000, pings=Rate(1_000_000, 1_000_000)))
    path = tmp_path / "socket"
    pings = PREFACE + SettingsFrame(0).serialize() + PingFrame(0).serialize() * 1000
    async with (
        served([f"unix:{path}"], limits=limits, notify=ended.append),
        await trio.open_unix_socket(path) as stream,
    ):
        with contextlib.suppress(trio.BrokenResourceError):
            while True:
                await stream.send_all(pings)
                pings = PingFrame(0).serialize() * 1000
    assert ended == [ConnectionEnded("a Unix socket", "the peer does not read the data sent to it")]


async def test_large_reply_that_is_not_read_takes_little_of_the_servers_memory(tmp_path: Path) -> None:
    """The client opens its windows, and the server writes only what the socket takes, and a little more."""
    path, size = tmp_path / "socket", 3 << 20
    limits = Limits(wire=WireLimits(stream_window=4 << 20))
    async with served([f"unix:{path}"], limits=limits) as it, await trio.open_unix_socket(path) as stream:
        raw = Raw(stream)
        raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: (1 << 31) - 1})
        raw.h2.increment_flow_control_window(1 << 30)
        await raw.flush()
        await raw.until(lambda event: isinstance(event, WindowUpdated))
        id, request = raw.h2.get_next_available_stream_id(), rpc.framed(encode(Text(text="x" * size)))
        raw.h2.send_headers(id, [(name, ECHO if name == ":path" else value) for name, value in HEADERS])
        for begin in range(0, len(request), 1 << 14):
            raw.h2.send_data(id, request[begin : begin + (1 << 14)])
        raw.h2.end_stream(id)
        await raw.flush()
        (connection,) = it.server._connections
        with trio.fail_after(20):
            while connection.connection.unsent() <= 64 << 10:
                await trio.testing.wait_all_tasks_blocked(0.01)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert connection.connection.unsent() < 160 << 10


async def test_client_that_leaves_many_streams_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio would warn of each write to a lost connection."""
    caplog.set_level(logging.WARNING, "asyncio")
    async with served() as it:
        async with connected(it.where) as raw:
            raw.h2.local_settings.max_concurrent_streams = 1000
            ids = [await begin(raw, WATCH, encode(HealthCheckRequest(service=""))) for _ in range(100)]
            await until_received(raw, DataReceived, ids)
            raw.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.stream.socket.close()
            # All of them send before the server learns of the reset.
            it.health.set_all(serving=False)
        while it.server.connections:
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert [record.getMessage() for record in caplog.records] == []


async def test_stream_that_waited_for_a_window_ends_normally() -> None:
    """Its trailers follow its data."""
    async with served() as it, connected(it.where) as raw:
        await shut_window(raw)
        id = await begin(raw, "/test.Echo/Count", encode(Text(text="3")))
        await until_received(raw, ResponseReceived, [id])
        it.echo.release.set()
        raw.h2.increment_flow_control_window(1)
        raw.h2.increment_flow_control_window(10_000)
        await raw.flush()
        await until_received(raw, TrailersReceived, [id])
