"""The rows of a snapshot over loopback TCP until EndOfSnapshot, with both ends in one process.

`wire`: 100,000 resources. Measured: the wall time of a WatchList of a memory store with these resources, from
`rpc.open_server` to `rpc.open_channel`. It includes opening the stream, the store's chunks, their encoding (nothing is
reused from another round), grpclib on trio-asyncio, the sockets, and decoding into the resources that a cache receives.
It excludes filling the store, starting the server, and connecting.

Against: the stock stack: grpclib's own server and channel on asyncio, with betterproto2's own codec and service, which
yields one WatchEvent per resource.

`snapshot_10k`, `snapshot_100k`: the growth: the processor time per resource of such a snapshot, against one of a tenth
of the resources.

Both sides begin when what was built before has been collected and is old. Otherwise, a pass over it is in some rounds.

The message has one metadata entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import trio
from grpclib.client import Channel
from grpclib.server import Server

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built_many, put
from benchmarks.growth import grown, least, without_collector
from headway import rpc
from headway.resource import EndOfSnapshot, ResourceType, SnapshotChunk, pb
from headway.service import WATCH_LIST, ResourceService, WatchDecoder, WatchEncoder
from headway.storage import open_store
from tests.helpers.stock import StockClient, StockServer

BOUND = 0.15


def _request(type: ResourceType[Note]) -> pb.WatchListRequest:
    return pb.WatchListRequest(type=type.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))


async def _ours(
    app: headway.App, type: ResourceType[Note], size: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds of a clock for a snapshot through our server and channel."""
    async with open_store("memory:") as backend:
        await backend.commit([put(type, resource) for resource in built_many(type, size)])
        services = rpc.Services(ResourceService(backend, app.registry), encoders={WATCH_LIST: WatchEncoder()})
        async with (
            rpc.open_server(services, ["127.0.0.1:0"]) as server,
            rpc.open_channel(server.addresses, decoders={WATCH_LIST: WatchDecoder}) as channel,
        ):
            # The connection is made beforehand, on both sides.
            nothing = _request(type)
            nothing.name_prefix = "none"
            await _count(channel, nothing)
            gc.collect()
            begin = clock()
            assert await _count(channel, _request(type)) == size
            return clock() - begin


async def _count(channel: rpc.Channel, request: pb.WatchListRequest) -> int:
    count = 0
    kept: list[Any] = []
    async with channel.stream(WATCH_LIST, request) as items:
        async for item in items:
            if isinstance(item, SnapshotChunk):
                count += len(item.resources)
                kept.append(item)
            elif isinstance(item, EndOfSnapshot):
                break
    return count


class _Stock(StockServer):
    def __init__(self, resources: list[pb.Resource]) -> None:
        self._resources = resources

    async def watch_list(self, message: pb.WatchListRequest) -> AsyncIterator[pb.WatchEvent]:
        if not message.name_prefix:
            for resource in self._resources:
                yield pb.WatchEvent(upsert=pb.WatchEventUpsert(resource=resource))
        yield pb.WatchEvent(end_of_snapshot=pb.WatchEventEndOfSnapshot())


async def _against(type: ResourceType[Note], size: int) -> float:
    """Return the seconds for a snapshot through unmodified grpclib and betterproto2."""
    server = Server([_Stock(built_many(type, size))])
    await server.start("127.0.0.1", 0)
    listening: Any = server._server
    channel = Channel("127.0.0.1", listening.sockets[0].getsockname()[1])
    try:
        stub = StockClient(channel)
        async for _ in stub.watch_list(pb.WatchListRequest(name_prefix="-")):
            pass
        gc.collect()
        begin = time.perf_counter()
        kept: list[Any] = []
        async for event in stub.watch_list(_request(type)):
            if event.end_of_snapshot is not None:
                break
            kept.append(event)
        assert len(kept) == size
        return time.perf_counter() - begin
    finally:
        channel.close()
        server.close()
        await server.wait_closed()


def measure(size: int, rounds: int) -> Row:
    """Watch ``size`` resources through both."""
    app = headway.App("wire")
    type = app.type("bench", "v1", "Managed", Note)
    ours, against = interleaved(
        lambda: trio.run(_ours, app, type, size), lambda: asyncio.run(_against(type, size)), rounds
    )
    return Row("wire", ours / size * 1e6, against / size * 1e6, "us", BOUND)


def _snapshot(size: int) -> Callable[[], float]:
    app = headway.App("wire")
    type = app.type("bench", "v1", "Managed", Note)
    return without_collector(lambda: least(lambda: trio.run(_ours, app, type, size, time.process_time), size) / size)


ROWS = (grown("snapshot_10k", _snapshot, 10_000), grown("snapshot_100k", _snapshot, 100_000, quick=False))
SCENARIO = Scenario("wire", BOUND, measure, size=100_000, rounds=3, quick=5_000)
