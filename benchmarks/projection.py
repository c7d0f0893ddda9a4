"""`projection`: the memory of a cache that keeps a part of each resource of a large type.

Measured: the bytes per resource that Python allocates (by tracemalloc) when 5,000 resources are fed to the store of a
projection. They arrive as chunks of a snapshot, in messages that have no other reference, as they arrive over a
network. The bytes include the kept parts of the messages, and the entries by id. The message has one metadata entry and
2,000 bytes of payload, and the projection keeps a text of 20 bytes.

Against: the same resources, fed to the store of the whole type.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note, built, texts
from headway.cache import CachedType, Informer
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import EndOfSnapshot, Position, ResourceType, SnapshotChunk

_CHUNK = 500
_TYPE: ResourceType[Note] = ResourceType("bench", "v1", "Big", Note)
_PART = headway.projection(_TYPE, Note, lambda big: Note(text=big.data.text[:20]))


def measure(size: int, rounds: int) -> Row:
    """Cache ``size`` resources."""
    for type in (_PART, _TYPE):
        _held(type, 1)  # allocates whatever a process allocates once
    ours, against = interleaved(lambda: _held(_PART, size), lambda: _held(_TYPE, size), rounds)
    return Row("projection", ours / size, against / size, "bytes", 0.5)


def _held(type: CachedType[Any], size: int) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        informer = Informer(type, ignore)
        for begin in range(0, size, _CHUNK):
            numbers = range(begin, min(begin + _CHUNK, size))
            informer.feed(SnapshotChunk([built(_TYPE, texts(number), _payload(number)) for number in numbers]))
        informer.feed(EndOfSnapshot(Position("store", "opened", size)))
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        assert len(informer.store.entries) == size
        return held
    finally:
        tracemalloc.stop()


def _payload(number: int) -> bytes:
    return encode(Note(text=f"{number:020d}{'n' * 1977}"))


SCENARIO = Scenario("projection", 0.5, measure, size=5_000, rounds=1, quick=1_000)
