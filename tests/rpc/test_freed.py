"""A connection or a call that has ended is freed at once, and not when Python's garbage collector runs.

No event of the collector knows how large the objects are: a thousand lost connections of 140 KB kept all of it for
minutes. A newer Python finds more: there, the frame of a coroutine that has ended may refer to its caller's.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import pytest
import trio
import trio.testing
from h2.events import StreamEnded, StreamReset
from hyperframe.frame import GoAwayFrame, SettingsFrame, WindowUpdateFrame

from headway import rpc
from headway.client import Client
from headway.errors import NotFound
from headway.rpc.http2 import CountingH2, FrameCutter, Http2Connection, Http2Protocol, Http2Stream
from headway.rpc.server import Calls, Outbox, ServerStream, SocketTransport, TlsProtocol
from headway.rpc.server._whole import WholeCall
from tests.rpc.freed_kit import no_collector
from tests.rpc.hostile_bytes import PREFACE, REQUEST, raw_frame, request
from tests.rpc.raw_kit import HEADERS, connected, tcp
from tests.rpc.rpc_kit import ECHO, FAIL, FLOOD, THING, WAIT, Certificates, Served, Text, app, certificates, served

PARTS = (SocketTransport, TlsProtocol, Http2Protocol, Http2Connection, CountingH2, Calls, ServerStream, Http2Stream)
KIB = 1 << 10
BEGIN = PREFACE + SettingsFrame(0).serialize()
# Nothing in a header block is decoded before its end.
UNFINISHED = raw_frame(14 * KIB, 1, 0, 1, b"x" * (14 * KIB)) + raw_frame(14 * KIB, 9, 0, 1, b"x" * (13 * KIB))
MALFORMED = raw_frame(3, 6, 0, 0, b"abc")
# The beginning of a TLS record with the beginning of a ClientHello.
HELLO = b"\x16\x03\x01\x02\x00\x01"


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("tls"))


def test_objects_of_earlier_tests_do_not_count() -> None:
    made = [Outbox()]
    with no_collector(Outbox) as left:
        made.append(Outbox())
        assert left() == made[1:]


class Peer:
    """The other end of a connection, perhaps over TLS."""

    def __init__(self, beneath: trio.SocketStream, tls: ssl.SSLContext | None) -> None:
        self.beneath = beneath
        self.stream: trio.abc.Stream = beneath
        if tls is not None:
            self.stream = trio.SSLStream(beneath, tls, server_hostname="127.0.0.1", https_compatible=True)

    async def handshake(self) -> None:
        if isinstance(self.stream, trio.SSLStream):
            await self.stream.do_handshake()

    async def begin(self, it: Served) -> None:
        """Send the settings, and wait until the server has the connection and has sent its own."""
        await self.handshake()
        await self.send(BEGIN)
        await _until(lambda: it.server.connections)
        await trio.testing.wait_all_tasks_blocked()

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def read_to_the_end(self) -> None:
        """Read until the server has closed its half, and then close the other one."""
        with contextlib.suppress(trio.BrokenResourceError):
            while await self.stream.receive_some(64 * KIB):
                pass
        await self.reset()

    async def reset(self) -> None:
        self.beneath.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(self.beneath)


def _call(path: str, body: bytes) -> bytes:
    headers = [(name, path if name == ":path" else value) for name, value in REQUEST]
    return request(1, rpc.framed(body), headers=headers)


def _protocol(it: Served) -> Http2Protocol:
    (protocol,) = it.server._connections
    assert isinstance(protocol, Http2Protocol)
    return protocol


async def _until(condition: Callable[[], object]) -> None:
    with trio.fail_after(20):
        while not condition():
            await trio.testing.wait_all_tasks_blocked()


async def _until_left(it: Served) -> None:
    await _until(lambda: not it.server.connections and not len(it.server._admission))
    await trio.testing.wait_all_tasks_blocked()


async def _reset(_: Served, peer: Peer) -> None:
    await peer.reset()


async def _closed(_: Served, peer: Peer) -> None:
    await peer.stream.receive_some()
    await peer.stream.aclose()


async def _closed_half(_: Served, peer: Peer) -> None:
    await peer.beneath.send_eof()
    await peer.read_to_the_end()


async def _reset_in_a_block(it: Served, peer: Peer) -> None:
    await peer.send(UNFINISHED)
    await _until(lambda: it.server._budget.taken)
    await peer.reset()


async def _reset_in_a_call(it: Served, peer: Peer) -> None:
    await peer.send(_call(WAIT, b""))
    await it.echo.until_waiting(1)
    await peer.reset()


async def _reset_in_a_reply(it: Served, peer: Peer) -> None:
    """The server waits until the socket accepts more."""
    window = (1 << 31) - (1 << 16)
    await peer.send(WindowUpdateFrame(0, window).serialize() + _call(FLOOD, b""))
    await peer.send(WindowUpdateFrame(1, window).serialize())
    await _until(lambda: _protocol(it).connection.unsent() > 64 * KIB)
    await peer.reset()


async def _malformed_frame(_: Served, peer: Peer) -> None:
    await peer.send(MALFORMED)
    await peer.read_to_the_end()


async def _malformed_block(_: Served, peer: Peer) -> None:
    """h2's own way reads the first one."""
    await peer.send(_call(ECHO, b"") + raw_frame(6, 1, 5, 3, b"\xff" * 6))
    await peer.read_to_the_end()


async def _too_much_after_the_end(_: Served, peer: Peer) -> None:
    with contextlib.suppress(trio.BrokenResourceError):
        await peer.send(MALFORMED)
        while True:
            await peer.send(b"x" * (64 * KIB))


async def _error_of_the_peer(_: Served, peer: Peer) -> None:
    await peer.send(GoAwayFrame(0, error_code=1).serialize())
    await peer.read_to_the_end()


async def _aborted(it: Served, peer: Peer) -> None:
    _protocol(it).abort()
    await peer.read_to_the_end()


async def _dismissed(it: Served, peer: Peer) -> None:
    it.server._admission.make_room()
    await peer.read_to_the_end()


ENDINGS = [
    _reset,
    _closed,
    _closed_half,
    _reset_in_a_block,
    _reset_in_a_call,
    _reset_in_a_reply,
    _malformed_frame,
    _malformed_block,
    _too_much_after_the_end,
    _error_of_the_peer,
    _aborted,
    _dismissed,
]


@pytest.mark.parametrize("over_tls", [False, pytest.param(True, marks=pytest.mark.wide)], ids=["plain", "tls"])
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__[1:])
async def test_connection_is_freed_however_it_ends(
    ending: Callable[[Served, Peer], Awaitable[None]], over_tls: bool, contexts: Certificates
) -> None:
    with no_collector(*PARTS) as left:
        async with _begun(contexts if over_tls else None) as (it, peer):
            assert left()
            await ending(it, peer)
            await _until_left(it)
            assert left() == []


@asynccontextmanager
async def _begun(contexts: Certificates | None) -> AsyncIterator[tuple[Served, Peer]]:
    """A server, and the other end of a connection to it."""
    server, client = (None, None) if contexts is None else (contexts.server, contexts.client)
    async with served(tls=server) as it, tcp(it.where) as stream:
        peer = Peer(stream, client)
        await peer.begin(it)
        yield it, peer


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_connection_with_an_error_of_ours_is_freed(
    over_tls: bool, contexts: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traceback of the error refers to the connection. The server does not keep the error after the report."""

    def fail(*_: object) -> NoReturn:
        raise ValueError("a bug")

    with no_collector(*PARTS) as left:
        async with _begun(contexts if over_tls else None) as (it, peer):
            monkeypatch.setattr(FrameCutter, "feed", fail)
            await peer.send(MALFORMED)
            await peer.read_to_the_end()
            await _until_left(it)
            assert left() == []


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_connection_of_a_stopped_server_is_freed(over_tls: bool, contexts: Certificates) -> None:
    server, client = (contexts.server, contexts.client) if over_tls else (None, None)
    with no_collector(*PARTS) as left:
        async with trio.open_nursery() as nursery, served(tls=server, grace=0.0) as it:
            host, port = it.where.split(":")
            peer = Peer(await trio.open_tcp_stream(host, int(port)), client)
            await peer.begin(it)
            await peer.send(_call(WAIT, b""))
            await it.echo.until_waiting(1)
            assert left()
            # It has to read, so that the server's end is not by force.
            nursery.start_soon(peer.read_to_the_end)
        assert left() == []


async def _reset_in_a_hello(it: Served, where: trio.SocketStream, _: Certificates) -> None:
    await where.send_all(HELLO)
    await _until(lambda: len(it.server._admission))
    await Peer(where, None).reset()


async def _not_tls(_: Served, where: trio.SocketStream, __: Certificates) -> None:
    await where.send_all(PREFACE)
    await Peer(where, None).read_to_the_end()


async def _refused_by_the_peer(_: Served, where: trio.SocketStream, contexts: Certificates) -> None:
    await _shaken(where, contexts.stranger)


async def _without_a_certificate(_: Served, where: trio.SocketStream, contexts: Certificates) -> None:
    await _shaken(where, contexts.client)


async def _without_a_common_cipher(_: Served, where: trio.SocketStream, contexts: Certificates) -> None:
    tls = rpc.client_tls(contexts.ca)
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    tls.set_ciphers("AES128-SHA")
    await _shaken(where, tls)


async def _shaken(where: trio.SocketStream, tls: ssl.SSLContext) -> None:
    peer = Peer(where, tls)
    with contextlib.suppress(trio.BrokenResourceError):
        await peer.handshake()
    await peer.read_to_the_end()


HANDSHAKES = [_reset_in_a_hello, _not_tls, _refused_by_the_peer, _without_a_certificate, _without_a_common_cipher]


@pytest.mark.parametrize("handshake", HANDSHAKES, ids=lambda handshake: handshake.__name__[1:])
async def test_failed_handshake_is_freed(
    handshake: Callable[[Served, trio.SocketStream, Certificates], Awaitable[None]], contexts: Certificates
) -> None:
    """In some versions of Python, asyncio keeps the error in a frame of the error's own traceback."""
    with no_collector(*PARTS) as left:
        async with served(tls=contexts.server_mutual) as it, tcp(it.where) as stream:
            await handshake(it, stream, contexts)
            await _until_left(it)
            assert left() == []


CALLS: dict[str, tuple[str, bytes, list[tuple[str, str]]]] = {
    "answered": (ECHO, b"", []),
    "failed": (FAIL, b"", []),
    "invalid": (ECHO, b"\x0a\x01", []),
    "malformed timeout": (ECHO, b"", [("grpc-timeout", "1x")]),
    "late": (WAIT, b"", [("grpc-timeout", "1m")]),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_call_is_freed_on_a_connection_that_stays(kind: str) -> None:
    """A rejected request may be as large as an accepted one."""
    with no_collector(ServerStream, Http2Stream, WholeCall) as left:
        async with served() as it, connected(it.where) as raw:
            # The first call of a connection goes through h2, and later ones do not.
            for id, (path, body, more) in ((1, CALLS["answered"]), (3, CALLS[kind])):
                raw.h2.send_headers(id, [(name, path if name == ":path" else value) for name, value in HEADERS] + more)
                raw.h2.send_data(id, rpc.framed(body), end_stream=True)
            await raw.flush()
            await raw.until(lambda event: isinstance(event, StreamEnded) and event.stream_id == 1)
            await raw.until(lambda event: isinstance(event, StreamEnded | StreamReset) and event.stream_id == 3)
            await trio.testing.wait_all_tasks_blocked()
            assert left() == []


async def test_failed_call_of_a_client_is_freed() -> None:
    """The traceback of the client's error refers to the call, and the call to its connection."""
    with no_collector(ServerStream, Http2Stream) as left:
        async with served() as it, rpc.open_channel(it.where) as channel:
            with contextlib.suppress(NotFound):
                await Client(channel, app.registry).read(THING, "missing")
            await trio.testing.wait_all_tasks_blocked()
            assert left() == []


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_channel_frees_a_lost_connection_before_its_next_call(over_tls: bool, contexts: Certificates) -> None:
    server, client = (contexts.server, contexts.client) if over_tls else (None, None)
    with no_collector(*PARTS) as left:
        async with served(tls=server) as it:
            async with rpc.open_channel(it.where, tls=client) as channel:
                assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
                assert left()
                _protocol(it).abort()
                await _until_left(it)
                assert left() == []
                assert (await channel.unary(ECHO, Text(text="b"), Text)).text == "b"
            await _until_left(it)
            assert left() == []
