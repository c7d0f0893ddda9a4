"""The DNS server on its sockets."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import dns.asyncquery
import dns.message
import dns.rcode
import pytest
import trio

from catalog.dns import DNSServer, Responder, Zone, server
from catalog.dns.packets import LARGEST_QUERY
from tests.catalog.dns.dns_kit import PATIENCE, Catalog, endpoint, open_catalog, query, texts

HOST = "127.0.0.1"
NAME = "web.service.consul"


@asynccontextmanager
async def serving(size: int = 1) -> AsyncIterator[tuple[Catalog, int]]:
    """Serve a service with ``size`` endpoints. Yields the catalog and the port."""
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(open_catalog())
        await catalog.endpoints("web", *(endpoint(f"10.0.0.{number}") for number in range(1, size + 1)))
        nursery = await stack.enter_async_context(trio.open_nursery())
        listening = await nursery.start(DNSServer(catalog.responder).run, HOST, 0)
        yield catalog, listening.port
        nursery.cancel_scope.cancel()


async def tcp_answer(stream: trio.SocketStream) -> dns.message.Message | None:
    """Return the next answer on a connection; None at its end."""
    size = await exactly(stream, 2)
    answer = await exactly(stream, int.from_bytes(size, "big")) if size is not None else None
    return dns.message.from_wire(answer) if answer is not None else None


async def exactly(stream: trio.SocketStream, size: int) -> bytes | None:
    """Return the next ``size`` bytes, or None at the end of the stream."""
    received = b""
    while len(received) < size:
        try:
            piece = await stream.receive_some(size - len(received))
        except trio.BrokenResourceError:
            return None
        if not piece:
            return None
        received += piece
    return received


def framed(packet: bytes) -> bytes:
    """Return a query as it is sent over TCP."""
    return struct.pack("!H", len(packet)) + packet


async def test_udp_answers_and_a_cut_answer_is_whole_over_tcp() -> None:
    async with serving(60) as (_, port):
        asked = dns.message.make_query(NAME, "A")
        answer, was_tcp = await dns.asyncquery.udp_with_fallback(asked, HOST, port=port, timeout=PATIENCE)
        assert was_tcp
        assert len(texts(answer)) == 60
        small = dns.message.make_query("no.service.consul", "A")
        answer = await dns.asyncquery.udp(small, HOST, port=port, timeout=PATIENCE)
        assert answer.rcode() == dns.rcode.NXDOMAIN


async def test_udp_goes_on_after_junk_and_after_senders_that_cannot_be_answered() -> None:
    async with serving() as (_, port):
        sender = trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sender:
            await sender.bind((HOST, 0))
            for junk in (b"", b"\0", query(NAME)[:-3], b"\xff" * 65_000):
                await sender.sendto(junk, (HOST, port))
            # The kernel refuses the answer to this one, which is gone.
            gone = trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with gone:
                await gone.sendto(query(NAME), (HOST, port))
            asked = dns.message.make_query(NAME, "A")
            answer = await dns.asyncquery.udp(asked, HOST, port=port, timeout=PATIENCE)
            assert texts(answer) == ["10.0.0.1"]


async def test_connection_answers_several_queries_in_pieces() -> None:
    async with serving() as (_, port), await trio.open_tcp_stream(HOST, port) as stream:
        two = framed(query(NAME)) + framed(query("no.service.consul"))
        for place in range(0, len(two), 7):
            await stream.send_all(two[place : place + 7])
        first = await tcp_answer(stream)
        assert first is not None
        assert texts(first) == ["10.0.0.1"]
        await stream.send_all(framed(query(NAME)))
        assert await tcp_answer(stream) is not None


async def test_query_that_meets_a_mistake_is_answered_by_servfail_and_the_server_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(open_catalog())
        await catalog.endpoints("web", endpoint("10.0.0.1"))
        broken = True

        def zone() -> Zone | None:
            if broken:
                raise RuntimeError("a mistake")
            return catalog.source.zone()

        nursery = await stack.enter_async_context(trio.open_nursery())
        listening = await nursery.start(DNSServer(Responder(zone)).run, HOST, 0)
        asked = dns.message.make_query(NAME, "A")
        for _ in range(3):
            for ask in (dns.asyncquery.udp, dns.asyncquery.tcp):
                answer = await ask(asked, HOST, port=listening.port)
                assert answer.rcode() == dns.rcode.SERVFAIL
        assert capsys.readouterr().err.count("RuntimeError: a mistake") == 1
        broken = False
        assert texts(await dns.asyncquery.udp(asked, HOST, port=listening.port)) == ["10.0.0.1"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "sent",
    [framed(b""), framed(b"\0" * 5), struct.pack("!H", LARGEST_QUERY + 1), framed(b"\0\0\x80" + b"\0" * 9)],
    ids=["empty", "short", "large", "answer"],
)
async def test_connection_without_a_valid_query_is_closed(sent: bytes) -> None:
    async with serving() as (_, port), await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(sent)
        assert await tcp_answer(stream) is None


async def test_number_of_connections_is_bounded_and_a_new_one_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that was silent for longest is closed in its favor."""
    monkeypatch.setattr(server, "CONNECTIONS", 3)
    async with serving() as (_, port), AsyncExitStack() as stack:
        held = []
        for _ in range(3):
            held.append(await stack.enter_async_context(await trio.open_tcp_stream(HOST, port)))
            await held[-1].send_all(framed(query(NAME)))
            assert await tcp_answer(held[-1]) is not None
        # The first is used again, so the second is the oldest.
        await held[0].send_all(framed(query(NAME)))
        assert await tcp_answer(held[0]) is not None
        another = await stack.enter_async_context(await trio.open_tcp_stream(HOST, port))
        await another.send_all(framed(query(NAME)))
        assert await tcp_answer(another) is not None
        assert await tcp_answer(held[1]) is None
        await held[0].send_all(framed(query(NAME)))
        assert await tcp_answer(held[0]) is not None


async def test_connection_that_is_silent_or_does_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole query must arrive in time, and its answer must be read in time."""
    monkeypatch.setattr(server, "IDLE", 0.1)
    monkeypatch.setattr(server, "LIFE", 100 * PATIENCE)
    async with serving() as (_, port), trio.open_nursery() as nursery:

        async def silent() -> None:
            async with await trio.open_tcp_stream(HOST, port) as stream:
                await stream.send_all(framed(query(NAME))[:5])
                assert await tcp_answer(stream) is None

        async def deaf() -> None:
            async with await trio.open_tcp_stream(HOST, port) as stream:
                with suppress(trio.BrokenResourceError):
                    while True:
                        await stream.send_all(framed(query(NAME)) * 1_000)

        nursery.start_soon(silent)
        nursery.start_soon(deaf)
