"""`handles`: one commit, delivered to 1,000 handles of one question, per handle.

Measured: 1,000 tasks each have a `notify` block of one cache, with a handle for the same resource, and receive its
changes. The engine's store is in memory. A commit changes the resource. The figure is the wall time from each of 50
commits until the last task has received its handle, divided by the numbers of commits and handles. It includes the
commit itself, the one stream behind all handles, and the cache. Reading the values is not included: that makes a copy
of the resource for each handle.

Against: `fanout`, which delivers the same commits to 1,000 watchers in the process.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import time

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, built, texts
from benchmarks.fanout import COMMITS, delivered
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import ResourceType, resource_key
from headway.storage import MemoryBackend, Put

BOUND = 1.2


def measure(size: int, rounds: int) -> Row:
    """Deliver each of a number of commits to ``size`` handles, and to ``size`` watchers."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)

    async def broadcast() -> float:
        return await delivered(MemoryBackend(), app, type, size)

    ours, against = interleaved(lambda: trio.run(_notified, app, type, size), lambda: trio.run(broadcast), rounds)
    events = size * COMMITS
    return Row("handles", ours / events * 1e6, against / events * 1e6, "us", BOUND)


async def _notified(app: headway.App, type: ResourceType[Note], size: int) -> float:
    """Return the seconds until every handle has been received after every commit."""
    backend, text, value = MemoryBackend(), texts(0), encode(Note(text=TEXT))
    waiting, all_received = size, trio.Event()

    async def receiver(cache: headway.notify.PrimedCache) -> None:
        nonlocal waiting
        async with cache.notify() as updates:
            updates.get(type, text.name)
            async for _ in updates:
                waiting -= 1
                if waiting == 0:
                    all_received.set()

    async with (
        headway.open_engine(backend, app, report=ignore) as engine,
        engine.open_cache(watches=[type]) as cache,
        trio.open_nursery() as nursery,
    ):
        for _ in range(size):
            nursery.start_soon(receiver, cache)
        await all_received.wait()
        version = ""
        begin = time.perf_counter()
        for _ in range(COMMITS):
            waiting, all_received = size, trio.Event()
            resource = built(type, text, value)
            put = Put(type.kind, resource_key(resource), resource, version)
            version = str((await backend.commit([put])).revision)
            await all_received.wait()
        seconds = time.perf_counter() - begin
        nursery.cancel_scope.cancel()
    return seconds


SCENARIO = Scenario("handles", BOUND, measure, size=1_000, rounds=7, quick=1_000)
