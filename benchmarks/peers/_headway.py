"""Headway's side of `make bench-peers`: the modes of the programs of the peers, as a program of its own.

``python -m benchmarks.peers._headway MODE OBJECTS OTHER [--no-gc-freeze]`` prints one JSON object, like the program of
each peer. Each controller runs in an engine on the store in memory, with 8 workers.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from statistics import median
from typing import Protocol

import trio

import headway
from benchmarks._message import Note, built_many, fill, note, texts
from benchmarks.work import Declared
from headway.events import ignore
from headway.resource import ResourceType, pb
from headway.storage import Backend, MemoryBackend

Result = dict[str, float]
Handler = Callable[[headway.Runtime, headway.Request], Awaitable[None]]

SAMPLES = 2_000
"""The number of writes whose latency is measured, if they follow each other without a silence."""

NO_FREEZE = "--no-gc-freeze"
"""The option of this program for an engine with ``gc_freeze=False``, which leaves Python's collector as it is."""

_WORKERS = 8
_READY = pb.Condition(type="Ready", state=pb.ConditionState.TRUE)


class Opened(Protocol):
    """A function that opens an engine, with the options that are compared."""

    def __call__(self, store: Backend | str, app: headway.App, /) -> AbstractAsyncContextManager[headway.Engine]:
        """Open an engine for the length of the block."""
        ...


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


async def prime(count: int, indexes: int, opened: Opened) -> Result:
    """Measure until the first reconcile begins."""
    begun = trio.Event()

    async def notes(rt: headway.Runtime, request: headway.Request) -> None:  # noqa: ARG001  # its arguments are the engine's
        begun.set()

    app, note_type = _declared(notes, indexes)
    backend = await _filled(note_type, count)
    clock = _Clock()
    async with opened(backend, app):
        await begun.wait()
        return clock.end()


async def first(count: int, indexes: int, opened: Opened, at_end: Callable[[], Result] = dict) -> Result:
    """Measure until every resource has been reconciled.

    Args:
        at_end: A function that returns further figures, and is called while the engine is open.
    """
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
    async with opened(backend, app):
        await done.wait()
        return {**clock.end(), **at_end()}


async def throughput(count: int, writers: int, opened: Opened) -> Result:
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

    async with opened("memory:", app) as engine:
        await engine.wait_idle()
        made = [note_type.new(texts(at).name, note(at), metadata={"group": texts(at).group}) for at in range(count)]
        clock = _Clock()
        async with trio.open_nursery() as nursery:
            for writer in range(writers):
                nursery.start_soon(write, range(writer, count, writers))
        await done.wait()
        return clock.end()


async def work(count: int, _: int, opened: Opened) -> Result:
    """Measure until every resource has been reconciled as in `benchmarks.work`, and nothing is pending."""
    declared = Declared()
    app, backend = declared.controlled(declared.work), await declared.filled(count)
    clock = _Clock()
    async with opened(backend, app) as engine:
        await engine.wait_idle()
        return clock.end()


async def latency(count: int, silence: int, opened: Opened) -> Result:
    """Measure from a write until its reconcile begins, with a number of resources in the cache.

    Args:
        silence: The milliseconds from a reconcile until the next write.
    """
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
    samples = min(SAMPLES, 2 * SAMPLES // silence) if silence else SAMPLES
    took = []
    async with opened(backend, app) as engine:
        await engine.wait_idle()
        made = [
            note_type.new(texts(at).name, note(at), metadata={"group": texts(at).group})
            for at in range(count, count + samples)
        ]
        clock = _Clock()
        for each in made:
            awaited, begun = each.name, trio.Event()
            wrote = time.perf_counter()
            await engine.client.write(each)
            await begun.wait()
            took.append(at - wrote)
            if silence:
                await trio.sleep(silence / 1000)
        found = clock.end()
    return {**found, "median_us": median(took) * 1e6, "each_us": found["cpu_us"] / samples}


async def peak(count: int, _: int, opened: Opened) -> Result:
    """Measure the peak of a process with a store, a cache and a first pass, beyond what the process had before."""
    before = _peak()
    found = await first(count, 0, opened)
    return {**found, "bytes": _peak() - before}


async def live(count: int, _: int, opened: Opened) -> Result:
    """Measure the bytes of all objects that are alive after a first pass, beyond those before, without garbage."""

    def held() -> Result:
        gc.collect()
        return {"bytes": float(tracemalloc.get_traced_memory()[0])}

    gc.collect()
    tracemalloc.start()
    try:
        return await first(count, 0, opened, held)
    finally:
        tracemalloc.stop()


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


async def _filled(type: ResourceType[Note], count: int) -> MemoryBackend:
    backend = MemoryBackend()
    if count:
        await fill(backend, type, built_many(type, count))
    return backend


MODES: dict[str, Callable[[int, int, Opened], Awaitable[Result]]] = {
    "prime": prime,
    "first": first,
    "throughput": throughput,
    "work": work,
    "latency": latency,
    "peak": peak,
    "live": live,
}


async def run(mode: str, count: int, other: int, *, gc_freeze: bool) -> Result:
    """Run a mode, and return its figures."""
    # The first engine of a process loads the code of all. A program in Go has its code before its clock begins.
    async with headway.open_engine("memory:", headway.App("loading"), report=ignore):
        pass
    return await MODES[mode](count, other, partial(headway.open_engine, report=ignore, gc_freeze=gc_freeze))


def main() -> None:
    """Print the figures of a mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("objects", type=int)
    parser.add_argument("other", type=int, help="the number of indexes or writers, or the milliseconds of silence")
    parser.add_argument(NO_FREEZE, dest="gc_freeze", action="store_false", help="open the engine with this option")
    given = parser.parse_args()
    print(json.dumps(trio.run(partial(run, given.mode, given.objects, given.other, gc_freeze=given.gc_freeze))))


if __name__ == "__main__":
    main()
