"""Headway's side of `make bench-peers`: the modes of the programs of the peers, as a program of its own.

``python -m benchmarks.peers._headway MODE OBJECTS OTHER`` prints one JSON object, like the program of each peer. Each
controller runs in an engine on the store in memory, with 8 workers, as `benchmarks.prime` and others have it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median

import trio

import headway
from benchmarks._message import Note, built, built_many, fill, note, put, texts
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import ResourceType, pb
from headway.storage import MemoryBackend

Result = dict[str, float]
Handler = Callable[[headway.Runtime, headway.Request], Awaitable[None]]

_WORKERS = 8
_READY = pb.Condition(type="Ready", state=pb.ConditionState.TRUE)


class _Clock:
    """The processor time and the wall time since it was made."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def end(self) -> Result:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return {"cpu_us": cpu * 1e6, "wall_us": wall * 1e6}


def _declared(reconcile: Handler, indexes: int = 0) -> tuple[headway.App, ResourceType[Note]]:
    app = headway.App("bench")
    type = app.type("bench", "v1", "Note", Note)

    by_group = [
        headway.indexes.by(type, f"group-{number}", lambda each: each.metadata["group"]) for number in range(indexes)
    ]
    app.controller(manages=type, indexes=by_group, concurrency=_WORKERS, name="notes", deadline=300.0)(reconcile)
    return app, type


async def prime(count: int, indexes: int) -> Result:
    """Measure until the first reconcile begins."""
    begun = trio.Event()

    async def notes(rt: headway.Runtime, request: headway.Request) -> None:  # noqa: ARG001  # its arguments are the engine's
        begun.set()

    app, note_type = _declared(notes, indexes)
    backend = await _filled(note_type, count)
    clock = _Clock()
    async with headway.open_engine(backend, app, report=ignore, gc_freeze=True):
        await begun.wait()
        return clock.end()


async def first(count: int, indexes: int) -> Result:
    """Measure until every resource has been reconciled."""
    done = trio.Event()
    seen = 0

    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        nonlocal seen
        assert rt.cache.get(note_type, request.id) is not None
        seen += 1
        if seen == count:
            done.set()

    app, note_type = _declared(notes, indexes)
    backend = await _filled(note_type, count)
    clock = _Clock()
    async with headway.open_engine(backend, app, report=ignore, gc_freeze=True):
        await done.wait()
        return clock.end()


async def throughput(count: int, writers: int) -> Result:
    """Measure creations by a number of writers, each with a reconcile that writes a status."""
    done = trio.Event()
    written = 0

    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        nonlocal written
        found = rt.cache.get(note_type, request.id)
        if found is None or "notes" in found.status:
            return
        await rt.client.write_status(found, "notes", [_READY])
        written += 1
        if written == count:
            done.set()

    app, note_type = _declared(notes)

    async def write(numbers: Sequence[int]) -> None:
        for number in numbers:
            await engine.client.write(made[number])

    async with headway.open_engine("memory:", app, report=ignore, gc_freeze=True) as engine:
        await engine.wait_idle()
        made = [note_type.new(texts(at).name, note(at), metadata={"group": texts(at).group}) for at in range(count)]
        clock = _Clock()
        async with trio.open_nursery() as nursery:
            for writer in range(writers):
                nursery.start_soon(write, range(writer, count, writers))
        await done.wait()
        return clock.end()


async def latency(count: int, samples: int) -> Result:
    """Measure from a write until its reconcile begins, with a number of resources in the cache."""
    awaited, begun = "", trio.Event()
    at = 0.0

    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        nonlocal at
        assert rt.cache.get(note_type, request.id) is not None
        if request.id.name == awaited:
            at = time.perf_counter()
            begun.set()

    app, note_type = _declared(notes)
    backend = await _filled(note_type, count)
    took = []
    async with headway.open_engine(backend, app, report=ignore, gc_freeze=True) as engine:
        await engine.wait_idle()
        clock = _Clock()
        for number in range(count, count + samples):
            awaited, begun = texts(number).name, trio.Event()
            change = put(note_type, built(note_type, texts(number), encode(note(number))))
            wrote = time.perf_counter()
            await backend.commit([change])
            await begun.wait()
            took.append(at - wrote)
        return {**clock.end(), "median_us": median(took) * 1e6}


async def memory(count: int, _: int) -> Result:
    """Measure the peak of a process with a store, a cache and a first pass."""
    before = _peak()
    found = await first(count, 0)
    return {**found, "bytes": _peak() - before}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


async def _filled(type: ResourceType[Note], count: int) -> MemoryBackend:
    backend = MemoryBackend()
    if count:
        await fill(backend, type, built_many(type, count))
    return backend


MODES: dict[str, Callable[[int, int], Awaitable[Result]]] = {
    "prime": prime,
    "first": first,
    "throughput": throughput,
    "latency": latency,
    "memory": memory,
}


async def _run(mode: str, count: int, other: int) -> Result:
    return await MODES[mode](count, other)


if __name__ == "__main__":
    print(json.dumps(trio.run(_run, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
