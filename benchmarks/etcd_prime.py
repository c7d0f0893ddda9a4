"""`etcd_prime`: priming a controller from a store in etcd with 100,000 resources.

Measured: the wall time per resource from opening an engine on the store to the `RunStarted` report of a controller of
the one type, which has an index of 10 groups. The time includes finding the store, beginning a session, reading
everything in pages at one revision and decoding it, the controller's lease and fence, and the other steps that `prime`
describes.

Against: reading the same keys in pages of the same size by bare Range calls, over a channel of the same kind, and
decoding each value into the same message.

The message has one metadata entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import time

import trio

from benchmarks._etcd import etcd_member, new_url
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import Note
from benchmarks._primed import filled, one_type, primed_after
from headway._gen.etcdserverpb import RangeRequest, RangeResponse
from headway.protobuf import decode
from headway.resource import ResourceType, pb
from headway.rpc import open_channel
from headway.storage import EtcdBackend
from headway.storage.etcd._client import LIMITS, RANGE
from headway.storage.etcd._snapshot import PAGE


def measure(size: int, rounds: int) -> Row:
    """Prime from a store of ``size`` resources."""
    app, type = one_type()
    with etcd_member() as endpoint:
        url = new_url(endpoint)
        trio.run(_filled, url, type, size)
        ours, against = interleaved(
            lambda: trio.run(primed_after, url, app), lambda: trio.run(_read, url, endpoint, size), rounds
        )
    return Row("etcd_prime", ours / size * 1e6, against / size * 1e6, "us", None)


async def _filled(url: str, type: ResourceType[Note], size: int) -> None:
    async with EtcdBackend(url) as store:
        await filled(store, type, size)


async def _read(url: str, endpoint: str, size: int) -> float:
    prefix = f"/{url.partition('//')[2].partition('/')[2].partition('?')[0]}/resource/bench/".encode()
    begin = time.perf_counter()
    found: list[pb.Resource] = []
    after = prefix
    async with open_channel(endpoint, limits=LIMITS) as channel:
        while len(found) < size:
            request = RangeRequest(key=after, range_end=prefix[:-1] + b"0", limit=PAGE)
            reply = await channel.unary(RANGE, request, RangeResponse)
            found += [decode(pb.Resource, kv.value) for kv in reply.kvs]
            after = reply.kvs[-1].key + b"\0"
        return time.perf_counter() - begin


SCENARIO = Scenario("etcd_prime", None, measure, size=100_000, rounds=2)
