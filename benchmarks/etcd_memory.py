"""`etcd_memory`: the memory per resource in an engine that mirrors a store in etcd.

Measured: the bytes per resource that Python allocates (by tracemalloc, so all of Python's own allocators) from before a
store with 10,000 resources in etcd is opened until all of them are loaded. They include the decoded messages with
everything they reference, and the mirror's tables. They exclude history (an opening reads no earlier history), the
caches of controllers, and whatever the process allocates once, because another store has been opened before.

Against: the same messages in a list, built as in `memory`.

The unit is bytes. The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import gc
import tracemalloc

import trio

from benchmarks._etcd import etcd_member, new_url
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note
from benchmarks._primed import filled, one_type
from benchmarks.memory import built_bytes
from headway.resource import ResourceType
from headway.storage import EtcdBackend, Within


def measure(size: int, rounds: int) -> Row:
    """Mirror a store of ``size`` resources."""
    _, type = one_type()
    with etcd_member() as endpoint:
        url = new_url(endpoint)
        trio.run(_filled, url, type, size)
        trio.run(_mirrored, url, type, size)  # allocates whatever a process allocates once
        ours, against = interleaved(
            lambda: trio.run(_mirrored, url, type, size), lambda: built_bytes(type, size), rounds
        )
    return Row("etcd_memory", ours / size, against / size, "bytes", None)


async def _filled(url: str, type: ResourceType[Note], size: int) -> None:
    async with EtcdBackend(url, max_changes=1) as store:
        await filled(store, type, size)


async def _mirrored(url: str, type: ResourceType[Note], size: int) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        async with EtcdBackend(url, max_changes=1) as store:
            assert len((await store.list(type.kind, Within()))[0]) == size
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


SCENARIO = Scenario("etcd_memory", None, measure, size=10_000, rounds=2)
