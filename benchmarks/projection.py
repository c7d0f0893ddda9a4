"""`projection`: what a cache holds of a big type when it keeps a part of it.

Measured: what Python allocates (tracemalloc) for each of 5,000 resources that are fed to the store of a projection, as
chunks of a snapshot whose messages nobody else holds, as they come over a network. In it: what is kept of the messages,
and the entries by id. The message has one metadata entry and 2,000 bytes of payload, of which a text of 20 is kept.

Against: the same, fed to the store of the whole type.
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
    """Hold ``size`` resources."""
    for type in (_PART, _TYPE):
        _held(type, 1)  # whatever is made once in a process is there after this
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
