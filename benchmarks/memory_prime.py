"""`memory_prime`: priming a controller from a memory store with 100,000 resources.

Measured: the wall time per resource from opening an engine on the filled store (in one process, on one Trio loop) to
the `RunStarted` report of a controller of the one type, which has an index of 10 groups. It includes the steps that
`prime` describes; `prime` has three types and another comparison.

Against: a bare read of the same store: the list of all resources, put into a dict by key.

Each turn begins without garbage. The message has one metadata entry and 120 bytes of payload. No channel buffer is
involved.
"""

from __future__ import annotations

import time

import trio

from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._message import Note
from benchmarks._primed import filled, one_type, primed_after
from headway.resource import ResourceType, resource_key
from headway.storage import MemoryBackend, Within


def measure(size: int, rounds: int) -> Row:
    """Prime from a store of ``size`` resources."""
    app, type = one_type()
    store = MemoryBackend(max_changes=1)
    trio.run(filled, store, type, size)
    ours, against = interleaved(
        collected(lambda: trio.run(primed_after, store, app)),
        collected(lambda: trio.run(_read, store, type, size)),
        rounds,
    )
    return Row("memory_prime", ours / size * 1e6, against / size * 1e6, "us", 6.5)


async def _read(store: MemoryBackend, type: ResourceType[Note], size: int) -> float:
    begin = time.perf_counter()
    found, _ = await store.list(type.kind, Within())
    assert len({resource_key(each): each for each in found}) == size
    return time.perf_counter() - begin


# A program's first opening also imports some modules, which at 30,000 would cost as much as the priming.
SCENARIO = Scenario("memory_prime", 6.5, measure, size=100_000, rounds=3, quick=100_000)
