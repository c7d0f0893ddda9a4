"""HTTP over TLS: the files of gRPC's server, renewed alike, and refusals that stay with their connection."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
import trio

import headway
from headway.errors import DeclarationError
from headway.http import Bounds, HttpServer, listener, listening_at
from headway.rpc import server_tls
from tests.http.test_connections import from_host
from tests.rpc.raw_kit import tcp, until_closed
from tests.rpc.test_renewal import Pair
from tests.rpc.test_renewal import pair as pair

APP = headway.App("http-tls")
PATH = "/api/tenancy/v1/partition"


async def _list(where: str, context: ssl.SSLContext) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"https://{where}", verify=context, timeout=30) as http:
        return await http.get(PATH)


async def test_http_and_grpc_serve_the_same_renewed_certificate(pair: Pair) -> None:
    """A client that would rather speak HTTP/2 gets HTTP/1.1. Wrong files change nothing."""
    tls, events = server_tls(pair.certificate, pair.key), list[object]()
    network = headway.Network(["127.0.0.1:0"], http="127.0.0.1:0", tls=tls, insecure=True)
    async with headway.open_engine("memory:", APP, network=network, report=events.append) as engine:
        assert engine.http is not None
        trusting = ssl.create_default_context(cafile=str(pair.ca))
        trusting.set_alpn_protocols(["h2", "http/1.1"])
        answer = await _list(engine.http, trusting)
        assert (answer.status_code, answer.http_version) == (200, "HTTP/1.1")
        pair.renew(key=False)
        assert (await _list(engine.http, trusting)).status_code == 200
        assert headway.events.CertificateRefused in map(type, events)
        pair.write()
        renewed = ssl.create_default_context(cafile=str(pair.ca))
        assert (await _list(engine.http, renewed)).status_code == 200
        with pytest.raises(httpx.ConnectError):
            await _list(engine.http, trusting)
        async with headway.connect(engine.addresses, APP, tls=headway.rpc.client_tls(pair.ca)) as client:
            assert await client.list(headway.resource.PARTITION) == []
        async with tcp(engine.http) as plain:
            with trio.fail_after(30):
                await plain.send_all(f"GET {PATH} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                await until_closed(plain)
        assert (await _list(engine.http, renewed)).status_code == 200


async def test_context_of_another_kind_is_refused() -> None:
    """It cannot be copied for another protocol, and negotiates HTTP/2."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(DeclarationError, match=r"must come from headway\.rpc\.server_tls"):
        async with headway.open_engine(
            "memory:", APP, network=headway.Network(http="127.0.0.1:0", tls=tls, insecure=True)
        ):
            pytest.fail("the engine listens")


async def test_tls_that_agrees_on_http2_is_closed(pair: Pair) -> None:
    """The contexts of `server_tls` never do. No request is served, and the server goes on."""
    agreed = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    agreed.load_cert_chain(pair.certificate, pair.key)
    agreed.set_alpn_protocols(["h2"])
    trusting = ssl.create_default_context(cafile=str(pair.ca))
    trusting.set_alpn_protocols(["h2"])
    asked: list[object] = []

    async def app(scope: Any, _: object, __: object) -> None:
        asked.append(scope)

    bound, ending = listener("127.0.0.1:0"), trio.Event()
    server = HttpServer(app, Bounds(100, 100, 60.0), lambda: agreed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, trio.SocketListener(trio.socket.from_stdlib_socket(bound)), ending, 0)
        for _ in range(2):
            with trio.fail_after(30):
                async with tcp(listening_at(bound)) as plain:
                    stream = trio.SSLStream(plain, trusting, server_hostname="127.0.0.1", https_compatible=True)
                    await stream.do_handshake()
                    assert stream.selected_alpn_protocol() == "h2"
                    with contextlib.suppress(trio.BrokenResourceError):
                        await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
                        while await stream.receive_some(1000):
                            pass
        ending.set()
    assert asked == []


@asynccontextmanager
async def serving(pair: Pair, bounds: Bounds) -> AsyncIterator[str]:
    """Serve an empty answer over TLS while the block runs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)

    async def app(_: object, __: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    bound, ending = listener("127.0.0.1:0"), trio.Event()
    server = HttpServer(app, bounds, lambda: context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, trio.SocketListener(trio.socket.from_stdlib_socket(bound)), ending, 0)
        try:
            with trio.fail_after(40):
                yield listening_at(bound)
        finally:
            ending.set()


async def answered(where: str, pair: Pair) -> bool:
    async with httpx.AsyncClient(verify=ssl.create_default_context(cafile=str(pair.ca)), timeout=30) as http:
        return (await http.get(f"https://{where}/")).status_code == 204


def hello() -> bytes:
    """Return the first message of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("begins", [False, True])
async def test_oldest_handshake_of_a_host_is_closed_for_its_next_one(pair: Pair, *, begins: bool) -> None:
    """Long before the connections are as many as are allowed, and whatever has arrived of it."""
    bounds = Bounds(100, 100, 60.0, peer_handshakes=3, handshake=60.0)
    async with serving(pair, bounds) as where, AsyncExitStack() as stack:
        held: list[trio.SocketStream] = []
        for _ in range(5):
            held.append(await stack.enter_async_context(tcp(where)))
            if begins:
                await held[-1].send_all(hello())
                assert await held[-1].receive_some(1)
        for closed in held[:2]:
            await until_closed(closed)
        # A finished handshake counts no longer.
        assert all([await answered(where, pair) for _ in range(4)])


async def test_oldest_handshake_of_the_host_with_most_is_closed_for_that_of_another(pair: Pair) -> None:
    async with serving(pair, Bounds(100, 100, 60.0, handshakes=3, handshake=60.0)) as where, AsyncExitStack() as stack:
        rare = await stack.enter_async_context(from_host(where, 3))
        many = [await stack.enter_async_context(from_host(where, 2)) for _ in range(2)]
        assert await answered(where, pair)
        await until_closed(many[0])
        await rare.send_all(hello())
        assert await rare.receive_some(1)


async def test_late_handshake_is_closed(pair: Pair) -> None:
    """The time for a request is longer."""
    async with serving(pair, Bounds(100, 100, 60.0, handshake=0.2)) as where, tcp(where) as silent:
        began = trio.current_time()
        await until_closed(silent)
        assert trio.current_time() - began < 30


async def test_handshake_of_too_many_bytes_is_closed(pair: Pair) -> None:
    """Also if each of them is right. A request after the handshake may have more."""
    first = hello()
    async with serving(pair, Bounds(100, 100, 60.0, handshake_size=len(first) - 1)) as where, tcp(where) as long:
        await long.send_all(first)
        answer = b""
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await long.receive_some():
                answer += data
        assert answer == b""
    bounds, trusting = Bounds(100, 100, 60.0, handshake_size=2 * len(first) + 1000), ssl.create_default_context()
    trusting.load_verify_locations(pair.ca)
    async with serving(pair, bounds) as where, httpx.AsyncClient(verify=trusting, timeout=30) as http:
        assert (await http.put(f"https://{where}/", content=bytes(100_000))).status_code == 204


async def test_request_that_arrives_with_the_end_of_the_handshake_is_served(pair: Pair) -> None:
    """In TLS 1.3, a client sends its request without waiting for an answer to the end of its handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cafile=str(pair.ca))
    client = trusting.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    bounds = Bounds(100, 100, 60.0, handshake_size=2 * len(hello()) + 1000)
    async with serving(pair, bounds) as where, tcp(where) as stream:
        with trio.fail_after(30):
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await stream.send_all(outgoing.read())
                    incoming.write(await stream.receive_some())
            client.write(b"PUT / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n" + bytes(100_000))
            await stream.send_all(outgoing.read())
            answer = b""
            while not answer:
                incoming.write(await stream.receive_some())
                with contextlib.suppress(ssl.SSLWantReadError):
                    answer = client.read()
        assert answer.startswith(b"HTTP/1.1 204")
