"""`subscribe`: one subscription to three types over loopback TCP, per resource and commit delivered.

Measured: the processor time of one Subscribe to three types of a memory store, from `rpc.open_server` to
`rpc.open_channel`: their snapshot, and then 300 commits, each of one resource. Both ends are in one process. It
includes the commits, and excludes filling the store, starting the server, and connecting.

Against: three WatchLists on the same connection, one for each of the types, each read by a task.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built, built_many, put, texts
from headway import rpc
from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.informers import watch_request
from headway.protobuf import encode
from headway.resource import Changes, EndOfSnapshot, ResourceType, resource_key
from headway.service import WATCH_LIST, ResourceEncodings, ResourceService, WatchDecoder, watch_encoders
from headway.storage import Backend, MemoryBackend, Put
from headway.subscribing import SUBSCRIBE, SubscribeDecoder, SubscribeEncoder, SubscribeService
from headway.subscription import Commits, SnapshotComplete

COMMITS = 300
BOUND = 1.1

Types = list[ResourceType[Note]]
Told = Callable[[], None]
Reader = Callable[[rpc.Channel, Types, Told, Told], Awaitable[None]]


def measure(size: int, rounds: int) -> Row:
    """Deliver ``size`` resources of each type, and the commits after them."""
    app = headway.App("bench")
    types = [app.type("bench", "v1", kind, Note) for kind in ("Managed", "Other", "Third")]
    ours, against = interleaved(
        lambda: trio.run(_seconds, app, types, size, _subscribed),
        lambda: trio.run(_seconds, app, types, size, _watched),
        rounds,
    )
    events = 3 * size + COMMITS
    return Row("subscribe", ours / events * 1e6, against / events * 1e6, "us", BOUND)


async def _seconds(app: headway.App, types: Types, size: int, read: Reader) -> float:
    """Return the processor time until everything has been read."""
    primed, waiting = trio.Event(), COMMITS
    done = trio.Event()

    def received() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            done.set()

    async with _serving(app, types, size) as (backend, channel), trio.open_nursery() as nursery:
        # Otherwise, it is chance which side pays for a pass over the stored resources.
        gc.collect()
        begin = time.process_time()
        nursery.start_soon(read, channel, types, primed.set, received)
        await primed.wait()
        versions: dict[ResourceType[Note], str] = {}
        for number in range(COMMITS):
            type = types[number % len(types)]
            resource = built(type, texts(size), encode(Note(text=str(number))))
            put = Put(type.kind, resource_key(resource), resource, versions.get(type, ""))
            versions[type] = str((await backend.commit([put])).revision)
        await done.wait()
        seconds = time.process_time() - begin
        nursery.cancel_scope.cancel()
    return seconds


@asynccontextmanager
async def _serving(app: headway.App, types: Types, size: int) -> AsyncIterator[tuple[Backend, rpc.Channel]]:
    backend = MemoryBackend()
    for type in types:
        await backend.commit([put(type, resource) for resource in built_many(type, size)])
    services = rpc.Services(
        ResourceService(backend, app.registry),
        SubscribeService(backend, app.registry, {}),
        encoders={**watch_encoders(), SUBSCRIBE: SubscribeEncoder(ResourceEncodings())},
    )
    decoders: dict[str, Callable[[], rpc.StreamDecoder]] = {WATCH_LIST: WatchDecoder, SUBSCRIBE: SubscribeDecoder}
    async with (
        rpc.open_server(services, ["127.0.0.1:0"]) as server,
        rpc.open_channel(server.addresses, decoders=decoders) as channel,
    ):
        # The connection is made beforehand, on both sides.
        nothing = watch_request(types[0])
        nothing.name_prefix = "none"
        async with channel.stream(WATCH_LIST, nothing) as items:
            await anext(items)
        yield backend, channel


async def _subscribed(channel: rpc.Channel, types: Types, primed: Told, received: Told) -> None:
    everything = subscribe_pb.Everything()
    subjects = [subscribe_pb.Subject(type=type.name.message(), everything=everything) for type in types]
    async with channel.stream(SUBSCRIBE, subscribe_pb.SubscribeRequest(subjects=subjects)) as items:
        async for item in items:
            if isinstance(item, SnapshotComplete):
                primed()
            elif isinstance(item, Commits):
                for _ in item.commits:
                    received()


async def _watched(channel: rpc.Channel, types: Types, primed: Told, received: Told) -> None:
    ahead = len(types)

    async def one(type: ResourceType[Note]) -> None:
        nonlocal ahead
        # The interval of a subscription's reports of progress.
        async with channel.stream(WATCH_LIST, watch_request(type, bookmark_interval_ms=1000)) as items:
            async for item in items:
                if isinstance(item, EndOfSnapshot):
                    ahead -= 1
                    if not ahead:
                        primed()
                elif isinstance(item, Changes):
                    for _ in item.changes:
                        received()

    async with trio.open_nursery() as nursery:
        for type in types:
            nursery.start_soon(one, type)


SCENARIO = Scenario("subscribe", BOUND, measure, size=10_000, rounds=7, quick=2_000)
