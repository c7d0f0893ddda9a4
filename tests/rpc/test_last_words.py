"""The last bytes of a server reach clients that are still sending, and the server's wait for them is bounded."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio
from grpclib.const import Status
from h2.events import ConnectionTerminated, DataReceived, TrailersReceived
from hyperframe.frame import PingFrame

from headway import rpc
from headway.rpc import Limits, WireLimits
from tests.rpc.raw_kit import HEADERS, Raw, connected
from tests.rpc.rpc_kit import COUNT, FLOOD, Served, certificates, served
from tests.rpc.test_stock_clients import in_thread

PING = PingFrame(0, opaque_data=b"12345678").serialize()


class Stopping:
    """A server that runs as a task and stops on request."""

    def __init__(self, it: Served, stop: trio.Event) -> None:
        self.it = it
        self.stop = stop.set
        self.stopped = trio.Event()
        self.seconds = 0.0


@asynccontextmanager
async def stopping(**options: Any) -> AsyncIterator[Stopping]:
    stop = trio.Event()

    async def run(*, task_status: trio.TaskStatus[Stopping]) -> None:
        async with served(**options) as it:
            made = Stopping(it, stop)
            task_status.started(made)
            await stop.wait()
            began = trio.current_time()
        made.seconds = trio.current_time() - began
        made.stopped.set()

    async with trio.open_nursery() as nursery:
        made = await nursery.start(run)
        yield made
        stop.set()


@pytest.mark.parametrize("secure", [False, True])
async def test_final_status_reaches_a_client_that_is_still_sending(secure: bool, tmp_path: Path) -> None:
    """A socket that is closed with unread input would discard its pending output."""
    made = certificates(tmp_path)
    async with stopping(tls=made.server if secure else None) as server:
        host, port = server.it.where.split(":")
        opened = trio.socket.socket()
        # The receive buffer is so small that the stream's end has to wait at the server.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await opened.connect((host, int(port)))
        async with trio.SocketStream(opened) as plain:
            made.client.set_alpn_protocols(["h2"])
            stream = trio.SSLStream(plain, made.client, server_hostname=host) if secure else plain
            raw = Raw(stream)
            raw.h2.send_headers(1, [(name, FLOOD if name == ":path" else value) for name, value in HEADERS])
            raw.h2.send_data(1, rpc.framed(b""), end_stream=True)
            await raw.flush()
            # The reply has filled the window.
            while server.it.echo.sent < 3:
                await trio.testing.wait_all_tasks_blocked(0.01)
            await trio.testing.wait_all_tasks_blocked(0.01)
            server.stop()
            await server.it.echo.flood_ended.wait()
            for _ in range(20):
                await stream.send_all(PING)
                # This sleep replaces no condition: the client keeps sending, whatever the server does.
                await trio.sleep(0.01)
            assert await raw.until(lambda event: isinstance(event, TrailersReceived)) is not None
            assert await raw.goaway() is not None
        trailers = [event for event in raw.events if isinstance(event, TrailersReceived)]
        assert dict(trailers[0].headers)[b"grpc-status"] == str(Status.UNAVAILABLE.value).encode()
        assert sum(len(event.data) for event in raw.events if isinstance(event, DataReceived)) > 60_000
        with trio.fail_after(30):
            await server.stopped.wait()


async def test_server_does_not_wait_for_a_client_that_never_closes() -> None:
    """The client's half stays open, so the server's bound ends the wait."""
    async with stopping() as server, connected(server.it.where) as raw:
        server.stop()
        with trio.fail_after(30):
            await server.stopped.wait()
        assert 0.5 < server.seconds < 5
        assert isinstance(await raw.goaway(), ConnectionTerminated)


async def test_input_after_the_close_is_bounded() -> None:
    """A client that keeps sending is cut off long before the time is up."""
    async with served() as it, connected(it.where) as raw:
        await raw.stream.send_all(b"\0" * 1000)
        assert (await raw.goaway()).error_code
        with trio.fail_after(30), pytest.raises(trio.BrokenResourceError):
            await raw.stream.send_all(bytes(64 << 20))
        await until(it, lambda: it.server.connections == 0)


async def until(it: Served, condition: Callable[[], bool]) -> None:
    while not condition():
        it.server._changed = trio.Event()
        await it.server._changed.wait()


async def test_closed_connection_is_dropped_after_the_ping_timeout() -> None:
    """The client does not close its half."""
    async with served(limits=Limits(wire=WireLimits(keepalive_timeout=0.2))) as it, connected(it.where) as raw:
        await raw.stream.send_all(b"\0" * 1000)
        assert (await raw.goaway()).error_code
        assert it.server.connections == 1
        with trio.fail_after(30):
            await until(it, lambda: it.server.connections == 0)


@pytest.mark.parametrize("secure", [False, True])
async def test_every_grpcio_stream_receives_its_final_status(secure: bool, tmp_path: Path) -> None:
    """The status is the server's, not one of a broken connection. Many connections have streams in full flow."""
    made = certificates(tmp_path)
    begun = trio.Event()

    token = trio.lowlevel.current_trio_token()

    def watch(where: str) -> list[tuple[Any, str]]:
        received: set[int] = set()

        def one(number: int) -> tuple[Any, str]:
            # Otherwise the channels would share a connection.
            options = [("grpc.use_local_subchannel_pool", 1)]
            credentials = grpc.ssl_channel_credentials(made.ca.read_bytes())
            opened = (
                grpc.secure_channel(where, credentials, options) if secure else grpc.insecure_channel(where, options)
            )
            with opened as channel:
                try:
                    for _ in channel.unary_stream((COUNT, FLOOD)[number % 2])(b"\x0a\x010", timeout=20):
                        received.add(number)
                        if len(received) == 16:
                            trio.from_thread.run_sync(begun.set, trio_token=token)
                except grpc.RpcError as error:
                    return error.code(), error.details()
            return None, "it ended well"

        with ThreadPoolExecutor(16) as threads:
            return list(threads.map(one, range(16)))

    ended: list[tuple[Any, str]] = []
    async with stopping(tls=made.server if secure else None) as server, trio.open_nursery() as nursery:

        async def client() -> None:
            ended.extend(await in_thread(lambda: watch(server.it.where)))

        nursery.start_soon(client)
        await begun.wait()
        server.stop()
        await server.stopped.wait()
    assert ended == [(grpc.StatusCode.UNAVAILABLE, "the server is stopping")] * 16
    assert server.seconds < 5
