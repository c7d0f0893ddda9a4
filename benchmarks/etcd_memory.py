"""`etcd_memory`: what a resource takes in an engine that mirrors a store in etcd.

Measured: what Python allocates (tracemalloc: every block of Python's own allocators) from before a store in etcd is
opened until its 10,000 resources are there, for each. In it: the decoded messages with all that they hold, and the
mirror's tables. Out of it: history, of which an opening reads none that goes back before it, caches of controllers,
and what is made once in a process, by an opening that comes before.

Against: the same messages in a list, as `memory` builds them.

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
        trio.run(_mirrored, url, type, size)  # whatever is made once in a process is there after this
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
