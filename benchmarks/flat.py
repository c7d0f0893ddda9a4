"""`flat`: what one event costs when much is cached, against when little is.

Measured: the wall time from a commit until its reconcile has read the cache, for each of 2,000 updates that come one
after the other, spread over what is cached, with 1,000,000 resources in the store and in the one controller's cache.
In it: the commit (the service is not), the stream, the gate, one secondary index, the map queue, the work queue, a
worker, one copied read. Out of it: filling the store and priming, and the reconciles of what was there at the start.

Against: the same with 1,000 cached. Both engines stand side by side, each in its turn, in one process; so what the
garbage collector does with the objects that are there meets both. Nothing is frozen (`gc.freeze`), as nothing is in a
program that doesn't do so.

The payload is empty and there is one metadata entry, so that a million fits: the process takes about 1.5 GB. A smaller
machine can ask for less: ``python -m benchmarks flat=100000``.
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

SMALL = 1_000
EVENTS = 2_000
_CHUNK = 10_000


def measure(size: int, rounds: int) -> Row:
    """Cache ``size`` resources."""
    ours, against = trio.run(_measured, size, rounds)
    return Row("flat", ours * 1e6, against * 1e6, "us", 1.5)


async def _measured(size: int, rounds: int) -> tuple[float, float]:
    async with _Cached.opened(size) as big, _Cached.opened(min(SMALL, size)) as small:
        gc.collect()
        pairs = [(await big.events(), await small.events()) for _ in range(rounds)]
    middle = rounds // 2
    return sorted(pair[0] for pair in pairs)[middle], sorted(pair[1] for pair in pairs)[middle]


class _Cached:
    """An engine with so many resources in its store and its cache."""

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
        """Seconds for one event."""
        begin = time.perf_counter()
        for _ in range(EVENTS):
            # A step that has no factor in common with the sizes goes through all of it.
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


SCENARIO = Scenario("flat", 1.5, measure, size=1_000_000, rounds=5, quick=100_000)
