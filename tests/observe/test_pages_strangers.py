"""Unauthenticated peers of the pages' port use few descriptors of the process and do not block scrapers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
import trio
from h2.connection import H2Connection
from h2.settings import SettingCodes

import headway
from headway.http import Bounds, HttpServer
from headway.http._server import App, Message, Receive, Send
from headway.observe import Pages
from tests.cli.served import TEAM, Team
from tests.cli.served import app as staff
from tests.http.kit import NO_CERTIFICATES
from tests.rpc.hostile_bytes import PREFACE
from tests.rpc.raw_kit import tcp, until_closed
from tests.rpc.serving_kit import serving
from tests.rpc.test_strangers import strangers

GET = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"


def bounds(connections: int = 16, patience: float = 20.0) -> Bounds:
    """Return the limits of a server of pages."""
    return Bounds(connections, connections, patience, answer=2 * patience, evict_answering=True)


@asynccontextmanager
async def page_server(
    app: App | HttpServer, connections: int = 16, grace: float = 2.0, patience: float = 20.0
) -> AsyncIterator[str]:
    """Serve the application within the block, and give the address."""
    server = app if isinstance(app, HttpServer) else HttpServer(app, bounds(connections, patience))
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    ending = trio.Event()
    async with trio.open_nursery() as nursery:
        accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
        nursery.start_soon(server.serve, accepting, ending, grace)
        try:
            yield f"{host}:{port}"
        finally:
            ending.set()


@pytest.mark.wide
async def test_idle_connections_block_neither_scrapers_nor_callers() -> None:
    """A process with at most 300 descriptors gets 300 idle connections, and logs few lines about them."""
    async with serving("--metrics", "127.0.0.1:0", descriptors=300) as server:
        said = await server.line("metrics and health at ")
        pages = said.split()[4].removesuffix("/metrics,")
        since = time.monotonic()
        with strangers(pages.removeprefix("http://"), 300, b""):
            async with httpx.AsyncClient(base_url=pages, timeout=20, verify=NO_CERTIFICATES) as http:
                assert "headway_controller_ready" in (await http.get("/metrics")).text
            assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 100
            with trio.fail_after(20):
                async with headway.connect(server.where, staff) as client:
                    await client.apply(TEAM.new("core", Team()))
        # Three lines at the start, and a few of its controllers.
        assert len(server.lines) <= 20 + 2 * (time.monotonic() - since), server.lines[-5:]


async def test_excess_connection_closes_the_oldest_idle_one() -> None:
    """A slow answer outlives idle connections that were opened after its own."""
    asked, may_answer = trio.Event(), trio.Event()

    async def app(_: Message, __: Receive, send: Send) -> None:
        asked.set()
        await may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"late"})

    async with page_server(app, connections=3) as where, AsyncExitStack() as stack:
        with trio.fail_after(20):
            slow = await stack.enter_async_context(tcp(where))
            await slow.send_all(GET)
            await asked.wait()
            first, second, third = [await stack.enter_async_context(tcp(where)) for _ in range(3)]
            await until_closed(first)
            may_answer.set()
            assert (await slow.receive_some()).startswith(b"HTTP/1.1 200")
            for kept in (second, third):
                await kept.send_all(GET)
                assert (await kept.receive_some()).startswith(b"HTTP/1.1 200")


async def test_flood_of_connections_closes_no_scraper_whose_request_has_arrived() -> None:
    """Each takes the place of an older one. What supervises the process would restart it if no answer came."""
    async with page_server(Pages(list)) as where:
        host, port = where.split(":")
        # All of them wait in the kernel, because the server gets no turn in between.
        waiting = [socket.create_connection((host, int(port))) for _ in range(101)]
        for number, each in enumerate(waiting):
            each.sendall(GET[:20] if number % 10 else GET)
        with trio.fail_after(20):
            for each in waiting[::10]:
                scraper = trio.SocketStream(trio.socket.from_stdlib_socket(each))
                assert (await scraper.receive_some()).startswith(b"HTTP/1.1 200")
        for each in waiting:
            each.close()


async def _large(_: Message, __: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(20_000_000)})


async def test_scraper_that_does_not_read_does_not_block_cancellation() -> None:
    """The program's error propagates at once."""
    with trio.fail_after(20):
        async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
            where = await nursery.start(_serve_forever)
            # It outlives the server.
            deaf = await stack.enter_async_context(tcp(where))
            await deaf.send_all(GET)
            assert await deaf.receive_some(1) == b"H"
            nursery.cancel_scope.cancel()


async def _serve_forever(task_status: trio.TaskStatus[str]) -> None:
    async with page_server(_large, grace=1000) as where:
        task_status.started(where)
        await trio.sleep_forever()


WEBSOCKET = (
    b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
HOSTILE = {
    "nothing": b"",
    "half a line": b"GET /he",
    "zeros": b"\0" * 100,
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "long": b"GET " + b"x" * 100_000,
    "pipelined": GET * 50,
    "half a body": b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx",
    "continue": b"GET / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n",
    "h2c": b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade, http2-settings\r\n"
    b"http2-settings: !\r\n\r\n",
    "websocket": WEBSOCKET,
    "request in a websocket": WEBSOCKET + GET,
    "no frame": PREFACE + b"\xff" * 100,
    "no settings": PREFACE + bytes(100),
}


def _asked_by_frames(window: int) -> bytes:
    """Return the frames of a client that requests a page and receives ``window`` bytes of it."""
    h2 = H2Connection()
    h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
    h2.send_headers(1, [(":method", "GET"), (":scheme", "http"), (":path", "/healthz"), (":authority", "a")], True)
    return PREFACE + h2.data_to_send()


H2C = (
    b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade, http2-settings\r\n"
    b"http2-settings: AAQAAAAA\r\n\r\n"
)
DEAF = {
    "HTTP/1.1": GET,
    "h2c": H2C,
    "h2c, another page": H2C + _asked_by_frames(0),
    "websocket": WEBSOCKET,
}


@pytest.mark.parametrize("kind", DEAF)
async def test_unread_answer_ends_with_its_connection(kind: str) -> None:
    """Its peer reads nothing, whatever it offers. The answer could otherwise occupy one of the slots forever."""
    asked = trio.Event()

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        asked.set()
        await _large(scope, receive, send)

    server = HttpServer(app, bounds(patience=0.1))
    async with page_server(server) as where, tcp(where) as stranger:
        await stranger.send_all(DEAF[kind])
        with trio.fail_after(20):
            await asked.wait()
            while server._open:  # noqa: ASYNC110  # it has no event
                await trio.sleep(0.01)


@pytest.mark.parametrize("kind", ["nothing", "half a line", "half a body", "h2c"])
async def test_connection_without_a_request_is_closed_after_a_timeout(kind: str) -> None:
    """An incomplete request does not keep it open."""
    async with page_server(Pages(lambda: ()), patience=0.1) as where, tcp(where) as stranger:
        with trio.fail_after(20):
            await stranger.send_all(HOSTILE[kind])
            await until_closed(stranger)


async def test_websocket_ends_only_its_own_connection() -> None:
    """Other invalid requests are those of `tests/http`, which has the same server."""
    async with page_server(Pages(lambda: ()), grace=0.05) as where, tcp(where) as stranger:
        await stranger.send_all(WEBSOCKET)
        with trio.fail_after(20):
            async with httpx.AsyncClient(base_url=f"http://{where}", verify=NO_CERTIFICATES) as http:
                assert (await http.get("/healthz")).text == "ok\n"
