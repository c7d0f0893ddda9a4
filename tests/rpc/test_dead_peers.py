"""Connections whose other end has vanished: each side notices within its bound, and frees what it held."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from grpclib.const import Status
from h2.events import ResponseReceived
from h2.settings import SettingCodes

from headway import rpc
from headway.client import Client
from headway.errors import HeadwayError
from headway.protobuf import encode
from headway.resource import EndOfSnapshot
from headway.rpc import CHANNEL_LIMITS, Limits, WireLimits
from headway.service import WATCH_LIST
from tests.helpers.service_errors import status_of
from tests.rpc.raw_kit import HEADERS, Raw
from tests.rpc.rpc_kit import DECODERS, THING, Served, Text, app, served
from tests.rpc.test_slow_watchers import everything

INTERVAL, TIMEOUT = 0.4, 0.3
QUICK = Limits(wire=WireLimits(keepalive_interval=INTERVAL, keepalive_timeout=TIMEOUT))
# Extra time for a busy machine.
SLACK = 2.0


async def until_free(it: Served, calls: object) -> float:
    """Return the seconds until no connection and none of its calls is left."""
    began = trio.current_time()
    with trio.fail_after(20):
        while it.server._connections or calls:
            it.server._changed = trio.Event()
            await it.server._changed.wait()
    return trio.current_time() - began


@asynccontextmanager
async def watching(it: Served) -> AsyncIterator[Raw]:
    """A client with a watch, the widest possible window, and a small receive buffer."""
    host, port = it.where.split(":")
    opened = trio.socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await opened.connect((host, int(port)))
    stream = trio.SocketStream(opened)
    try:
        raw = Raw(stream)
        raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: (1 << 31) - 1})
        raw.h2.increment_flow_control_window(1 << 30)
        raw.h2.send_headers(1, [(name, WATCH_LIST if name == ":path" else value) for name, value in HEADERS])
        raw.h2.send_data(1, rpc.framed(encode(everything())), end_stream=True)
        await raw.flush()
        await raw.until(lambda event: isinstance(event, ResponseReceived))
        yield raw
    finally:
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("busy", [False, True])
async def test_unresponsive_watcher_is_freed_after_interval_and_timeout(busy: bool) -> None:
    """It is not freed earlier, and freed even if the server has more to send than the client reads."""
    async with served(limits=QUICK) as it, watching(it):
        (calls,) = it.server._connections.values()
        assert calls
        if busy:
            local = Client(rpc.InProcessChannel(it.services), app.registry)
            for number in range(100):
                await local.write(THING.new(f"thing-{number}", Text(text="x" * 100_000)))
        seconds = await until_free(it, calls)
        assert seconds < INTERVAL + TIMEOUT + SLACK
        if not busy:
            assert seconds > INTERVAL


class Relay:
    """A relay between a client and a server. Once cut, it passes on nothing more and closes nothing."""

    def __init__(self, where: str) -> None:
        self._host, port = where.split(":")
        self._port = int(port)
        self._cut = trio.CancelScope()

    def cut(self) -> None:
        """Stop relaying, like a cable that is cut."""
        self._cut.cancel()

    async def serve(self, *, task_status: trio.TaskStatus[str]) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener:
            host, port = listener.socket.getsockname()
            task_status.started(f"{host}:{port}")
            client = await listener.accept()
            server = await trio.open_tcp_stream(self._host, self._port)
            async with client, server:
                with self._cut:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._copy, client, server)
                        nursery.start_soon(self._copy, server, client)
                await trio.sleep_forever()

    async def _copy(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        while data := await source.receive_some(65536):
            await sink.send_all(data)


async def test_both_ends_of_a_cut_connection_notice() -> None:
    """The server frees the watch. The client's watch ends with a status that makes the client open it again."""
    quick = dataclasses.replace(CHANNEL_LIMITS, wire=QUICK.wire)
    async with served(limits=QUICK) as it, trio.open_nursery() as nursery:
        relay = Relay(it.where)
        where = await nursery.start(relay.serve)
        async with (
            rpc.open_channel(where, decoders=DECODERS, limits=quick) as channel,
            channel.stream(WATCH_LIST, everything()) as items,
        ):
            assert isinstance(await anext(items), EndOfSnapshot)
            (calls,) = it.server._connections.values()
            began = trio.current_time()
            relay.cut()
            with pytest.raises(HeadwayError) as caught:
                await anext(items)
            assert status_of(caught.value) is Status.UNAVAILABLE
            assert trio.current_time() - began < INTERVAL + TIMEOUT + SLACK
            await until_free(it, calls)
        nursery.cancel_scope.cancel()


def test_time_bounds_are_the_documented_ones() -> None:
    """Eighty seconds for a server, forty for a client."""
    assert WireLimits().keepalive_interval + WireLimits().keepalive_timeout == 80
    assert CHANNEL_LIMITS.wire.keepalive_interval + CHANNEL_LIMITS.wire.keepalive_timeout == 40
