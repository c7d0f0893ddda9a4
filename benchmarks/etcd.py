"""`etcd`: writes by 64 concurrent writers to a store in etcd.

Measured: ``await client.write(resource)`` in the process, for 6,400 creations by 64 tasks, on a real and durable etcd
member. The time includes everything that `write` includes, the read of the store's position (concurrent calls share
it), the transactions (concurrent writes share them), and the watch, which delivers every change to the mirror at the
same time.

Against: the same keys and bytes, put by 64 writers. Each writer waits for its own write before it begins the next.
Waiting writes share a transaction, which requires that their keys do not exist. Two transactions are in flight to the
same member, over a channel of the same kind with the same limits and codec. A program that batches its writes by hand
does the same.

The message has one metadata entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import time
import uuid

import trio

import headway
from benchmarks._etcd import etcd_member, new_url
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, built, texts
from headway._gen.etcdserverpb import TxnRequest, TxnResponse
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import ResourceType
from headway.rpc import open_channel
from headway.storage.etcd._client import LIMITS
from headway.storage.etcd._transaction import putting, unchanged

WRITERS = 64
UNDER_WAY = 2
TXN = "/etcdserverpb.KV/Txn"


def measure(size: int, rounds: int) -> Row:
    """Create ``size`` resources."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    with etcd_member() as endpoint:
        ours, against = interleaved(
            lambda: trio.run(_written, app, type, endpoint, size), lambda: trio.run(_put, type, endpoint, size), rounds
        )
    return Row("etcd", ours / size * 1e6, against / size * 1e6, "us", 1.3)


async def _written(app: headway.App, type: ResourceType[Note], endpoint: str, size: int) -> float:
    given = [texts(number) for number in range(size)]
    new = [type.new(text.name, Note(text=TEXT), metadata={"group": text.group}) for text in given]
    async with headway.open_engine(new_url(endpoint), app, report=ignore) as engine:

        async def write(writer: int) -> None:
            for resource in new[writer::WRITERS]:
                await engine.client.write(resource)

        begin = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for writer in range(WRITERS):
                nursery.start_soon(write, writer)
        return time.perf_counter() - begin


async def _put(type: ResourceType[Note], endpoint: str, size: int) -> float:
    value = encode(Note(text=TEXT))
    prefix = f"/bench/{uuid.uuid4().hex}/resource/bench/Managed/default/default/"
    given = [texts(number) for number in range(size)]
    puts = [(f"{prefix}{text.name}".encode(), encode(built(type, text, value))) for text in given]
    waiting: list[tuple[bytes, bytes, trio.Event]] = []
    more = trio.Event()
    async with open_channel(endpoint, limits=LIMITS) as channel:

        async def commit() -> None:
            while True:
                while not waiting:
                    await more.wait()
                batch = waiting[:WRITERS]
                del waiting[:WRITERS]
                request = TxnRequest(
                    compare=[unchanged(key, 0) for key, _, _ in batch],
                    success=[putting(key, value) for key, value, _ in batch],
                )
                reply = await channel.unary(TXN, request, TxnResponse)
                assert reply.succeeded
                for _, _, stored in batch:
                    stored.set()

        async def write(writer: int) -> None:
            nonlocal more
            for key, value in puts[writer::WRITERS]:
                stored = trio.Event()
                waiting.append((key, value, stored))
                more.set()
                more = trio.Event()
                await stored.wait()

        async with trio.open_nursery() as committing:
            for _ in range(UNDER_WAY):
                committing.start_soon(commit)
            begin = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for writer in range(WRITERS):
                    nursery.start_soon(write, writer)
            seconds = time.perf_counter() - begin
            committing.cancel_scope.cancel()
        return seconds


SCENARIO = Scenario("etcd", 1.3, measure, size=6400, rounds=5)
