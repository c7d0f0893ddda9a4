"""`memory`: the memory per resource in the store and in one controller's cache.

Measured: the bytes per resource that Python allocates (by tracemalloc, so all of Python's own allocators) from before
the writes until a controller of the type is primed. The in-process client writes 20,000 resources to a memory store
without history (``max_changes=1``). The bytes include the stored message with everything it references, the store's
table, the cache's entries by id, and one secondary index of 10 groups. They exclude everything that is freed once the
controller has reconciled all keys, so the queues are empty. They also exclude what the engine allocates without
resources: a similar engine has run before, so caches and compiled codecs exist already. An engine has one cache per
type, which its controllers share.

Against: the same messages, built by their constructors, in a list. They share one message of their type and one of
their tenancy, as stored resources do. The payload's bytes and every text that differs between resources are made for
each resource, as in the store.

The unit is bytes, unlike in most scenarios. The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import gc
import tracemalloc

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built, note, tenancy, texts, type_message
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import ResourceType
from headway.storage import MemoryBackend


def measure(size: int, rounds: int) -> Row:
    """Store and cache ``size`` resources."""
    app, type = _app()
    trio.run(_held, app, type, 1)  # allocates whatever a process allocates once
    ours, against = interleaved(lambda: trio.run(_held, app, type, size), lambda: built_bytes(type, size), rounds)
    return Row("memory", ours / size, against / size, "bytes", 1.4)


async def _held(app: headway.App, type: ResourceType[Note], size: int) -> float:
    """Return the bytes in use for ``size`` resources that are stored, cached and reconciled."""
    async with headway.open_engine(MemoryBackend(max_changes=1), app, report=ignore) as engine:
        await engine.wait_idle()
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(size):
                # Built as a program builds it. Only the stored copy is kept.
                text = texts(number)
                await engine.client.write(type.new(text.name, note(number), metadata={"group": text.group}))
            await engine.wait_idle()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()


def built_bytes(type: ResourceType[Note], size: int) -> float:
    """Return the bytes of ``size`` messages that share their type message and their tenancy message."""
    gc.collect()
    tracemalloc.start()
    try:
        shared = (type_message(type), tenancy())
        messages = [built(type, texts(number), encode(note(number)), shared) for number in range(size)]
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        assert len(messages) == size
        return held
    finally:
        tracemalloc.stop()


def _app() -> tuple[headway.App, ResourceType[Note]]:
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)

    @app.controller(manages=type, indexes=[headway.indexes.by_metadata(type, "group")], concurrency=8)
    async def notes(rt: headway.Runtime, request: headway.Request) -> None:
        """Reconcile nothing."""

    return app, type


SCENARIO = Scenario("memory", 1.4, measure, size=20_000, rounds=3, quick=10_000)
