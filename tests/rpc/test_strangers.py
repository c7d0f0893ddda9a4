"""Connections of strangers cost little, and do not keep honest clients from being served."""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from h2.events import PingAckReceived
from hyperframe.frame import SettingsFrame

import headway
from headway import rpc
from headway.errors import HeadwayError
from headway.events import ConnectionEnded, ConnectionRefused, HandlerFailed
from headway.rpc import Limits
from tests.cli.served import TEAM, Team
from tests.cli.served import app as staff
from tests.rpc.hostile_bytes import PREFACE
from tests.rpc.raw_kit import connected, tcp, until_closed
from tests.rpc.rpc_kit import ECHO, FAIL, Text, certificates, served
from tests.rpc.serving_kit import serving

KIB, MIB = 1 << 10, 1 << 20
# The first bytes of a TLS record that contains the first bytes of a ClientHello.
SIX_BYTES = b"\x16\x03\x01\x02\x00\x01"
SETTINGS = PREFACE + SettingsFrame(0).serialize()


@contextmanager
def strangers(where: str, count: int, data: bytes, hosts: int = 1) -> Iterator[list[socket.socket]]:
    """Open ``count`` connections from ``hosts`` addresses, send the data on each, and stay silent."""
    host, port = where.split(":")
    held: list[socket.socket] = []
    try:
        for number in range(count):
            source = (f"127.0.0.{number % hosts + 1}", 0)
            connection = socket.create_connection((host, int(port)), timeout=20, source_address=source)
            held.append(connection)
            try:
                connection.sendall(data)
            except OSError:
                # The server has already refused the connection.
                continue
        yield held
    finally:
        for connection in held:
            connection.close()


@asynccontextmanager
async def silent(where: str, data: bytes) -> AsyncIterator[trio.SocketStream]:
    """A silent connection that has sent the data."""
    async with tcp(where) as stream:
        await stream.send_all(data)
        yield stream


def _contexts(folder: Path, over_tls: bool) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    if not over_tls:
        return None, None
    made = certificates(folder)
    return made.server, made.client


@pytest.mark.parametrize("over_tls", [False, True])
async def test_oldest_of_too_many_handshakes_is_closed(over_tls: bool, tmp_path: Path) -> None:
    """A client of the same address is served, and the closed connection is reported."""
    server_tls, client_tls = _contexts(tmp_path, over_tls)
    reported: list[object] = []
    limits = Limits(peer_handshakes=5)
    async with (
        served(tls=server_tls, limits=limits, notify=reported.append) as it,
        AsyncExitStack() as stack,
        rpc.open_channel(it.where, tls=client_tls) as channel,
    ):
        begun = SIX_BYTES if over_tls else PREFACE
        first = await stack.enter_async_context(silent(it.where, begun))
        for _ in range(5):
            await stack.enter_async_context(silent(it.where, begun))
        with trio.fail_after(20):
            await until_closed(first)
            assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
    (refused, *_) = reported
    assert isinstance(refused, ConnectionRefused)
    assert refused.why == "5 connections of this peer are in their handshake"


@pytest.mark.parametrize("over_tls", [False, True])
async def test_unfinished_handshake_times_out(over_tls: bool, tmp_path: Path) -> None:
    """The time limit holds for all of it, TLS and settings together."""
    server_tls, _ = _contexts(tmp_path, over_tls)
    async with served(tls=server_tls, limits=Limits(handshake_timeout=0.2)) as it:
        async with silent(it.where, SIX_BYTES if over_tls else PREFACE) as stream:
            with trio.fail_after(20):
                await until_closed(stream)
        assert len(it.server._admission) == 0


def failing_accept(monkeypatch: pytest.MonkeyPatch, error: OSError) -> list[OSError]:
    """Make the next accept of a connection fail, and return the errors that have not been raised yet."""
    accept, failing = socket.socket.accept, [error]

    def accepts(listener: socket.socket) -> tuple[socket.socket, Any]:
        if failing:
            raise failing.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accepts)
    return failing


@pytest.mark.parametrize("is_idle", [True, False])
async def test_idle_connection_is_closed_when_descriptors_run_out(
    is_idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another part of the process may have taken the last ones. The next connection waits until one is free."""
    reported: list[object] = []
    async with served(notify=reported.append) as it, AsyncExitStack() as stack:
        idle = await stack.enter_async_context(silent(it.where, SETTINGS)) if is_idle else None
        while it.server.connections < is_idle:
            await trio.testing.wait_all_tasks_blocked(0.001)
        failing = failing_accept(monkeypatch, OSError(errno.EMFILE, "Too many open files"))
        channel = await stack.enter_async_context(rpc.open_channel(it.where))
        with trio.fail_after(20):
            assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
            if idle is not None:
                await until_closed(idle)
    assert not failing
    refused, *_ = reported
    assert isinstance(refused, ConnectionRefused)
    assert refused.why == (
        "a new connection takes its place: 1 are open"
        if is_idle
        else "no connection could be accepted: Too many open files"
    )


async def test_connection_that_is_lost_before_it_is_accepted_costs_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[object] = []
    async with served(notify=reported.append) as it, connected(it.where) as raw:
        failing = failing_accept(monkeypatch, OSError(errno.ECONNABORTED, "Software caused connection abort"))
        async with rpc.open_channel(it.where) as channel:
            with trio.fail_after(20):
                assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
        assert not failing
        raw.h2.ping(b"12345678")
        await raw.flush()
        with trio.fail_after(20):
            assert await raw.until(lambda event: isinstance(event, PingAckReceived)) is not None
    assert reported == []


async def test_connection_that_makes_room_is_told_that_no_call_was_lost() -> None:
    """Its client may be about to send one, which it then knows to be safe to repeat."""
    async with served() as it, connected(it.where) as raw:
        assert it.server._admission.make_room()
        with trio.fail_after(20):
            assert await raw.goaway() is not None


async def test_client_reconnects_after_its_idle_connection_was_closed() -> None:
    """The server closed the longest idle connection for another one. The client opens one at its next call."""
    reported: list[object] = []
    async with served(limits=Limits(peer_connections=3), notify=reported.append) as it, AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(rpc.open_channel(it.where)) for _ in range(4)]
        for channel in [*channels, channels[0]]:
            assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
        assert len(it.server._admission) == 3
    [refused] = reported
    assert isinstance(refused, ConnectionRefused)
    assert refused.why == "this peer has 3 connections open, the limit of one peer"


async def test_failing_calls_do_not_fill_the_log() -> None:
    """A method that raises is reported once a second, and every failure is counted."""
    reported: list[HandlerFailed] = []
    counted = trio.Event()

    def notify(event: object) -> None:
        assert isinstance(event, HandlerFailed)
        reported.append(event)
        if sum(1 + each.suppressed for each in reported) == 50:
            counted.set()

    since = time.monotonic()
    async with served(notify=notify) as it, rpc.open_channel(it.where) as channel:
        for _ in range(50):
            with pytest.raises(HeadwayError):
                await channel.unary(FAIL, Text(text="unknown"), Text)
        await counted.wait()
    assert (reported[0].path, str(reported[0].error)) == (FAIL, "a secret of the server")
    assert len(reported) <= time.monotonic() - since + 1


def _endless_hello() -> bytes:
    """Return the beginning of a ClientHello of 100 kB. It never ends, because only 80 kB of it are sent."""
    body = b"\x01" + (100_000).to_bytes(3, "big") + b"x" * 80_000
    pieces = (body[at : at + 16_000] for at in range(0, len(body), 16_000))
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def _frames_before_settings() -> bytes:
    """Return frames of an undefined type."""
    return PREFACE + ((16_000).to_bytes(3, "big") + b"\xee\0\0\0\0\0" + b"x" * 16_000) * 6


@pytest.mark.parametrize("over_tls", [False, True])
async def test_handshake_of_more_than_64_kib_is_closed(over_tls: bool, tmp_path: Path) -> None:
    server_tls, _ = _contexts(tmp_path, over_tls)
    reported: list[object] = []
    async with served(tls=server_tls, limits=Limits(handshake_timeout=60), notify=reported.append) as it:
        data = _endless_hello() if over_tls else _frames_before_settings()
        async with tcp(it.where) as stream:
            with trio.fail_after(20):
                for at in range(0, len(data), 16_000):
                    try:
                        await stream.send_all(data[at : at + 16_000])
                    except trio.BrokenResourceError:
                        break
                await until_closed(stream)
        while it.server.connections:
            await trio.testing.wait_all_tasks_blocked()
    if not over_tls:
        assert [event.why for event in reported if isinstance(event, ConnectionEnded)] == [
            "the handshake is larger than 65536 bytes"
        ]


def _lines(lines: list[str], seconds: float) -> None:
    """Assert that each kind has at most one line a second."""
    kinds = itertools.groupby(sorted(line.split("]", 1)[-1].split()[0] for line in lines if "[" in line))
    for kind, group in kinds:
        assert len(list(group)) <= seconds + 2, kind
    assert len(lines) <= 3 * (seconds + 2), lines[-5:]


async def _honest_call(where: str, tls: Path | None = None) -> None:
    """Assert that a client's write is answered. On a busy machine, it may take more than one connection."""
    context = None if tls is None else rpc.client_tls(tls)
    with trio.fail_after(40):
        async with headway.connect(where, staff, tls=context) as client:
            while True:
                with contextlib.suppress(headway.errors.Unavailable):
                    await client.apply(TEAM.new("core", Team()))
                    return


@pytest.mark.wide
@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=[pytest.mark.deep, pytest.mark.timeout(200)])])
async def test_half_open_handshakes_cost_little(count: int, tmp_path: Path) -> None:
    """Before there was a bound, each took 310 KB, and 5,000 of them 1.6 GB."""
    certificates(tmp_path)
    async with serving("--tls-certificate", str(tmp_path / "server.pem"), patience=50 + count / 40) as server:
        await _honest_call(server.where, tmp_path / "ca.pem")
        before, since = server.resident, time.monotonic()
        with strangers(server.where, count, SIX_BYTES):
            await _honest_call(server.where, tmp_path / "ca.pem")
            peak = server.resident
            # Without the limit, 300 of them took 90 MiB.
            assert peak < before + 30 * MIB, f"{peak >> 20} MiB, {before >> 20} before"
        _lines(server.lines, time.monotonic() - since)


@pytest.mark.deep
async def test_memory_of_a_thousand_handshakes_is_released(tmp_path: Path) -> None:
    """The limit is a hundred from each of ten addresses."""
    certificates(tmp_path)
    async with serving("--tls-certificate", str(tmp_path / "server.pem")) as server:
        await _honest_call(server.where, tmp_path / "ca.pem")
        before = server.resident
        with strangers(server.where, 1000, SIX_BYTES, hosts=10):
            await _honest_call(server.where, tmp_path / "ca.pem")
            peak = server.resident
            assert peak < 200 * MIB
        while server.resident > before + (peak - before) // 3:  # noqa: ASYNC110  # memory use has no event
            await trio.sleep(0.1)


@pytest.mark.wide
async def test_strangers_cannot_shut_out_a_client_by_taking_all_descriptors() -> None:
    """500 idle connections to a process that may open 300 descriptors produce few log lines."""
    async with serving(descriptors=300) as server:
        since = time.monotonic()
        with strangers(server.where, 500, SETTINGS, hosts=10):
            await _honest_call(server.where)
        assert (await server.line("ConnectionRefused")).count("ConnectionRefused") == 1
        _lines(server.lines, time.monotonic() - since)
