"""`etcd_prime`: opening a store in etcd with 100,000 resources, and a watch of it until its snapshot is there.

Measured: from opening the store to the end of a watch's snapshot: finding the store, beginning an incarnation, reading
all in pages at one revision, decoding it, and handing it out.

Against: reading the same keys in as large pages by bare Range calls, over a channel of the same kind, and decoding each
value into the same message.

The message has one metadata entry and 120 bytes of payload. No channel buffer plays a part.
"""

from __future__ import annotations

import time

import trio

from benchmarks._etcd import etcd_member, new_url
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, built, texts
from headway import App
from headway._gen.etcdserverpb import RangeRequest, RangeResponse
from headway.resource import EndOfSnapshot, ResourceType, decode, encode, pb, resource_key
from headway.rpc import open_channel
from headway.storage import EtcdBackend, Put, Within
from headway.storage._etcd._client import LIMITS
from headway.storage._etcd._snapshot import PAGE

AT_ONCE = 2000
"""Resources in one of the commits by which the store is filled."""


def measure(size: int, rounds: int) -> Row:
    """Read a store of ``size`` resources."""
    type = App("bench").type("bench", "v1", "Managed", Note)
    with etcd_member() as endpoint:
        url = new_url(endpoint)
        trio.run(_filled, url, type, size)
        ours, against = interleaved(
            lambda: trio.run(_primed, url, type), lambda: trio.run(_read, url, endpoint, size), rounds
        )
    return Row("etcd_prime", ours / size * 1e6, against / size * 1e6, "us", None)


async def _filled(url: str, type: ResourceType[Note], size: int) -> None:
    value = encode(Note(text=TEXT))
    async with EtcdBackend(url) as store:
        for begin in range(0, size, AT_ONCE):
            made = [built(type, texts(number), value) for number in range(begin, min(begin + AT_ONCE, size))]
            await store.commit([Put(type.kind, resource_key(each), each, "") for each in made])


async def _primed(url: str, type: ResourceType[Note]) -> float:
    begin = time.perf_counter()
    async with EtcdBackend(url) as store:
        watch = await store.watch(type.kind, Within())
        while not isinstance(await watch.next(), EndOfSnapshot):
            pass
        return time.perf_counter() - begin


async def _read(url: str, endpoint: str, size: int) -> float:
    prefix = f"/{url.partition('//')[2].partition('/')[2]}/resource/".encode()
    begin = time.perf_counter()
    found: list[pb.Resource] = []
    after = prefix
    async with open_channel(endpoint, limits=LIMITS) as channel:
        while len(found) < size:
            request = RangeRequest(key=after, range_end=prefix[:-1] + b"0", limit=PAGE)
            reply = await channel.unary("/etcdserverpb.KV/Range", request, RangeResponse)
            found += [decode(pb.Resource, kv.value) for kv in reply.kvs]
            after = reply.kvs[-1].key + b"\0"
        return time.perf_counter() - begin


SCENARIO = Scenario("etcd_prime", None, measure, size=100_000, rounds=3)
