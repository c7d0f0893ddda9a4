"""`fanout`: one commit to 1,000 watchers in the process, per watcher.

Measured: 1,000 tasks each read a WatchList of one type through the in-process channel, which copies nothing, on the
memory store. A commit changes one resource; the time runs from the commit until the last watcher has taken its event,
over 50 commits, divided by commits and watchers. In it: the commit itself, the wake-up of every watcher's task, and the
handler that runs in it.

Against: one item through a bare Trio memory channel with a buffer of 1,000.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import time

import trio
import trio.testing

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, built, texts
from benchmarks.reconcile import through_channel
from headway.resource import Changes, ResourceType, encode, resource_key
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.storage import MemoryBackend, Put
from headway.watch import WATCH_LIST, watch_request

_COMMITS = 50


def measure(size: int, rounds: int) -> Row:
    """Tell ``size`` watchers of each of a number of commits."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    ours, against = interleaved(
        lambda: trio.run(_told, app, type, size), lambda: trio.run(through_channel, size * _COMMITS), rounds
    )
    told = size * _COMMITS
    return Row("fanout", ours / told * 1e6, against / told * 1e6, "us", 1.0)


async def _told(app: headway.App, type: ResourceType[Note], size: int) -> float:
    """Seconds until every watcher has taken the event of every commit."""
    backend = MemoryBackend()
    channel = InProcessChannel(ResourceService(backend, app.registry))
    waiting = 0
    all_told = trio.Event()

    async def watcher() -> None:
        nonlocal waiting
        async with channel.stream(WATCH_LIST, watch_request(type)) as items:
            async for item in items:
                waiting -= isinstance(item, Changes)
                if waiting == 0:
                    all_told.set()

    value = encode(Note(text=TEXT))
    versions = [""]
    async with trio.open_nursery() as nursery:
        for _ in range(size):
            nursery.start_soon(watcher)
        await trio.testing.wait_all_tasks_blocked()
        begin = time.perf_counter()
        for _ in range(_COMMITS):
            waiting, all_told = size, trio.Event()
            resource = built(type, texts(0), value)
            position = await backend.commit([Put(type.kind, resource_key(resource), resource, versions[-1])])
            versions.append(str(position.revision))
            await all_told.wait()
        seconds = time.perf_counter() - begin
        nursery.cancel_scope.cancel()
    return seconds


SCENARIO = Scenario("fanout", 1.0, measure, size=1_000, rounds=7)
