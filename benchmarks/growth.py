"""The rows of growth: the processor time of a unit of work among many, against the same unit among a tenth of them.

`prime_10k`, `prime_100k`, `prime_1m`: one resource of a memory store, from opening a cache in a running engine until it
is primed. The cache has an index of 10 groups. The cost of an empty cache is measured in the same round and subtracted,
because it is a large part of the smaller size and would hide the growth.

`queue_10k`, `queue_100k`, `queue_1m`: one key of a backlog in a bare work queue, without an engine. It is added, taken
and done, except that every other key fails first, backs off, and is taken again.

`first_10k`, `first_100k`: one key of the first pass over a filled store, from the beginning of a run. It excludes
opening the engine and priming.

`update_10k`, `update_100k`: one of 500 updates through the client, until its reconcile has read the cache and written a
status, with 10,000 or 100,000 resources stored and cached. The updates are spread over them. The engine is idle before.

`list_10k`, `list_100k`: one resource of a `client.list` of a whole type, in the engine's process.

A step from a size to its tenfold may cost half as much again for each unit, for memory that no longer fits the caches
of the processor. Work that grows with the size, such as a scan for each unit, costs nine times as much again.

Each measurement but the updates is made several times in a round with Python's collector off, and the least time
counts. Otherwise, a pass over the whole heap of the process comes or does not come, by the size. Further rows of growth
are in `flat.py` (one event), `fanout.py` (watchers), `controllers.py`, and `wire.py` (a snapshot over TCP).

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built, fill, note, texts
from benchmarks.noop import reconciled
from headway.events import ignore
from headway.protobuf import encode
from headway.queue import BACKLOG, WorkQueue
from headway.resource import ResourceType, pb
from headway.storage import MemoryBackend

BOUND = 1.5
FEWEST = 1_000
"""The smallest size. Fewer units take no time that could be measured beside the noise."""

UPDATES = 500
_READY = pb.Condition(type="Ready", state=pb.ConditionState.TRUE)

Prepared = Callable[[int], Callable[[], float]]
"""A function that prepares a size, and returns a measurement of the seconds of one unit."""


def grown(name: str, prepared: Prepared, size: int, *, rounds: int = 3, quick: bool = True) -> Scenario:
    """Return the scenario that compares a unit among ``size`` with a unit among a tenth of them."""

    def measure(size: int, rounds: int) -> Row:
        many, few = prepared(size), prepared(max(size // 10, FEWEST))
        ours, against = interleaved(many, few, rounds)
        return Row(name, ours * 1e6, against * 1e6, "us", BOUND)

    return Scenario(name, BOUND, measure, size=size, rounds=rounds, quick=size if quick else 0)


def least(measured: Callable[[], float], size: int) -> float:
    """Return the least of several measurements: of five up to 10,000 units, of two above."""
    gc.collect()
    return min(measured() for _ in range(5 if size <= 10_000 else 2))


def without_collector(measured: Callable[[], float]) -> Callable[[], float]:
    """Return the measurement with Python's collector turned off."""

    def turn() -> float:
        gc.disable()
        try:
            return measured()
        finally:
            gc.enable()

    return turn


def _filled(type: ResourceType[Note], size: int, history: int = 1) -> MemoryBackend:
    backend = MemoryBackend(max_changes=history)
    if size:
        made = (built(type, texts(number), encode(note(number))) for number in range(size))
        trio.run(fill, backend, type, made)
    return backend


def _prime(size: int) -> Callable[[], float]:
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    backend, empty = _filled(type, size), MemoryBackend(max_changes=1)

    async def primed(store: MemoryBackend) -> float:
        index = headway.indexes.by_metadata(type, "group")
        async with headway.open_engine(store, app, report=ignore) as engine:
            await engine.wait_idle()
            begin = time.process_time()
            async with engine.open_cache(watches=[type], indexes=[index]):
                return time.process_time() - begin

    def each() -> float:
        of_empty = min(trio.run(primed, empty) for _ in range(3))
        return (least(lambda: trio.run(primed, backend), size) - of_empty) / size

    return without_collector(each)


def _queue(size: int) -> Callable[[], float]:
    keys = [("default", "default", texts(number).name) for number in range(size)]

    def passed() -> float:
        begin = time.process_time()
        queue = WorkQueue[tuple[str, str, str], str]()
        queue.add_all(keys, "start", 0.0, priority=BACKLOG)
        dequeued = 0
        while (found := queue.dequeue(1.0)) is not None:
            dequeued += 1
            if dequeued % 2:
                queue.succeeded(found.key, 1.0)
            else:
                queue.failed(found.key, "failed", 1.0)
        while (found := queue.dequeue(1e6)) is not None:
            dequeued += 1
            queue.succeeded(found.key, 1e6)
        assert dequeued == size + size // 2
        return time.process_time() - begin

    return without_collector(lambda: least(passed, size) / size)


def _first(size: int) -> Callable[[], float]:
    type = headway.App("bench").type("bench", "v1", "Managed", Note)
    backend = _filled(type, size)
    return without_collector(lambda: least(lambda: trio.run(reconciled, backend, size, time.process_time), size) / size)


def _update(size: int) -> Callable[[], float]:
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    # The names whose update has not been reconciled yet, with the texts that they get.
    wanted: dict[str, str] = {}
    done, turn = trio.Event(), 0

    @app.controller(manages=type, indexes=[headway.indexes.by_metadata(type, "group")], concurrency=8)
    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        found = rt.cache.get(type, request.id)
        assert found is not None
        if found.data.text == wanted.get(found.name):
            await rt.client.write_status(found, "notes", [_READY])
            del wanted[found.name]
            if not wanted:
                done.set()

    # Writes and statuses follow each other without a pause. Without a history, streams would need new snapshots.
    backend = _filled(type, size, history=10 * UPDATES)

    async def updated() -> float:
        nonlocal done, turn
        async with headway.open_engine(backend, app, report=ignore) as engine:
            await engine.wait_idle()
            done, turn = trio.Event(), turn + 1
            # The step has no common factor with the sizes, so the updates are of different resources.
            chosen = [texts(at * 7_919 % size) for at in range(min(UPDATES, size))]
            wanted.update((each.name, f"{turn:0118d}") for each in chosen)
            new = [type.new(each.name, Note(text=wanted[each.name]), metadata={"group": each.group}) for each in chosen]
            gc.collect()
            begin = time.process_time()
            for each in new:
                await engine.client.write(each)
            await done.wait()
            return (time.process_time() - begin) / len(new)

    return lambda: trio.run(updated)


def _list(size: int) -> Callable[[], float]:
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    backend = _filled(type, size)

    async def listed() -> float:
        async with headway.open_engine(backend, app, report=ignore) as engine:
            await engine.wait_idle()
            begin = time.process_time()
            assert len(await engine.client.list(type)) == size
            return time.process_time() - begin

    return without_collector(lambda: least(lambda: trio.run(listed), size) / size)


ROWS = (
    grown("prime_10k", _prime, 10_000),
    grown("prime_100k", _prime, 100_000, quick=False),
    grown("prime_1m", _prime, 1_000_000, rounds=1, quick=False),
    grown("queue_10k", _queue, 10_000),
    grown("queue_100k", _queue, 100_000),
    grown("queue_1m", _queue, 1_000_000, rounds=1, quick=False),
    grown("first_10k", _first, 10_000),
    grown("first_100k", _first, 100_000, quick=False),
    grown("update_10k", _update, 10_000),
    grown("update_100k", _update, 100_000, quick=False),
    grown("list_10k", _list, 10_000),
    grown("list_100k", _list, 100_000, quick=False),
)
