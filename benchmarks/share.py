"""`share`: the memory that an additional controller on a type costs.

Measured: the bytes per resource that Python allocates (by tracemalloc), for 10,000 resources, from before the engine is
opened until its controllers are primed and have reconciled all keys. The memory store was filled before, so neither the
store nor the messages count. Our side is the difference between an engine with two controllers and an engine with one.
It includes the second controller's index by metadata with 10 values, and everything else that a run keeps per resource.

Against: the cost of the first controller: the difference between an engine with one controller and an engine with none.
It includes the type's cache (a key and an entry per resource), and an index of the same kind.

A type has one stream and one cache in a process, however many controllers there are. An additional controller therefore
costs its indexes alone.
"""

from __future__ import annotations

import gc
import tracemalloc

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built_many, fill
from headway.events import ignore
from headway.resource import ResourceType
from headway.storage import MemoryBackend


def measure(size: int, rounds: int) -> Row:
    """Cache ``size`` resources for zero, one and two controllers."""
    # With fewer resources, an engine's allocations would vary from run to run by more than the measured difference.
    size = max(size, 500)
    apps = [_app(controllers) for controllers in range(3)]
    for app, type in apps:
        _held(app, type, 1)  # allocates whatever a process allocates once
    second, first = interleaved(
        lambda: _held(*apps[2], size) - _held(*apps[1], size),
        lambda: _held(*apps[1], size) - _held(*apps[0], size),
        rounds,
    )
    return Row("share", second / size, first / size, "bytes", 0.5)


def _held(app: headway.App, type: ResourceType[Note], size: int) -> float:
    """Return the bytes that an engine uses for ``size`` resources, without the store."""
    return trio.run(_running, app, type, size) - trio.run(_running, app, type, 0)


async def _running(app: headway.App, type: ResourceType[Note], size: int) -> float:
    backend = MemoryBackend(max_changes=1)
    if size:
        await fill(backend, type, built_many(type, size))
    gc.collect()
    tracemalloc.start()
    try:
        async with headway.open_engine(backend, app, report=ignore) as engine:
            await engine.wait_idle()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def _app(controllers: int) -> tuple[headway.App, ResourceType[Note]]:
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)

    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        """Reconcile nothing."""

    for number in range(controllers):
        by_group = headway.indexes.by_metadata(type, "group")
        app.controller(manages=type, indexes=[by_group], concurrency=8, name=f"notes-{number}")(notes)
    return app, type


SCENARIO = Scenario("share", 0.5, measure, size=10_000, rounds=1, quick=3_000)
