"""`memory`: what a resource takes in the store and one controller's cache.

Measured: what Python allocates (tracemalloc: every block of Python's own allocators) from before the writes until a
controller of the type is primed, for each of 20,000 resources that the in-process client has written to a memory store
without history (``max_changes=1``). In it: the stored message with all that it holds, the store's table, the cache's
entries by id, and one secondary index of 10 groups. Out of it: what is gone once the controller has reconciled all
keys, so the queues are empty; what the engine takes without resources, measured on an engine that is otherwise the
same, so that caches and compiled codecs are there already. An engine has one cache of a type, shared by its
controllers.

Against: the same messages, built by their constructors, in a list. They share one message of their type and one of
their tenancy, as what is stored does; the payload's bytes and every text that differs from resource to resource are
made for each, as they are in the store.

Other than in the other scenarios the unit is bytes. The message has one metadata entry and 120 bytes of payload.
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
    trio.run(_held, app, type, 1)  # whatever is made once in a process is there after this
    ours, against = interleaved(lambda: trio.run(_held, app, type, size), lambda: built_bytes(type, size), rounds)
    return Row("memory", ours / size, against / size, "bytes", 1.4)


async def _held(app: headway.App, type: ResourceType[Note], size: int) -> float:
    """Bytes that are held for ``size`` resources when they are stored, cached and reconciled."""
    async with headway.open_engine(MemoryBackend(max_changes=1), app, report=ignore) as engine:
        await engine.wait_idle()
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(size):
                # Built as a program builds them; nothing of it is kept but what was stored.
                text = texts(number)
                await engine.client.write(type.new(text.name, note(number), metadata={"group": text.group}))
            await engine.wait_idle()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()


def built_bytes(type: ResourceType[Note], size: int) -> float:
    """Bytes of ``size`` messages that share what can be shared: the messages of their type and of their tenancy."""
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
