"""Limits for peers: floods, too many streams, large messages, silence, and the cost of slow peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from grpclib.const import Status
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import PingAckReceived, ResponseReceived, StreamReset, TrailersReceived
from h2.settings import SettingCodes
from hyperframe.frame import DataFrame, PingFrame, RstStreamFrame, SettingsFrame

from headway import rpc
from headway.errors import HeadwayError
from headway.events import ConnectionEnded
from headway.rpc import Limits, Rate, WireLimits
from tests.helpers.service_errors import status_of
from tests.rpc.raw_kit import HEADERS, connected, tcp, until_closed
from tests.rpc.rpc_kit import COUNT, ECHO, FLOOD, TEXTS, WAIT, Text, served


def resets() -> bytes:
    """Return streams that are begun and reset at once. Each costs the server more than the client."""
    h2 = H2Connection()
    h2.initiate_connection()
    h2.clear_outbound_data_buffer()
    out = bytearray()
    for number in range(60):
        h2.send_headers(number * 2 + 1, HEADERS)
        out += h2.data_to_send() + RstStreamFrame(number * 2 + 1).serialize()
    return bytes(out)


def settings() -> bytes:
    return SettingsFrame(0, settings={SettingCodes.INITIAL_WINDOW_SIZE: 70_000}).serialize() * 60


FLOODS: dict[str, Callable[[], bytes]] = {
    "resets": resets,
    "pings": lambda: PingFrame(0, opaque_data=b"12345678").serialize() * 60,
    "settings": settings,
    "empty": lambda: resets()[: resets().index(RstStreamFrame(1).serialize())] + DataFrame(1, b"").serialize() * 300,
}
TIGHT = Limits(wire=WireLimits(resets=Rate(20, 1), pings=Rate(20, 1), settings=Rate(20, 1), others=Rate(200, 1)))


@pytest.mark.parametrize("kind", FLOODS)
async def test_flood_ends_only_its_own_connection(kind: str) -> None:
    """It ends with GOAWAY ENHANCE_YOUR_CALM.

    Other clients are served, and the server reports the peer and the reason.
    """
    said: list[object] = []
    async with (
        served(limits=TIGHT, notify=said.append) as it,
        rpc.open_channel(it.where) as other,
        connected(it.where) as raw,
    ):
        await other.unary(ECHO, Text(text="a"), Text)
        await raw.stream.send_all(FLOODS[kind]())
        end = await raw.goaway_frame()
        assert end is not None
        assert end.error_code == ErrorCodes.ENHANCE_YOUR_CALM
        host, port = raw.stream.socket.getsockname()
        assert said == [ConnectionEnded(f"{host}:{port}", end.additional_data.decode())]
        assert (await other.unary(ECHO, Text(text="a"), Text)).text == "a"
        await it.echo.until_waiting(0)


async def test_empty_data_frame_does_not_end_a_request() -> None:
    """HTTP/2 allows it anywhere, and marks the end by a flag."""
    async with served() as it, connected(it.where) as raw:
        raw.h2.send_headers(1, [*HEADERS[:2], (":path", ECHO), *HEADERS[3:]])
        raw.h2.send_data(1, b"")
        raw.h2.ping(b"answered")
        await raw.flush()
        await raw.until(lambda event: isinstance(event, PingAckReceived))
        await trio.testing.wait_all_tasks_blocked()
        raw.h2.send_data(1, b"", pad_length=7)
        raw.h2.send_data(1, rpc.framed(b"\x0a\x010"), end_stream=True)
        await raw.flush()
        answer = await raw.until(lambda event: isinstance(event, TrailersReceived))
        assert dict(answer.headers)[b"grpc-status"] == b"0"


@pytest.mark.parametrize("called", [True, False])
async def test_client_accepts_a_ping_for_each_call(called: bool) -> None:
    """A server written with Go's gRPC pings to measure the connection.

    The client leaves one that pings without calls.
    """
    async with served() as it, rpc.open_channel(it.where, limits=Limits(wire=WireLimits(pings=Rate(20, 1)))) as channel:
        await channel.unary(ECHO, Text(text="a"), Text)
        (protocol,) = it.server._connections
        for _ in range(100):
            protocol.connection.h2.ping(b"measured")
            protocol.connection.flush()
            await _answered(protocol)
            if protocol.connection.closed.is_set():
                break
            if called:
                await channel.unary(ECHO, Text(text="a"), Text)
        assert protocol.connection.closed.is_set() is not called


async def test_ended_connections_are_reported_once_a_second() -> None:
    """The number of ended connections doesn't matter."""
    said: list[Any] = []
    async with served(limits=TIGHT, notify=said.append) as it:
        for _ in range(20):
            async with tcp(it.where) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
                await until_closed(stream)
        # There may be more than one report, because the connections take more than one second on a slow machine.
        assert len(said) < 20
        assert all(each.why.startswith("Protocol error: Invalid HTTP/2 preamble") for each in said)


async def _answered(protocol: Any) -> None:
    """Wait until the connection has sent something more, the answer to a ping, or has ended."""
    heard = protocol._last_received
    with trio.fail_after(30):
        while protocol._last_received == heard and not protocol.connection.closed.is_set():  # it has no event
            await trio.lowlevel.checkpoint()


async def test_oversized_headers_end_the_connection() -> None:
    """The limit holds for decompressed metadata, too."""
    async with served() as it, connected(it.where) as raw:
        raw.h2.send_headers(1, [*HEADERS, *((f"x-{number}", "y" * 1000) for number in range(30))])
        await raw.flush()
        assert (await raw.goaway()) is not None


async def test_stream_beyond_the_limit_is_refused() -> None:
    """The limit is announced. A further stream receives REFUSED_STREAM, and the others continue."""
    # Consul's servers allow the same number.
    assert WireLimits().streams == 2048
    async with served(limits=Limits(wire=WireLimits(streams=5))) as it, connected(it.where) as raw:
        assert raw.h2.remote_settings.max_concurrent_streams == 5
        raw.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 100
        raw.h2.remote_settings.acknowledge()
        for number in range(6):
            raw.h2.send_headers(number * 2 + 1, HEADERS)
            raw.h2.send_data(number * 2 + 1, rpc.framed(b"\x0a\x010"), end_stream=True)
        await raw.flush()
        refused = await raw.until(lambda event: isinstance(event, StreamReset))
        assert (refused.stream_id, refused.error_code) == (11, ErrorCodes.REFUSED_STREAM)
        await it.echo.until_waiting(5)


async def test_oversized_message_is_refused_before_it_is_read() -> None:
    """Its length suffices: nothing of its content has been sent."""
    async with served(limits=Limits(message_size=1000)) as it, connected(it.where) as raw:
        raw.h2.send_headers(1, HEADERS)
        raw.h2.send_data(1, (1 << 31).to_bytes(5, "big"))
        await raw.flush()
        answer = await raw.until(lambda event: isinstance(event, ResponseReceived))
        assert dict(answer.headers)[b"grpc-status"] == str(Status.RESOURCE_EXHAUSTED.value).encode()
        async with rpc.open_channel(it.where) as channel:
            with pytest.raises(HeadwayError) as caught:
                await channel.unary(ECHO, Text(text="x" * 1001), Text)
        assert status_of(caught.value) is Status.RESOURCE_EXHAUSTED


async def test_missing_request_times_out() -> None:
    """A silent connection is closed, too."""
    async with served(limits=Limits(request_timeout=0.5)) as it, connected(it.where) as raw:
        raw.h2.send_headers(1, HEADERS)
        await raw.flush()
        answer = await raw.until(lambda event: isinstance(event, ResponseReceived))
        assert dict(answer.headers)[b"grpc-status"] == str(Status.DEADLINE_EXCEEDED.value).encode()
    # This is another server, because the handshake above must have enough time on a busy machine.
    async with served(limits=Limits(handshake_timeout=0.1)) as it, tcp(it.where) as silent:
        await until_closed(silent)


async def test_idle_peer_that_answers_pings_is_kept(mock_clock: trio.testing.MockClock) -> None:
    limits = Limits(wire=WireLimits(keepalive_interval=10, keepalive_timeout=15))
    async with served(limits=limits, patience=1000.0) as it, rpc.open_channel(it.where) as channel:
        await channel.unary(ECHO, Text(text="a"), Text)
        (protocol,) = it.server._connections
        # This lasts twice as long as an unanswered connection is kept.
        for _ in range(50):
            heard, at = protocol._last_received, trio.current_time()
            while protocol._last_received == heard and it.server.connections and trio.current_time() < at + 25:
                mock_clock.jump(1)
                await trio.testing.wait_all_tasks_blocked(0.001)
            if trio.current_time() > 50:
                break
        assert it.server.connections == 1


async def test_client_that_does_not_read_costs_one_window_and_delays_no_other() -> None:
    """The handler waits when the windows are full. Other calls on the same connection continue."""
    async with (
        served() as it,
        rpc.open_channel(it.where, decoders=TEXTS) as channel,
        channel.stream(FLOOD, Text()) as slow,
        channel.stream(COUNT, Text(text="500")) as quick,
    ):
        await anext(slow)
        assert [item.text async for item in quick] == [str(number) for number in range(500)]
        sent = -1
        while sent != it.echo.sent:
            sent = it.echo.sent
            await trio.testing.wait_all_tasks_blocked(0.05)
        # The bound is the stream's window (1 MiB of 16 KiB messages) and what is in transit.
        assert sent < 80
        for _ in range(100):
            await anext(slow)


async def test_goaway_lets_begun_calls_finish() -> None:
    """The GOAWAY has no error. The next call uses another connection."""
    async with served() as it, rpc.open_channel(it.where) as channel, trio.open_nursery() as nursery:
        replies: list[str] = []

        async def call() -> None:
            replies.append((await channel.unary(WAIT, Text(text="late"), Text)).text)

        nursery.start_soon(call)
        await it.echo.until_waiting(1)
        (protocol,) = it.server._connections
        protocol.send_goaway()
        while it.server.connections == 1:
            assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
        assert not replies
        it.echo.release.set()
        while protocol in it.server._connections:
            await trio.testing.wait_all_tasks_blocked()
        assert replies == ["late"]


async def test_server_enforces_the_deadline() -> None:
    """A client that doesn't reset its call receives a status, and the handler is ended."""
    async with served() as it, connected(it.where) as raw:
        raw.h2.send_headers(1, [*HEADERS[:2], (":path", WAIT), *HEADERS[3:], ("grpc-timeout", "100m")])
        raw.h2.send_data(1, rpc.framed(b""), end_stream=True)
        await raw.flush()
        answer = await raw.until(lambda event: isinstance(event, ResponseReceived))
        assert dict(answer.headers)[b"grpc-status"] == str(Status.DEADLINE_EXCEEDED.value).encode()
        assert (it.echo.waiting, it.echo.cancelled) == (0, 1)


async def test_canceling_answered_streams_does_not_count_as_a_flood() -> None:
    """Consul's controllers read the beginning of a watch and cancel it."""
    heard: list[object] = []
    async with (
        served(limits=Limits(wire=WireLimits(resets=Rate(3, 0.0))), notify=heard.append) as it,
        rpc.open_channel(it.where, decoders=TEXTS) as channel,
    ):
        for number in range(20):
            # Half of them have messages in transit when they are canceled.
            async with channel.stream(COUNT, Text(text=("0", "1000000")[number % 2])) as items:
                await anext(items)
        assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
        assert heard == []
