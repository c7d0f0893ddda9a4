"""The limits of the server: bodies, heads, connections, time, and bytes that are not HTTP."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack

import pytest
import trio

import headway
from headway.api import Call, DeadlineExceeded
from headway.errors import NotFound
from headway.http import Bounds, HttpRefusal, HttpServer, RequestLimits, Shares, _app, _offered
from headway.http._bounds import HeldReply
from tests.helpers.wrapped_services import WrappedServices, answering
from tests.http.kit import ALL_TEAMS, CORE, NO_CERTIFICATES, TEAM, TEAMS, Api, allowing, serving
from tests.observe.test_pages_strangers import HOSTILE
from tests.rpc.raw_kit import tcp, until_closed

PUT = f"PUT {CORE} HTTP/1.1\r\nhost: localhost\r\n"
GET = f"GET {CORE} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


async def raw(api: Api, data: bytes) -> bytes:
    """Send bytes, and return everything up to the end of the connection."""
    with trio.fail_after(30):
        async with tcp(api.address) as stream:
            await stream.send_all(data)
            return await until_end(stream)


async def until_end(stream: trio.SocketStream) -> bytes:
    """Return everything that is received up to the end of the connection."""
    answer = b""
    try:
        while piece := await stream.receive_some():
            answer += piece
    except trio.BrokenResourceError:
        pass
    return answer


@pytest.mark.parametrize(
    ("head", "body", "code"),
    [
        ("content-length: 1001\r\n\r\n", b"", b"413"),
        ("content-length: 99999999999999999999999999\r\n\r\n", b"", b"400"),
        ("content-length: -1\r\n\r\n", b"", b"400"),
        ("content-length: 1\r\ncontent-length: 2\r\n\r\n", b"", b"400"),
        ("transfer-encoding: chunked\r\n\r\n", b"3e9\r\n" + b" " * 1001 + b"\r\n0\r\n\r\n", b"413"),
        ("transfer-encoding: chunked\r\n\r\n", b"x\r\n", b"400"),
        ("transfer-encoding: gzip\r\n\r\n", b"", b"501"),
        ("content-encoding: gzip\r\ncontent-length: 2\r\nconnection: close\r\n\r\n", b"{}", b"415"),
        ("connection: close\r\nx: " + "y" * 20_000 + "\r\n\r\n", b"", b"431"),
        ("x: y\r\n" * 300 + "\r\n", b"", b"431"),
        ("transfer-encoding: chunked\r\n\r\n", b"0\r\n" + b"x: y\r\n" * 300 + b"\r\n", b"431"),
        ("connection: close\r\ncontent-length: 2\r\n" + "x: y\r\n" * 200 + "\r\n", b"{}", b"200"),
        # The body has arrived, so there is nothing to ask for.
        ("expect: 100-continue\r\nconnection: close\r\ncontent-length: 2\r\n\r\n", b"{}", b"200"),
    ],
)
async def test_body_and_head_are_bounded(head: str, body: bytes, code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that announces too much is refused before it is sent."""
    # The rest of the announced body never comes.
    monkeypatch.setattr(_offered, "_DRAIN_TIME", 0.05)
    async with serving(limits=RequestLimits(body_size=1000)) as api:
        answer = await raw(api, (PUT + head).encode() + body)
        assert answer.split()[1] == code, answer
        assert (await api.http.put(CORE, json={})).status_code == 200
        assert api.failures == []


async def test_body_that_does_not_arrive_is_refused() -> None:
    """Its memory is free again."""
    async with serving(limits=RequestLimits(request_timeout=0.05)) as api:
        answer = await raw(api, (PUT + "content-length: 9\r\n\r\nx").encode())
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in answer


async def test_body_with_two_lengths_is_refused_and_its_connection_closed() -> None:
    """A proxy and the server could otherwise take different bytes for the next request (request smuggling)."""
    async with serving() as api:
        lengths = "content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"
        smuggled = f"GET {CORE} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        answer = await raw(api, f"{PUT}{lengths}2\r\n{{}}\r\n0\r\n\r\n{smuggled}".encode())
        assert answer.startswith(b"HTTP/1.1 400")
        assert answer.count(b"HTTP/1.1") == 1
        assert await api.client.get(TEAM, "core") is None


def test_bodies_of_all_requests_have_one_limit() -> None:
    shares = Shares(RequestLimits(body_size=25, bodies_size=100))
    with ExitStack() as held:
        for caller in range(4):
            held.enter_context(shares.body(str(caller)))(25)
        with pytest.raises(HttpRefusal, match="too many large requests"), shares.body("other") as hold:
            hold(1)
        assert shares.bodies == 100
    assert shares.bodies == 0


def test_bodies_of_one_caller_take_no_more_than_a_quarter() -> None:
    """Others can still write while one caller sends as much as it may."""
    shares = Shares(RequestLimits(body_size=10, bodies_size=100))
    with shares.body("one") as hold, shares.body("one") as more:
        hold(10)
        more(10)
        with pytest.raises(HttpRefusal, match="you are sending") as refused, shares.body("one") as most:
            most(6)
        assert refused.value.code == 429
        with shares.body("other") as others:
            others(10)
    with shares.body("one") as hold:
        hold(25)


async def test_announced_bodies_take_no_memory_from_others_before_they_arrive() -> None:
    """Requests that announce large bodies, and send nothing, leave room for a write."""
    async with serving(limits=RequestLimits(body_size=1000, bodies_size=4000)) as api, AsyncExitStack() as held:
        for head in ["content-length: 1000", "transfer-encoding: chunked"] * 4:
            stream = await held.enter_async_context(tcp(api.address))
            await stream.send_all(f"{PUT}{head}\r\nexpect: 100-continue\r\n\r\n".encode())
            # The server waits for the body.
            with trio.fail_after(30):
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
        assert (await api.http.put(CORE, json={})).status_code == 200


async def test_service_that_does_not_answer_is_given_up() -> None:
    """The time for the request to arrive doesn't count."""

    from headway.http._call import Caller, unary
    from headway.rpc import Budget, Services
    from headway.service import ResourceService
    from headway.storage import open_store
    from tests.http.kit import registry

    async def slow(_: str, call: Call, request: object, answer: Callable[..., Awaitable[object]]) -> object:
        await answer(call, request)
        await trio.sleep_forever()
        return None

    async def arriving() -> object:
        from headway.resource import pb

        await trio.sleep(0.3)
        return pb.ReadRequest(id=TEAM.id("core").message())

    async with open_store("memory:") as backend:
        plain = ResourceService(backend, registry())
        path = "/headway.resource.v1.ResourceService/Read"
        caller, failed = Caller({}, None), lambda *_: None
        reply = HeldReply(Budget(1 << 20))
        with pytest.raises(NotFound):
            await unary(Services(plain), path, caller, arriving, failed, timeout=0.2, reply=reply)

        async def at_once() -> object:
            from headway.resource import pb

            return pb.ListRequest(type=TEAM.name.message(), tenancy=pb.Tenancy())

        path = "/headway.resource.v1.ResourceService/List"
        with pytest.raises(DeadlineExceeded, match=r"did not answer within 0\.05 s"):
            await unary(
                Services(WrappedServices(answering(slow), plain)),
                path,
                caller,
                at_once,
                failed,
                timeout=0.05,
                reply=reply,
            )


@pytest.mark.parametrize("kind", HOSTILE)
async def test_hostile_bytes_end_only_their_own_connection(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer may have left before the answer, too."""
    # A stranger who leaves its answers unread would otherwise delay the end of the server by five seconds.
    monkeypatch.setattr(_app, "_GRACE", 0.05)
    async with serving() as api:
        with trio.fail_after(30):
            for leaves in (True, False):
                async with tcp(api.address) as stranger:
                    await stranger.send_all(HOSTILE[kind].replace(b"host: a", b"host: localhost"))
                    if leaves:
                        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        stranger.socket.close()
                    assert (await api.http.get(CORE)).status_code == 404
        assert api.failures == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.wide) for each in range(1, 8))])
async def test_broken_requests_never_fail_the_server(seed: int) -> None:
    """Each is a request with some of its bytes changed, removed or repeated."""
    import random

    chance = random.Random(seed)
    async with serving(limits=RequestLimits(request_timeout=0.1)) as api:
        whole = (PUT + 'content-length: 40\r\n\r\n{"data": {"members": [{"login": "ada"}]}}').encode()
        for _ in range(40):
            data = bytearray(chance.choice([whole, GET, GET.replace(CORE.encode(), f"{TEAMS}?ns=x".encode())]))
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(data))
                data[at : at + chance.randint(0, 3)] = chance.choice(
                    [b"", bytes([chance.randrange(256)]), b"\r\n", b"%", b"\x00", b"?", data[at:] * 2]
                )
            async with tcp(api.address) as stranger:
                await stranger.send_all(data + b"\r\n\r\n")
                with trio.move_on_after(0.2):
                    await stranger.receive_some()
        assert (await api.http.get(TEAMS)).status_code == 200
        assert api.failures == []


async def test_new_connection_never_ends_a_request_in_progress() -> None:
    """The oldest idle connection is closed for it. If none is idle, it is closed itself."""
    bounds = Bounds(connections=3, peer_connections=3, patience=20.0, stall=20.0)
    async with serving(bounds=bounds) as api, AsyncExitStack() as stack:
        with trio.fail_after(30):
            watches = [await stack.enter_async_context(tcp(api.address)) for _ in range(2)]
            for watch in watches:
                await watch.send_all(f"GET {TEAMS}?watch HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                assert (await watch.receive_some()).startswith(b"HTTP/1.1 200")
            idle, newer = [await stack.enter_async_context(tcp(api.address)) for _ in range(2)]
            await until_closed(idle)
            await newer.send_all(f"GET {TEAMS}?watch HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            assert (await newer.receive_some()).startswith(b"HTTP/1.1 200")
            refused = await stack.enter_async_context(tcp(api.address))
            await until_closed(refused)
            await api.client.apply(TEAM.new("core"))
            for watch in (*watches, newer):
                received = b""
                while b'"core"' not in received:
                    received += await watch.receive_some()


async def test_one_host_leaves_connections_for_others() -> None:
    bounds = Bounds(connections=10, peer_connections=2, patience=20.0)
    async with serving(bounds=bounds) as api, AsyncExitStack() as stack:
        with trio.fail_after(30):
            first = await stack.enter_async_context(tcp(api.address))
            second, third = [await stack.enter_async_context(tcp(api.address)) for _ in range(2)]
            await until_closed(first)
            for kept in (second, third):
                await kept.send_all(GET)
                assert (await kept.receive_some()).startswith(b"HTTP/1.1 404")


async def test_token_is_checked_before_a_body_is_received() -> None:
    """Only what a stranger sends anyway is read, and thrown away."""
    access, _, _ = allowing(caller=[ALL_TEAMS])
    async with serving(access, RequestLimits(body_size=1 << 30, bodies_size=1 << 30)) as api:
        head = PUT + "connection: close\r\nauthorization: Bearer x\r\ncontent-length: 1000000\r\n\r\n"
        answer = await raw(api, head.encode() + b" " * 1_000_000)
        assert answer.startswith(b"HTTP/1.1 401")


async def test_websockets_are_not_served() -> None:
    async with serving() as api:
        answer = await raw(api, HOSTILE["websocket"].replace(b"host: a", b"host: localhost"))
        assert answer.startswith(b"HTTP/1.1 403")


UPGRADE = b"connection: upgrade, http2-settings, close\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"


@pytest.mark.parametrize("upgrade", [UPGRADE, UPGRADE.replace(b"h2c", b" H2C ")])
async def test_offer_to_upgrade_to_http2_is_declined(upgrade: bytes) -> None:
    """The answer uses HTTP/1.1, as for a client that did not offer to upgrade."""
    async with serving() as api:
        for head, code in ((GET, b"404"), (PUT.encode() + b"content-length: 2\r\n\r\n{}", b"200")):
            answer = await raw(api, head.replace(b"host: localhost\r\n", b"host: localhost\r\n" + upgrade))
            assert answer.startswith(b"HTTP/1.1 " + code), answer
            assert b"HTTP/1.1 101" not in answer


@pytest.mark.parametrize("pieces", [1, 3])
async def test_connection_that_begins_with_http2_is_refused(pieces: int) -> None:
    """With a status that says so, in one piece or in several, and whatever has been asked before."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    async with serving() as api:
        for before in (b"", GET):
            with trio.fail_after(30):
                async with tcp(api.address) as stream:
                    for number in range(pieces):
                        size = -(-len(preface) // pieces)
                        piece = preface[number * size : (number + 1) * size]
                        await stream.send_all(before + piece if number == 0 else piece)
                    answer = await until_end(stream)
            assert answer.count(b"HTTP/1.1 505") == 1
            assert (b"HTTP/1.1 404" in answer) is bool(before)


async def test_engine_takes_its_limits_from_those_of_grpc() -> None:
    app = headway.App("http-limits")
    limits = headway.rpc.Limits(message_size=100)
    async with headway.open_engine(
        "memory:", app, network=headway.Network(http="127.0.0.1:0", insecure=True, limits=limits)
    ) as engine:
        import httpx

        async with httpx.AsyncClient(base_url=f"http://{engine.http}", verify=NO_CERTIFICATES) as http:
            path = "/api/tenancy/v1/partition/east"
            assert (await http.put(path, content=b"{}" + b" " * 99)).status_code == 413
            assert (await http.put(path, content=b"{}" + b" " * 98)).status_code == 200


async def test_server_has_no_tasks_and_sockets_left_at_its_end() -> None:
    """Requests in progress get their time first."""
    before = len(os.listdir("/proc/self/fd"))
    async with serving() as api:
        assert (await api.http.get(TEAMS)).status_code == 200
    assert len(os.listdir("/proc/self/fd")) <= before
    assert HttpServer is not None
