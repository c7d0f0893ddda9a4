"""HTTP over TLS: the files of gRPC's server, renewed alike, and refusals that stay with their connection."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

import httpx
import pytest
import trio

import headway
from headway.errors import DeclarationError
from headway.http import Bounds, HttpServer, listener, listening_at
from headway.rpc import server_tls
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
    options = {"http": "127.0.0.1:0", "listen": ["127.0.0.1:0"], "insecure": True}
    async with headway.open_engine("memory:", APP, tls=tls, report=events.append, **options) as engine:  # type: ignore[arg-type]  # a table of options
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
        async with headway.open_engine("memory:", APP, http="127.0.0.1:0", tls=tls, insecure=True):
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
