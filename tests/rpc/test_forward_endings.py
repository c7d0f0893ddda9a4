"""Endings at a forwarder: streams end, clients leave or stop reading, the forwarder itself stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from grpclib.const import Status

from headway import rpc
from headway.client import Client
from headway.errors import HeadwayError
from headway.resource import Bookmark, EndOfSnapshot, SnapshotChunk, pb
from headway.service import WATCH_LIST
from tests.helpers.service_errors import status_of
from tests.rpc.forward_kit import HALVES, Odd, Restarting, forwarded
from tests.rpc.rpc_kit import COUNT, DECODERS, ECHO, FLOOD, TEXTS, THING, WAIT, Text, app, served


async def test_watch_resumes_through_another_forwarder() -> None:
    """The end of its stream passes through as UNAVAILABLE. The watch then resumes elsewhere without a snapshot."""
    async with served() as it, trio.open_nursery() as nursery:
        local = Client(rpc.InProcessChannel(it.services), app.registry)
        await local.write(THING.new("a", Text(text="1")))
        end = await _position_through_one_that_stops(it.where, nursery)
        await local.write(THING.new("b", Text(text="2")))
        async with (
            rpc.open_forwarder(it.where, ["127.0.0.1:0"]) as second,
            rpc.open_channel(second.addresses, decoders=DECODERS) as channel,
            channel.stream(WATCH_LIST, _everything(end.position)) as items,
        ):
            assert await anext(items) == Bookmark(end.position, resumed=True)
            changes = await anext(items)
            assert [change.resource.id.name for change in changes.changes] == ["b"]


async def _position_through_one_that_stops(where: str, nursery: trio.Nursery) -> EndOfSnapshot:
    """Return the position that a watch had reached when its forwarder stopped."""
    stop = trio.Event()

    async def forward(task_status: trio.TaskStatus[list[str]]) -> None:
        async with rpc.open_forwarder(where, ["127.0.0.1:0"]) as server:
            task_status.started(server.addresses)
            await stop.wait()

    addresses = await nursery.start(forward)
    async with (
        rpc.open_channel(addresses, decoders=DECODERS) as channel,
        channel.stream(WATCH_LIST, _everything()) as items,
    ):
        assert isinstance(await anext(items), SnapshotChunk)
        end = await anext(items)
        assert isinstance(end, EndOfSnapshot)
        stop.set()
        with pytest.raises(HeadwayError) as caught:
            await anext(items)
        assert (status_of(caught.value), str(caught.value)) == (Status.UNAVAILABLE, "the server is stopping")
    return end


def _everything(after: Any = None) -> pb.WatchListRequest:
    return pb.WatchListRequest(
        type=THING.name.message(),
        tenancy=pb.Tenancy(partition="*", namespace="*"),
        resume_after=None if after is None else after.message(),
    )


async def test_end_of_upstream_streams_reaches_the_client(tmp_path: Path) -> None:
    """If the upstream stops, the client is asked to try again. Its next call succeeds through the same forwarder."""
    async with served() as it, trio.open_nursery() as nursery:
        upstream = Restarting(it, str(tmp_path / "up"))
        await upstream.start(nursery)
        async with (
            rpc.open_forwarder(upstream.where, ["127.0.0.1:0"]) as server,
            rpc.open_channel(server.addresses, decoders=TEXTS) as channel,
        ):
            for _ in range(2):
                async with channel.stream(COUNT, Text(text="0")) as items:
                    assert (await anext(items)).text == "waiting"
                    nursery.start_soon(upstream.stop)
                    with pytest.raises(HeadwayError) as caught:
                        await anext(items)
                assert (status_of(caught.value), str(caught.value)) == (Status.UNAVAILABLE, "the server is stopping")
                await upstream.stop()
                await upstream.start(nursery)
            assert (await channel.unary(ECHO, Text(text="again"), Text)).text == "again"
        await upstream.stop()


async def test_canceled_call_or_abandoned_stream_ends_at_the_upstream() -> None:
    """The connection to the upstream stays open."""
    async with forwarded(2) as (it, where), rpc.open_channel(where, decoders=TEXTS) as channel:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.unary, WAIT, Text(), Text)
            await it.echo.until_waiting(1)
            nursery.cancel_scope.cancel()
        await it.echo.until_waiting(0)
        async with channel.stream(COUNT, Text(text="0")) as items:
            assert (await anext(items)).text == "waiting"
            await it.echo.until_waiting(1)
        await it.echo.until_waiting(0)
        assert it.echo.cancelled == 2
        assert it.server.connections == 1


async def test_calls_of_a_lost_client_end_at_the_upstream() -> None:
    """The client's connection vanishes without notice."""
    async with served() as it, rpc.open_forwarder(it.where, ["127.0.0.1:0"]) as server:
        async with trio.open_nursery() as nursery, rpc.open_channel(server.addresses) as channel:

            async def call() -> None:
                with pytest.raises(HeadwayError):
                    await channel.unary(WAIT, Text(), Text)

            nursery.start_soon(call)
            await it.echo.until_waiting(1)
            for protocol in list(server._connections):
                protocol.abort()
        await it.echo.until_waiting(0)
        assert it.echo.cancelled == 1


async def test_client_that_does_not_read_slows_only_its_own_stream() -> None:
    """The waiting bytes are bounded, and other calls of the same client continue."""
    async with forwarded() as (it, where), rpc.open_channel(where, decoders=TEXTS) as channel:
        async with channel.stream(FLOOD, Text()) as items:
            await anext(items)
            before = -1
            # Repeat until fifty calls are answered while nothing more is sent.
            while before != it.echo.sent:
                before = it.echo.sent
                for _ in range(50):
                    await channel.unary(ECHO, Text(text="a"), Text)
            # The sum of the client's window (1 MiB), the forwarder's (256 KiB), and what is in transit.
            assert before * (16 << 10) < 2 << 20
            for _ in range(200):
                await anext(items)
            assert it.echo.sent > before
        await it.echo.flood_ended.wait()


async def test_stopping_forwarder_finishes_calls_and_ends_streams() -> None:
    """The forwarder distinguishes calls from streams by their replies so far. A reply in transit is not cut off."""
    async with served() as it, trio.open_nursery() as nursery:
        odd = Odd()
        it.services.add(odd)
        stop, replies, ended = trio.Event(), [], []

        async def forward(task_status: trio.TaskStatus[list[str]]) -> None:
            async with rpc.open_forwarder(it.where, ["127.0.0.1:0"], grace=20) as server:
                task_status.started(server.addresses)
                await stop.wait()

        async def call(channel: rpc.RemoteChannel, path: str) -> None:
            replies.append((await channel.unary(path, Text(text="late" * 1000), Text)).text)

        addresses = await nursery.start(forward)
        async with rpc.open_channel(addresses, decoders=TEXTS) as channel, trio.open_nursery() as calls:
            calls.start_soon(call, channel, WAIT)
            calls.start_soon(call, channel, HALVES)
            async with channel.stream(COUNT, Text(text="0")) as items:
                assert (await anext(items)).text == "waiting"
                await odd.half_sent.wait()
                await it.echo.until_waiting(2)
                stop.set()
                with pytest.raises(HeadwayError) as caught:
                    await anext(items)
                ended.append((status_of(caught.value), str(caught.value)))
            it.echo.release.set()
            odd.go_on.set()
    assert (ended, replies) == ([(Status.UNAVAILABLE, "the server is stopping")], ["late" * 1000] * 2)
