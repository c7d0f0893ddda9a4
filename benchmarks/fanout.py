"""The rows of watchers in the process: `fanout`, `watchers_1`, `watchers_100` and `watchers_1000`.

`fanout`: one commit, delivered to 1,000 watchers in the process, per watcher.

Measured: 1,000 tasks each read a WatchList of one type from a memory store, through the in-process channel, which
copies nothing. A commit changes one resource. The figure is the wall time from each of 50 commits until the last
watcher has received its event, divided by the numbers of commits and watchers. It includes the commit itself, the
wake-up of every watcher's task, and the handler that runs in that task.

Against: one item through a bare Trio memory channel with a buffer of 1,000.

`watchers_1`: a lone event to a single watcher, in processor time, without the commit. Against: an item through a bare
Trio memory channel to a task that waits for it, where the sender waits until it has arrived.

`watchers_100` and `watchers_1000`: the growth with the number of watchers: the same figure in processor time for 100
watchers against one, and for 1,000 against 100. The cost of a commit without a watcher is measured in the same round
and subtracted, because a single watcher would otherwise pay for it alone.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, built, texts
from benchmarks.reconcile import through_channel
from headway.informers import watch_request
from headway.protobuf import encode
from headway.resource import Changes, EndOfSnapshot, ResourceType, resource_key
from headway.rpc import InProcessChannel
from headway.service import WATCH_LIST, ResourceService
from headway.storage import Backend, MemoryBackend, Put

COMMITS = 50
GROWTH = 20
"""The factor by which a single watcher receives more commits in the rows of growth, as each takes some microseconds."""


def measure(size: int, rounds: int) -> Row:
    """Deliver each of a number of commits to ``size`` watchers."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)

    async def on_memory() -> float:
        return await delivered(MemoryBackend(), app, type, size)

    ours, against = interleaved(lambda: trio.run(on_memory), lambda: trio.run(through_channel, size * COMMITS), rounds)
    events = size * COMMITS
    return Row("fanout", ours / events * 1e6, against / events * 1e6, "us", 1.0)


async def delivered(
    backend: Backend,
    app: headway.App,
    type: ResourceType[Note],
    size: int,
    at_end: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
    commits: int = COMMITS,
) -> float:
    """Return the seconds of a clock until every watcher has received the event of every commit.

    Args:
        at_end: A function that is called while all watchers are still watching.
    """
    channel = InProcessChannel(ResourceService(backend, app.registry))
    waiting, watching = 0, 0
    all_received, primed = trio.Event(), trio.Event()

    async def watcher() -> None:
        nonlocal waiting, watching
        async with channel.stream(WATCH_LIST, watch_request(type)) as items:
            async for item in items:
                if isinstance(item, EndOfSnapshot):
                    watching += 1
                    if watching == size:
                        primed.set()
                waiting -= isinstance(item, Changes)
                if waiting == 0:
                    all_received.set()

    value = encode(Note(text=TEXT))
    versions = [""]
    async with trio.open_nursery() as nursery:
        for _ in range(size):
            nursery.start_soon(watcher)
        if size:
            await primed.wait()
        begin = clock()
        for _ in range(commits):
            waiting, all_received = size, trio.Event()
            resource = built(type, texts(0), value)
            position = await backend.commit([Put(type.kind, resource_key(resource), resource, versions[-1])])
            versions.append(str(position.revision))
            if size:
                await all_received.wait()
        seconds = clock() - begin
        at_end()
        nursery.cancel_scope.cancel()
    return seconds


SCENARIO = Scenario("fanout", 1.0, measure, size=1_000, rounds=7, quick=1_000)


def _each(watchers: int) -> float:
    """Return the seconds of an event for each of a number of watchers, without those of its commit."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    commits = max(COMMITS, COMMITS * GROWTH // watchers)

    async def per_commit(watchers: int) -> float:
        backend = MemoryBackend()
        return await delivered(backend, app, type, watchers, clock=time.process_time, commits=commits) / commits

    return (trio.run(per_commit, watchers) - trio.run(per_commit, 0)) / watchers


def _single(size: int, rounds: int) -> Row:
    """Compare an event for each of ``size`` watchers with a lone item."""
    ours, against = interleaved(lambda: _each(size), lambda: trio.run(_handed_over, COMMITS * GROWTH), rounds)
    return Row("watchers_1", ours * 1e6, against * 1e6, "us", 2.0)


async def _handed_over(items: int) -> float:
    """Return the seconds of an item to a waiting task, if each is sent when the one before has arrived."""
    sender, receiver = trio.open_memory_channel[trio.Event](1)

    async def receive() -> None:
        async for arrived in receiver:
            arrived.set()

    async with trio.open_nursery() as nursery, sender:
        nursery.start_soon(receive)
        begin = time.process_time()
        for _ in range(items):
            arrived = trio.Event()
            await sender.send(arrived)
            await arrived.wait()
        return (time.process_time() - begin) / items


def _grown(name: str, few: int, size: int, *, quick: bool) -> Scenario:
    """Return the scenario that compares ``size`` watchers with ``few``."""

    def measure(size: int, rounds: int) -> Row:
        ours, against = interleaved(lambda: _each(size), lambda: _each(min(few, size)), rounds)
        return Row(name, ours * 1e6, against * 1e6, "us", 1.5)

    return Scenario(name, 1.5, measure, size=size, rounds=5, quick=size if quick else 0)


# A thousand watchers read 1.1 to 1.9, by the state of the machine. They are in the whole bench alone.
ROWS = (
    Scenario("watchers_1", 2.0, _single, size=1, rounds=5, quick=1),
    _grown("watchers_100", 1, 100, quick=True),
    _grown("watchers_1000", 100, 1_000, quick=False),
)
