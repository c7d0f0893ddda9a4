"""`history_sqlite`, `history_memory`: the memory of a change that a store keeps as history.

`history_sqlite`: the bytes that Python allocates (by tracemalloc) for each of 100,000 changes of 200 resources that are
written to a store in an SQLite file. All of them are kept. Against: the bytes of the resource as it is encoded. With
the bound, the history takes 40 MB.

`history_memory`: the same for a store in memory. Against: the same messages, built by their constructors, which share
their type, their tenancy and their metadata, as the states of a resource do. The rest is the change itself, its places
in the log, and the commit.

The unit is bytes. The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built, note, put, tenancy, texts, type_message
from benchmarks._primed import one_type
from headway.protobuf import encode
from headway.resource import ResourceType, pb
from headway.storage import Backend, MemoryBackend, Put, SqliteBackend

RESOURCES = 200


def _on_sqlite(size: int, rounds: int) -> Row:
    _, type = one_type()
    size = max(size, RESOURCES)

    def kept() -> float:
        with TemporaryDirectory() as folder:
            return trio.run(_kept, lambda: SqliteBackend(Path(folder) / "store.db"), type, size, RESOURCES)

    encoded = len(encode(built(type, texts(0), encode(note(0)))))
    ours, against = interleaved(kept, lambda: float(encoded * size), rounds)
    return Row("history_sqlite", ours / size, against / size, "bytes", 1.4)


def _in_memory(size: int, rounds: int) -> Row:
    _, type = one_type()
    size = max(size, RESOURCES)
    ours, against = interleaved(
        lambda: trio.run(_kept, MemoryBackend, type, size, 1), lambda: _built_bytes(type, size), rounds
    )
    return Row("history_memory", ours / size, against / size, "bytes", 1.6)


async def _kept(opened: Callable[[], Backend], type: ResourceType[Note], size: int, at_once: int) -> float:
    """Return the bytes in use for ``size`` changes that a store keeps, in commits of some changes."""
    async with opened() as store:
        stored: dict[str, pb.Resource] = {}
        await _write(store, type, 0, at_once, stored)
        gc.collect()
        tracemalloc.start()
        try:
            for turn in range(1, size // RESOURCES + 1):
                await _write(store, type, turn, at_once, stored)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()


async def _write(
    store: Backend, type: ResourceType[Note], turn: int, at_once: int, stored: dict[str, pb.Resource]
) -> None:
    """Write each resource once, based on the stored one."""
    for begin in range(0, RESOURCES, at_once):
        changes: list[Put] = []
        for each in range(begin, begin + at_once):
            text = texts(each)
            new = built(type, text, encode(note(turn * RESOURCES + each)))
            former = stored.get(text.name)
            change = put(type, new)
            if former is not None:
                new.id, new.metadata = former.id, former.metadata
                change = change._replace(expected=former.version)
            stored[text.name] = new
            changes.append(change)
        await store.commit(changes)


def _built_bytes(type: ResourceType[Note], size: int) -> float:
    """Return the bytes of ``size`` messages: those of each resource share what its states share."""
    gc.collect()
    tracemalloc.start()
    try:
        shared = (type_message(type), tenancy())
        messages = [built(type, texts(number), encode(note(number)), shared) for number in range(RESOURCES)]
        for number in range(RESOURCES, size):
            former = messages[number - RESOURCES]
            message = built(type, texts(number), encode(note(number)), shared)
            message.id, message.metadata = former.id, former.metadata
            messages.append(message)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        assert len(messages) == size
        return held
    finally:
        tracemalloc.stop()


ROWS = (
    Scenario("history_sqlite", 1.4, _on_sqlite, size=100_000, rounds=1, quick=0),
    Scenario("history_memory", 1.6, _in_memory, size=50_000, rounds=2, quick=10_000),
)
