"""`prime`: the time until a controller's run is primed.

Measured: the wall time per resource from opening an engine on a filled memory store (in one process, on one Trio loop)
to the `RunStarted` report. The controller manages one type and watches two others. Each type has 100,000 resources,
with one metadata entry and 120 bytes of payload, and an index by metadata with 10 values. The time includes opening the
engine, the fence's commit, three WatchList streams through the in-process channel in chunks of 1,000, the caches with
their indexes (including the owner index that every watched type has), and enqueueing the cached resources as backlog.
It excludes filling the store, and mapping the backlog, which happens after priming.

Against: a plain loop over the same 300,000 objects. It calls the same key function and the same index function, and
puts each object into two plain dicts per type, one by key and one of keys by index value.

No channel buffer is involved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built_many, fill
from benchmarks._primed import CONTROLLER, primed_after
from headway.cache import Index
from headway.resource import Key, Resource, ResourceType, pb, resource_key
from headway.storage import MemoryBackend

TYPES = 3


def measure(size: int, rounds: int) -> Row:
    """Prime from ``size`` resources of each type."""
    app, types = _app()
    resources = [built_many(type, size) for type in types]
    backend = MemoryBackend(max_changes=1)
    index = headway.indexes.by_metadata(types[0], "group")

    async def load() -> None:
        for type, each in zip(types, resources, strict=True):
            await fill(backend, type, each)

    trio.run(load)
    ours, against = interleaved(
        lambda: trio.run(primed_after, backend, app),
        lambda: _loop(resources, resource_key, index),
        rounds,
    )
    events = TYPES * size / 1e6
    return Row("prime", ours / events, against / events, "us", 3.5)


def _loop(
    resources: Sequence[Sequence[pb.Resource]], key_of: Callable[[pb.Resource], Key], index: Index[Resource[Note], str]
) -> float:
    begin = time.perf_counter()
    value_of = index.function
    held = []
    for each in resources:
        entries: dict[Key, pb.Resource] = {}
        by_value: dict[str, set[Key]] = {}
        for resource in each:
            key = key_of(resource)
            entries[key] = resource
            value = value_of(resource)
            if value in by_value:
                by_value[value].add(key)
            else:
                by_value[value] = {key}
        held.append((entries, by_value))
    return time.perf_counter() - begin


def _app() -> tuple[headway.App, list[ResourceType[Note]]]:
    app = headway.App("bench")
    types = [app.type("bench", "v1", kind, Note) for kind in ("Managed", "First", "Second")]
    managed, *watched = types

    @app.controller(
        manages=managed,
        watches=[headway.watch(type, headway.mappers.same_name()) for type in watched],
        indexes=[headway.indexes.by_metadata(type, "group") for type in types],
        name=CONTROLLER,
    )
    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        """Do nothing. The engine is closed as soon as it is primed."""

    return app, types


SCENARIO = Scenario("prime", 3.5, measure, size=100_000, rounds=5, quick=100_000)
