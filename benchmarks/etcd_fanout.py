"""`etcd_fanout`: one commit, delivered to 1,000 watchers of one engine on etcd.

Measured: like `fanout`, but on a store in etcd: the wall time from a commit until the last of 1,000 watchers in the
process has received its event, over 50 commits, per commit. The time includes etcd's own commit to its disk, and its
watch. At the end, while all watchers are still watching, the scenario asserts that etcd serves a single watch, which
belongs to the engine's mirror.

Against: a bare Put of the same bytes, over a channel of the same kind, until the one watcher of a bare Watch has its
event, followed by 1,000 items through a bare Trio memory channel; per Put.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import http.client
import time
import uuid
from collections.abc import AsyncIterator

import trio

import headway
from benchmarks._etcd import etcd_member, new_url
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, built, texts
from benchmarks._primed import one_type
from benchmarks.fanout import COMMITS, delivered
from benchmarks.reconcile import through_channel
from headway._gen.etcdserverpb import PutRequest, PutResponse, WatchCreateRequest, WatchRequest, WatchResponse
from headway.protobuf import decode, encode
from headway.resource import ResourceType
from headway.rpc import open_channel
from headway.storage import EtcdBackend
from headway.storage.etcd._client import LIMITS, WATCH

PUT = "/etcdserverpb.KV/Put"
_METRICS = ("etcd_debugging_mvcc_watch_stream_total", "etcd_debugging_mvcc_watcher_total")


def measure(size: int, rounds: int) -> Row:
    """Deliver each of a number of commits to ``size`` watchers."""
    app, type = one_type()
    with etcd_member() as endpoint:
        ours, against = interleaved(
            lambda: trio.run(_delivered, endpoint, app, type, size),
            lambda: trio.run(_bare, endpoint, type) + trio.run(through_channel, size * COMMITS),
            rounds,
        )
    return Row("etcd_fanout", ours / COMMITS * 1e6, against / COMMITS * 1e6, "us", 1.3)


async def _delivered(endpoint: str, app: headway.App, type: ResourceType[Note], size: int) -> float:
    def one_watch() -> None:
        served = _watches(endpoint)
        assert served == [1, 1], f"etcd serves {served} streams and watches, expected one of each"

    async with EtcdBackend(new_url(endpoint)) as store:
        return await delivered(store, app, type, size, one_watch)


def _watches(endpoint: str) -> list[int]:
    """Return the numbers of watch streams and of watches that etcd serves, by its own metrics."""
    connection = http.client.HTTPConnection(endpoint, timeout=10)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    said = dict(line.rsplit(" ", 1) for line in lines if line.startswith(_METRICS))
    return [int(float(said[name])) for name in _METRICS]


async def _bare(endpoint: str, type: ResourceType[Note]) -> float:
    key, value = f"/bench/{uuid.uuid4().hex}".encode(), encode(built(type, texts(0), encode(Note(text=TEXT))))
    async with (
        open_channel(endpoint, limits=LIMITS, decoders={WATCH: lambda: _decoded}) as channel,
        channel.duplex(WATCH, WatchRequest(create_request=WatchCreateRequest(key=key))) as opened,
    ):
        stream = aiter(opened)
        assert (await anext(stream)).created
        begin = time.perf_counter()
        for _ in range(COMMITS):
            await channel.unary(PUT, PutRequest(key=key, value=value), PutResponse)
            await _heard(stream)
        return time.perf_counter() - begin


def _decoded(bodies: list[bytes]) -> list[WatchResponse]:
    return [decode(WatchResponse, body) for body in bodies]


async def _heard(stream: AsyncIterator[WatchResponse]) -> None:
    while not (await anext(stream)).events:
        pass


SCENARIO = Scenario("etcd_fanout", 1.3, measure, size=1_000, rounds=5)
