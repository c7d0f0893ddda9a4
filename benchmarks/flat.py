"""`flat`, `flat_10k`, `flat_100k`: the cost of one event with a large cache, compared with a small one.

Measured: the wall time from a commit until its reconcile has read the cache, for each of 2,000 successive updates that
are spread over the cache, with 1,000,000 resources in the store and in the cache of the one controller. The time
includes the commit (but not the service), the stream, the cache, one secondary index, the map queue, the work queue, a
worker and one copied read. It excludes filling the store, priming, and the reconciles of the backlog.

Against: the same with 1,000 cached resources. Both engines are open in one process and take turns, so the garbage
collector's work on existing objects affects both.

The payload is empty and there is one metadata entry, so that a million resources fit into memory: the process takes
about 1.5 GB. `flat_10k` and `flat_100k` are the same with 10,000 and 100,000 resources.
"""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

import headway
from benchmarks._harness import Row, Scenario
from benchmarks._message import GROUPS, Note
from headway.events import ignore
from headway.resource import pb, resource_key
from headway.storage import MemoryBackend, Put

BOUND = 1.5
SMALL = 1_000
EVENTS = 2_000
_CHUNK = 10_000


def _scenario(name: str, size: int, quick: int) -> Scenario:
    def measure(size: int, rounds: int) -> Row:
        ours, against = trio.run(_measured, size, rounds)
        return Row(name, ours * 1e6, against * 1e6, "us", BOUND)

    return Scenario(name, BOUND, measure, size=size, rounds=5, quick=quick)


async def _measured(size: int, rounds: int) -> tuple[float, float]:
    async with _Cached.opened(size) as big, _Cached.opened(min(SMALL, size)) as small:
        gc.collect()
        pairs = [(await big.events(), await small.events()) for _ in range(rounds)]
    middle = rounds // 2
    return sorted(pair[0] for pair in pairs)[middle], sorted(pair[1] for pair in pairs)[middle]


class _Cached:
    """An engine with ``size`` resources in its store and in its cache."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.backend = MemoryBackend(max_changes=1)
        self.app = headway.App("bench")
        self.type = self.app.type("bench", "v1", "Managed", Note)
        self._seen = trio.Event()
        self._next = 0

        @self.app.controller(
            manages=self.type, indexes=[headway.indexes.by_metadata(self.type, "group")], concurrency=1
        )
        async def notes(rt: headway.Runtime, request: headway.Request) -> None:
            note = rt.cache.get(self.type, request.id)
            assert note is not None
            self._seen.set()

    @classmethod
    @asynccontextmanager
    async def opened(cls, size: int) -> AsyncIterator[_Cached]:
        cached = cls(size)
        for begin in range(0, size, _CHUNK):
            await cached.backend.commit([cached._put(number) for number in range(begin, min(begin + _CHUNK, size))])
        async with headway.open_engine(cached.backend, cached.app, report=ignore) as engine:
            await engine.wait_idle()
            yield cached

    async def events(self) -> float:
        """Return the seconds per event."""
        begin = time.perf_counter()
        for _ in range(EVENTS):
            # This step has no common factor with the sizes, so it visits every resource.
            self._next = (self._next + 7_919) % self.size
            stored, _ = await self.backend.read(self.type.kind, resource_key(self._resource(self._next)))
            assert stored is not None
            self._seen = trio.Event()
            await self.backend.commit([self._put(self._next, stored.version)])
            await self._seen.wait()
        return (time.perf_counter() - begin) / EVENTS

    def _put(self, number: int, version: str = "") -> Put:
        resource = self._resource(number)
        return Put(self.type.kind, resource_key(resource), resource, version)

    def _resource(self, number: int) -> pb.Resource:
        name = self.type.name
        return pb.Resource(
            id=pb.Id(
                uid=f"{number:08d}",
                name=f"note-{number}",
                type=pb.Type(group=name.group, group_version=name.version, kind=name.kind),
                tenancy=pb.Tenancy(partition="default", namespace="default"),
            ),
            generation="1",
            metadata={"group": f"group-{number % GROUPS}"},
        )


ROWS = (
    _scenario("flat_10k", 10_000, quick=0),
    _scenario("flat_100k", 100_000, quick=100_000),
    _scenario("flat", 1_000_000, quick=0),
)
