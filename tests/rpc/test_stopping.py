"""A server that stops ends the calls that have exceeded its grace, before it closes their connections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from grpclib.const import Status
from h2.events import ResponseReceived

from headway import rpc
from headway.errors import HeadwayError
from headway.rpc import Limits
from headway.rpc.http2 import Http2Protocol, _protocol
from headway.rpc.server import _server as server_module
from tests.helpers.service_errors import status_of
from tests.rpc.raw_kit import HEADERS, connected, tcp, until_closed
from tests.rpc.rpc_kit import WAIT, Text, certificates
from tests.rpc.test_last_words import stopping


async def test_call_that_exceeds_the_grace_receives_a_final_status() -> None:
    """Without one, its caller could not distinguish a stopping server from a failing network."""
    async with stopping(grace=0.01) as server, connected(server.it.where) as raw:
        raw.h2.send_headers(1, [(name, WAIT if name == ":path" else value) for name, value in HEADERS])
        raw.h2.send_data(1, rpc.framed(b""), end_stream=True)
        await raw.flush()
        await server.it.echo.until_waiting(1)
        server.stop()
        with trio.fail_after(30):
            ended = await raw.until(lambda event: isinstance(event, ResponseReceived))
        assert isinstance(ended, ResponseReceived)
        said = dict(ended.headers)
        assert said[b"grpc-status"] == str(Status.UNAVAILABLE.value).encode()
        assert said[b"grpc-message"] == b"the server is stopping"
        assert server.it.echo.cancelled == 1
        assert await raw.goaway() is not None


@pytest.mark.parametrize("secure", [False, True])
async def test_client_reads_every_answer_before_the_end_of_the_connection(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end may arrive while answers wait for their turn. Their calls would count as lost, though they are not."""
    made = certificates(tmp_path)
    later = Http2Protocol._later
    ended: list[tuple[Status, str | None]] = []

    def only_of_servers(self: Http2Protocol, function: Callable[[], bool]) -> None:
        if not self._client_side:
            later(self, function)

    async def call() -> None:
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(WAIT, Text(), Text)
        ended.append((status_of(caught.value), str(caught.value)))

    async with (
        stopping(tls=made.server if secure else None, grace=0.01) as server,
        rpc.open_channel(server.it.where, tls=made.client if secure else None) as channel,
        trio.open_nursery() as nursery,
    ):
        for _ in range(20):
            nursery.start_soon(call)
        await server.it.echo.until_waiting(20)
        # From here on, the client handles one frame at once, and has no other turn.
        monkeypatch.setattr(_protocol, "_SLICE", -1.0)
        monkeypatch.setattr(Http2Protocol, "_later", only_of_servers)
        server.stop()
    assert ended == [(Status.UNAVAILABLE, "the server is stopping")] * 20


async def test_stop_goes_on_when_the_last_call_has_ended() -> None:
    """Its client keeps the connection, so only the call tells the server that the grace need not last longer."""
    async with stopping(grace=600) as server, connected(server.it.where) as raw:
        raw.h2.send_headers(1, [(name, WAIT if name == ":path" else value) for name, value in HEADERS])
        raw.h2.send_data(1, rpc.framed(b""), end_stream=True)
        await raw.flush()
        await server.it.echo.until_waiting(1)
        server.stop()
        while not server.it.server._stopping:
            await trio.testing.wait_all_tasks_blocked(0.001)
        server.it.echo.release.set()
        with trio.fail_after(20):
            await until_closed(raw.stream)
            await server.stopped.wait()


async def test_connection_that_ends_its_handshake_during_the_grace_is_closed(tmp_path: Path) -> None:
    """Its client was accepted before. It would begin calls that no one tells that the server stops."""
    made = certificates(tmp_path)
    limits = Limits(handshake_timeout=60)
    async with stopping(grace=20, tls=made.server, limits=limits) as server, tcp(server.it.where) as late:
        it = server.it
        async with rpc.open_channel(it.where, tls=made.client) as channel, trio.open_nursery() as nursery:
            nursery.start_soon(channel.unary, WAIT, Text(), Text)
            await it.echo.until_waiting(1)
            while len(it.server._admission) < 2:
                await trio.testing.wait_all_tasks_blocked(0.001)
            server.stop()
            while not it.server._stopping:
                await trio.testing.wait_all_tasks_blocked(0.001)
            stream = trio.SSLStream(late, made.client, server_hostname="127.0.0.1", https_compatible=True)
            with trio.fail_after(10):
                await until_closed(stream)
            assert it.echo.waiting == 1
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("over_tls", [False, True])
async def test_stop_waits_for_no_handshake(over_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger that says nothing neither delays it nor is reported as refused."""
    monkeypatch.setattr(server_module, "_FINAL_TIMEOUT", 600.0)
    reported: list[object] = []
    tls = certificates(tmp_path).server if over_tls else None
    options = {"tls": tls, "limits": Limits(handshake_timeout=600), "notify": reported.append}
    async with stopping(**options) as server, tcp(server.it.where) as silent:
        while not len(server.it.server._admission):
            await trio.testing.wait_all_tasks_blocked(0.001)
        server.stop()
        with trio.fail_after(20):
            await until_closed(silent)
            await server.stopped.wait()
    assert reported == []
