"""The choice of the connection that is closed for a new one. Unfinished requests keep no other caller away."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio
from starlette.requests import Request
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.http import Bounds, Exchange, HttpServer, Offered, RequestLimits, Shares, listener, listening_at
from headway.http._server import App, Message, Receive, Send, _host
from headway.rpc import Services
from tests.http.kit import CORE, TEAMS, registry, serving
from tests.rpc.raw_kit import tcp, until_closed

WITHIN = f"PUT {CORE} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n".encode()
"""A request without its body. The server says that it waits for it."""
GET = f"GET {TEAMS} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
WATCH = GET.replace(b" HTTP", b"?watch HTTP")


@asynccontextmanager
async def from_host(where: str, number: int) -> AsyncIterator[trio.SocketStream]:
    """Open a connection from 127.0.0.<number>."""
    host, _, port = where.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port), local_address=f"127.0.0.{number}") as stream:
        yield stream


async def begin_request(stack: AsyncExitStack, where: str, number: int) -> trio.SocketStream:
    """Send a request without its body, and wait until the server waits for it."""
    stream = await stack.enter_async_context(from_host(where, number))
    await stream.send_all(WITHIN)
    assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
    return stream


async def test_unfinished_requests_of_two_hosts_keep_no_third_one_off() -> None:
    """Each new connection takes the place of the oldest of the host that has the most unfinished requests."""
    bounds = Bounds(connections=5, peer_connections=3, patience=20.0, stall=20.0)
    async with serving(bounds=bounds) as api, AsyncExitStack() as stack:
        with trio.fail_after(30):
            rare = [await begin_request(stack, api.address, 3) for _ in range(2)]
            many = [await begin_request(stack, api.address, 2) for _ in range(3)]
            guest = await stack.enter_async_context(from_host(api.address, 9))
            await guest.send_all(WATCH)
            assert (await guest.receive_some()).startswith(b"HTTP/1.1 200")
            await until_closed(many[0])
            # At its own limit, a host loses one of its own.
            many.append(await begin_request(stack, api.address, 2))
            await until_closed(rare[0])
            many.append(await begin_request(stack, api.address, 2))
            await until_closed(many[1])
            # What has arrived in the end is answered.
            await many[-1].send_all(b'{"data":{')
            assert (await many[-1].receive_some()).startswith(b"HTTP/1.1 400")


@asynccontextmanager
async def served(app: App, bounds: Bounds) -> AsyncIterator[str]:
    """Serve an application while the block runs."""
    bound, ending = listener("127.0.0.1:0"), trio.Event()
    async with trio.open_nursery() as nursery:
        accepting = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
        nursery.start_soon(partial(HttpServer(app, bounds).serve, accepting, ending, 0.0))
        try:
            yield listening_at(bound)
        finally:
            ending.set()


async def test_request_that_has_arrived_keeps_its_place() -> None:
    """A write that is being answered outlives newer connections, which are closed instead."""
    arrived, may_answer = trio.Event(), trio.Event()

    async def app(_: Message, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        arrived.set()
        await may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with served(app, Bounds(1, 1, 20.0)) as where, tcp(where) as slow:
        with trio.fail_after(30):
            await slow.send_all(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
            await arrived.wait()
            async with tcp(where) as refused:
                await until_closed(refused)
            may_answer.set()
            assert (await slow.receive_some()).startswith(b"HTTP/1.1 200")


async def test_client_that_reads_nothing_loses_its_place_after_a_while(mock_clock: MockClock) -> None:
    """A long answer that its client does not read gives its place to a new connection."""
    mock_clock.rate = 1.0

    async def app(_: Message, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(20_000_000)})

    async with served(app, Bounds(1, 1, 1000.0, stall=1000.0)) as where, tcp(where) as deaf:
        await deaf.send_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert await deaf.receive_some(1) == b"H"
        async with tcp(where) as early:
            await until_closed(early)
        mock_clock.jump(11)
        async with tcp(where) as late:
            await late.send_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert await late.receive_some(1) == b"H"


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
async def test_network_of_ipv6_counts_as_one_host() -> None:
    """A host has all addresses of its /64 network, so its connections, watches and bodies are counted together."""
    try:
        bound = listener("[::1]:0")
    except OSError:
        pytest.skip("needs the loopback address of IPv6")
    async with (
        trio.SocketListener(trio.socket.from_stdlib_socket(bound)) as accepting,
        await trio.open_tcp_stream("::1", bound.getsockname()[1]),
        await accepting.accept() as stream,
    ):
        assert _host(stream) == "::/64"


@pytest.mark.parametrize(
    ("address", "account"),
    [
        ("2001:db8:1:2:3:4:5:6", "host 2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "host 192.0.2.7"),
        ("192.0.2.7", "host 192.0.2.7"),
    ],
)
def test_stranger_is_counted_by_host_or_network(address: str, account: str) -> None:
    """The account of a caller without a token."""
    request = Request({"type": "http", "method": "GET", "path": "/api", "headers": [], "client": (address, 1)})
    offered = Offered(Services(), registry(), None, lambda *_: None)
    assert Exchange(offered, Shares(RequestLimits()), request).account == account


async def test_requests_of_a_client_that_has_left_are_not_answered() -> None:
    """A client that has sent many requests at once, and has left, costs no more than the one that had begun."""
    begun = 0
    first, may_answer = trio.Event(), trio.Event()

    async def app(_: Message, __: Receive, send: Send) -> None:
        nonlocal begun
        begun += 1
        first.set()
        await may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": b"x"})

    async with served(app, Bounds(connections=5, peer_connections=5, patience=20.0)) as where:
        with trio.fail_after(30):
            async with from_host(where, 2) as leaving:
                await leaving.send_all(GET * 500)
                await first.wait()
                # The close is a reset, as it is for a client with unread answers.
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            may_answer.set()
            await wait_all_tasks_blocked()
            assert begun == 1


async def test_silent_connection_does_not_delay_the_end_of_the_server() -> None:
    """Its request has not begun, so nothing is lost."""

    async def app(_: Message, __: Receive, ___: Send) -> None:
        pytest.fail("nobody has asked")

    bound, ending = listener("127.0.0.1:0"), trio.Event()
    accepting = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(HttpServer(app, Bounds(5, 5, 1000.0)).serve, accepting, ending, 1000.0)
            async with from_host(listening_at(bound), 2) as silent:
                await wait_all_tasks_blocked()
                ending.set()
                await until_closed(silent)
