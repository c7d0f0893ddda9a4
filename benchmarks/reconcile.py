"""`reconcile`: the cost of bringing an event from its commit to the reconcile that sees it.

Measured: the wall time per event from the first commit until the last reconcile has made its read, for 50,000 creations
of distinct keys of the managed type. The time of the same commits on a store without an engine is measured in the same
round and subtracted. 64 writer tasks commit through the backend, on the loop that they share with the engine, and each
commit is a transaction of its own with its own checkpoint. The engine is primed and idle when they begin.

The time includes the streams of all three types (a commit moves the frontiers of the two others by bookmarks), the
caches, indexes, the map queue, the work queue, 8 workers, a deadline of 300 s around each reconcile, and one copied
read of the cache per reconcile, with access to its data and metadata. It includes the journal, which `journal` measures
alone. It excludes the commit itself, building the message, and the service.

With a single writer, every commit makes a batch of its own in every stage, so an event costs more: see `trickle`. The
cost of a commit through the service is in `write`. The engine reports as by default: to the log, which receives only
failed reconciles.

Against: one item through a bare Trio memory channel with a buffer of 1,000, one sender and one receiver; the wall time
per item, for the same number of items.

Each measurement begins when what was built before it has been collected and is old. Otherwise, it is chance whether a
pass over the 50,000 messages, which takes 0.2 s, is counted on both sides of the subtraction, on one, or on none.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built_many, put
from headway.journal import JournalOptions
from headway.resource import ResourceType
from headway.storage import MemoryBackend, Put

BUFFER = 1000
CONCURRENCY = 8
WRITERS = 64


def measure(size: int, rounds: int) -> Row:
    """Reconcile ``size`` keys."""
    return measured("reconcile", 2.0, size, rounds, writers=WRITERS)


def measured(name: str, bound: float | None, size: int, rounds: int, *, writers: int) -> Row:
    """Return the row for this number of writers."""
    ours, against = interleaved(
        lambda: seconds(size, writers),
        lambda: trio.run(through_channel, size),
        rounds,
    )
    return Row(name, ours / size * 1e6, against / size * 1e6, "us", bound)


def seconds(size: int, writers: int = WRITERS) -> float:
    """Return the seconds of ``size`` reconciles, without those of their commits."""
    return trio.run(_reconciled, size, writers) - trio.run(_committed, size, writers)


def reconciled_seconds(size: int, journal: JournalOptions) -> float:
    """Return the seconds of processor time of ``size`` commits and their reconciles."""
    return trio.run(_reconciled, size, WRITERS, journal, time.process_time)


def committed_seconds(size: int) -> float:
    """Return the seconds of processor time of ``size`` commits alone."""
    return trio.run(_committed, size, WRITERS, time.process_time)


async def _reconciled(
    size: int,
    writers: int,
    journal: JournalOptions | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the seconds from the first commit until the last reconcile has made its read."""
    app = headway.App("bench")
    managed, first, second = (app.type("bench", "v1", kind, Note) for kind in ("Managed", "First", "Second"))
    done = trio.Event()
    seen = 0

    @app.controller(
        manages=managed,
        watches=[headway.watch(first, headway.mappers.same_name()), headway.watch(second, headway.mappers.same_name())],
        concurrency=CONCURRENCY,
        deadline=300.0,
    )
    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        nonlocal seen
        note = rt.cache.get(managed, request.id)
        assert note is not None
        assert note.data.text
        assert note.metadata["group"]
        seen += 1
        if seen == size:
            done.set()

    puts = _puts(managed, size)
    backend = MemoryBackend()
    async with headway.open_engine(backend, app, journal=journal) as engine:
        await engine.wait_idle()
        gc.collect()
        begin = clock()
        await _commit(backend, puts, writers)
        await done.wait()
        return clock() - begin


async def _committed(size: int, writers: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that the same commits take on a store without watchers."""
    puts = _puts(headway.App("bench").type("bench", "v1", "Managed", Note), size)
    gc.collect()
    begin = clock()
    await _commit(MemoryBackend(), puts, writers)
    return clock() - begin


def _puts(type: ResourceType[Note], size: int) -> list[Put]:
    return [put(type, resource) for resource in built_many(type, size)]


async def _commit(backend: MemoryBackend, puts: list[Put], writers: int) -> None:
    async def write(mine: list[Put]) -> None:
        for each in mine:
            await backend.commit((each,))

    async with trio.open_nursery() as nursery:
        for number in range(writers):
            nursery.start_soon(write, puts[number::writers])


async def through_channel(size: int) -> float:
    """Return the seconds that ``size`` items take through a memory channel."""
    sender, receiver = trio.open_memory_channel[int](BUFFER)

    async def send() -> None:
        async with sender:
            for number in range(size):
                await sender.send(number)

    begin = time.perf_counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        async for _ in receiver:
            pass
    return time.perf_counter() - begin


SCENARIO = Scenario("reconcile", 2.0, measure, size=50_000, rounds=9, quick=10_000)
