"""The rows of scopes: a cache of 1 % of a type, against a cache of the whole type.

`scope_memory`: the bytes that Python allocates (by tracemalloc) for the cache of a program in the engine's process: its
entries, and an index of 10 groups. The stored messages belong to the memory store, which the caches share.

`scope_prime` and `scope_metadata`: the processor time from the call of `Engine.open_cache` until the cache is primed,
from a memory store. The scope is one namespace of a partition in the first, and a metadata entry of the whole type in
the second. The store indexes this entry from the first write on.

`scope_unindexed`: the same for the first scope by a metadata key that the store does not index by itself. Its snapshot
compares all resources, and makes the index.

`scope_sqlite` and `scope_sqlite_metadata`: the same from an SQLite file that the engine has open.

Every row has 1,000,000 resources in 100 namespaces, and each has two metadata entries and 120 bytes of payload. The
stores keep no history (``max_changes=1``). Priming a scope takes some hundredths of a second, in which other programs
may have the processor. So processor time is compared, and each round primes a scope `PRIMED` times and takes the
median. The cost is per resource of the whole type. No channel buffer is involved.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, built, put, texts
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import ResourceType, pb
from headway.storage import Backend, MemoryBackend, SqliteBackend

SHARE = 100
"""The whole type has this many times the resources of the scope."""

PRIMED = 5
"""The number of primings of a scope in a round. The whole type is primed once."""

AT_ONCE = 2000
"""The number of resources in each commit that fills a store."""

Cached = headway.ResourceType[Note] | headway.ScopedType[Note]
Measured = Callable[[headway.Engine, Cached], Awaitable[float]]


def _app() -> tuple[headway.App, ResourceType[Note]]:
    app = headway.App("bench")
    return app, app.type("bench", "v1", "Managed", Note)


async def _fill(store: Backend, type: ResourceType[Note], size: int) -> None:
    value = encode(Note(text=TEXT))
    # In order of key, as a store sorts them anyway.
    each = max(1, size // SHARE)
    made: list[pb.Resource] = []
    for number in range(size):
        resource = built(type, texts(number), value)
        assert resource.id is not None
        resource.id.tenancy = pb.Tenancy(partition="default", namespace=f"n{number // each:03}")
        resource.metadata["tier"] = "gold" if number % SHARE == 0 else "free"
        made.append(resource)
        if len(made) == AT_ONCE:
            await store.commit([put(type, each) for each in made])
            made = []
    if made:
        await store.commit([put(type, each) for each in made])


async def _primed_after(engine: headway.Engine, cached: Cached) -> float:
    """Return the seconds of the processor until a cache is primed."""
    index = headway.indexes.by_metadata(cached, "group")
    begin = time.process_time()
    async with engine.open_cache(watches=[cached], indexes=[index]):
        return time.process_time() - begin


async def _held_by(engine: headway.Engine, cached: Cached) -> float:
    """Return the bytes that a cache holds."""
    index = headway.indexes.by_metadata(cached, "group")
    gc.collect()
    tracemalloc.start()
    try:
        async with engine.open_cache(watches=[cached], indexes=[index]):
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@asynccontextmanager
async def _open(app: headway.App, store: Backend) -> AsyncIterator[headway.Engine]:
    async with headway.open_engine(store, app, report=ignore) as engine:
        await engine.wait_idle()
        yield engine


def _scenario(
    name: str,
    bound: float,
    scope: dict[str, str],
    measured: Measured,
    *,
    on_disk: bool,
    unit: Any,
    quick: int,
    indexed: bool = True,
) -> Scenario:
    def measure(size: int, rounds: int) -> Row:
        app, type = _app()
        with tempfile.TemporaryDirectory(prefix="headway-scopes-") as folder:
            path = Path(folder) / "store.db"
            memory = MemoryBackend(max_changes=1)

            def store() -> Backend:
                return SqliteBackend(path, max_changes=1) if on_disk else memory

            async def fill() -> None:
                async with store() as opened:
                    await _fill(opened, type, size)

            async def one(cached: Cached) -> float:
                async with _open(app, store()) as engine:
                    return await measured(engine, cached)

            trio.run(fill)
            # Makes whatever a process makes once.
            trio.run(one, type.within(**scope))

            def scoped() -> float:
                if not indexed:
                    # As if the store had left the key out, and no scope had made an index of it yet.
                    indexes = memory._tables.indexes
                    indexes._kept[type.kind] = dict.fromkeys(indexes._kept[type.kind])
                    indexes.made.clear()
                return trio.run(one, type.within(**scope))

            ours, against = interleaved(
                lambda: statistics.median(scoped() for _ in range(1 if unit == "bytes" else PRIMED)),
                lambda: trio.run(one, type),
                rounds,
            )
        per = 1e6 if unit == "us" else 1.0
        return Row(name, ours / size * per, against / size * per, unit, bound)

    return Scenario(name, bound, measure, size=1_000_000, rounds=3, quick=quick)


_NAMESPACE = {"partition": "default", "namespace": "n050"}
_METADATA = {"metadata": "tier=gold"}

ROWS = (
    _scenario("scope_memory", 0.02, _METADATA, _held_by, on_disk=False, unit="bytes", quick=100_000),
    _scenario("scope_prime", 0.02, _NAMESPACE, _primed_after, on_disk=False, unit="us", quick=200_000),
    _scenario("scope_metadata", 0.05, _METADATA, _primed_after, on_disk=False, unit="us", quick=200_000),
    _scenario("scope_unindexed", 0.6, _METADATA, _primed_after, on_disk=False, unit="us", quick=100_000, indexed=False),
    _scenario("scope_sqlite", 0.02, _NAMESPACE, _primed_after, on_disk=True, unit="us", quick=100_000),
    _scenario("scope_sqlite_metadata", 0.3, _METADATA, _primed_after, on_disk=True, unit="us", quick=100_000),
)
