"""`wire`: a snapshot of 100,000 over loopback TCP, both ends in one process, until EndOfSnapshot.

Measured: a WatchList of a memory store that holds the resources, by `rpc.open_channel` from `rpc.open_server`: the
store's chunks, their encoding (nothing is kept from another round), grpclib on trio-asyncio, the sockets, and the
decoding into the resources that a cache is given. In it: opening the stream. Out of it: filling the store, the
server's start, the connection.

Against: the stock stack: grpclib's own server and channel on asyncio, with the generated service and betterproto2's
own codec, which send and yield one WatchEvent for each resource.

The message has one metadata entry and 120 bytes of payload. No channel buffer plays a part.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import trio
from grpclib.client import Channel
from grpclib.server import Server

import headway
from headway import rpc
from headway._gen.headway.resource.v1 import ResourceServiceBase, ResourceServiceStub
from headway.resource import AnyMessage, EndOfSnapshot, SnapshotChunk, encode, field, pb, resource_key
from headway.service import WATCH_LIST, ResourceService, WatchDecoder, WatchEncoder
from headway.storage import Put, open_store

BOUND = 0.15
SIZE = 100_000
app = headway.App("wire")


@headway.message
class Note:
    """A payload: one text, whose tag and length take 2 bytes of the 120."""

    text: str = field(1)


NOTE = app.type("bench", "v1", "Managed", Note)


def _resources(size: int) -> list[pb.Resource]:
    value = encode(Note(text="n" * 118))
    return [
        pb.Resource(
            id=pb.Id(
                uid=f"01HZ{number:022d}",
                name=f"note-{number:06d}",
                type=NOTE.name.message(),
                tenancy=pb.Tenancy(partition="default", namespace="default"),
            ),
            generation=f"01HY{number:022d}",
            metadata={"group": f"group-{number % 10}"},
            data=AnyMessage(type_url=NOTE.type_url, value=value),
        )
        for number in range(size)
    ]


def _request() -> pb.WatchListRequest:
    return pb.WatchListRequest(type=NOTE.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))


async def ours(size: int) -> float:
    """Seconds for a snapshot through our server and channel."""
    async with open_store("memory:") as backend:
        await backend.commit([Put(NOTE.kind, resource_key(resource), resource, "") for resource in _resources(size)])
        services = rpc.Services(ResourceService(backend, app.registry), encoders={WATCH_LIST: WatchEncoder()})
        async with (
            rpc.open_server(services, ["127.0.0.1:0"]) as server,
            rpc.open_channel(server.addresses, decoders={WATCH_LIST: WatchDecoder}) as channel,
        ):
            # The connection is made beforehand, on both sides.
            await _count(
                channel, pb.WatchListRequest(type=NOTE.name.message(), tenancy=_request().tenancy, name_prefix="-")
            )
            begin = time.perf_counter()
            assert await _count(channel, _request()) == size
            return time.perf_counter() - begin


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


class _Stock(ResourceServiceBase):
    def __init__(self, resources: list[pb.Resource]) -> None:
        self._resources = resources

    async def watch_list(self, message: pb.WatchListRequest) -> AsyncIterator[pb.WatchEvent]:
        if not message.name_prefix:
            for resource in self._resources:
                yield pb.WatchEvent(upsert=pb.WatchEventUpsert(resource=resource))
        yield pb.WatchEvent(end_of_snapshot=pb.WatchEventEndOfSnapshot())


async def against(size: int) -> float:
    """Seconds for a snapshot through grpclib and betterproto2 as they come."""
    server = Server([_Stock(_resources(size))])
    await server.start("127.0.0.1", 0)
    listening: Any = server._server
    channel = Channel("127.0.0.1", listening.sockets[0].getsockname()[1])
    try:
        stub = ResourceServiceStub(channel)
        async for _ in stub.watch_list(pb.WatchListRequest(name_prefix="-")):
            pass
        begin = time.perf_counter()
        kept: list[Any] = []
        async for event in stub.watch_list(_request()):
            if event.end_of_snapshot is not None:
                break
            kept.append(event)
        assert len(kept) == size
        return time.perf_counter() - begin
    finally:
        channel.close()
        server.close()
        await server.wait_closed()


def measure(size: int = SIZE, rounds: int = 3) -> dict[str, float]:
    """Both in turn; the medians per event, in microseconds, and their ratio."""
    pairs = []
    for _ in range(rounds):
        gc.collect()
        pairs.append((trio.run(ours, size), asyncio.run(against(size))))
    mine = statistics.median(pair[0] for pair in pairs) / size * 1e6
    theirs = statistics.median(pair[1] for pair in pairs) / size * 1e6
    return {"ours_us": round(mine, 3), "against_us": round(theirs, 3), "ratio": round(mine / theirs, 3)}


if __name__ == "__main__":
    print(measure(int(sys.argv[1]) if len(sys.argv) > 1 else SIZE, int(sys.argv[2]) if len(sys.argv) > 2 else 3))
