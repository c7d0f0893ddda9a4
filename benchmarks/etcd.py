"""`etcd`: writes by 64 concurrent writers to a store in etcd.

Measured: ``await client.write(resource)`` in the process, for 6,400 creations by 64 tasks, on a real and durable etcd
member. The time includes everything that `write` includes, the transactions (concurrent writes share them), and the
watch, which delivers every change to the mirror at the same time.

Against: the floor, which is what a client must ask of etcd for the same guarantees, and nothing else. The same bytes
are put under the same keys by 64 writers, each of which waits for its own write before it begins the next. Waiting
writes share a transaction, and two transactions are in flight. A transaction compares each key and the anchor, and
puts each key and the head. A watch of the prefix delivers every change to this process, which decodes the events, but
not the resources in them. The client, its connection and its codec are the store's own.

`docs/decisions/storage.md` says why the watch is part of the floor. Each turn begins without garbage: a turn leaves a
closed engine with all its resources, and otherwise some later turn would pay for its collection.

The message has one metadata entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import time
import uuid

import trio

import headway
from benchmarks._etcd import etcd_member, new_url
from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._message import TEXT, Note, built, texts
from headway._gen.etcdserverpb import WatchCreateRequest
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import ResourceType
from headway.storage.etcd import EtcdClient, open_client
from headway.storage.etcd._address import etcd_address
from headway.storage.etcd.layout import Transaction, comparison, put

WRITERS = 64
UNDER_WAY = 2


def measure(size: int, rounds: int) -> Row:
    """Create ``size`` resources."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    with etcd_member() as endpoint:
        ours, against = interleaved(
            collected(lambda: trio.run(_written, app, type, endpoint, size)),
            collected(lambda: trio.run(_put, type, endpoint, size)),
            rounds,
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
    prefix = f"/bench/{uuid.uuid4().hex}/"
    head, anchor = f"{prefix}head".encode(), f"{prefix}anchor".encode()
    given = [texts(number) for number in range(size)]
    under = f"{prefix}resource/bench/Managed/default/default/"
    puts = [(f"{under}{text.name}".encode(), encode(built(type, text, value))) for text in given]
    waiting: list[tuple[bytes, bytes, trio.Event]] = []
    more = trio.Event()
    async with open_client(etcd_address(new_url(endpoint)), None) as client:

        async def commit() -> None:
            while True:
                while not waiting:
                    await more.wait()
                batch = waiting[:WRITERS]
                del waiting[:WRITERS]
                request = Transaction(
                    compare=[*(comparison(key, 0) for key, _, _ in batch), comparison(anchor, 0)],
                    success=[*(put(key, value) for key, value, _ in batch), put(head, b"head")],
                )
                reply = await client.write(request)
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

        async with trio.open_nursery() as nursery:
            delivered = await nursery.start(_followed, client, prefix, size)
            for _ in range(UNDER_WAY):
                nursery.start_soon(commit)
            begin = time.perf_counter()
            async with trio.open_nursery() as writing:
                for writer in range(WRITERS):
                    writing.start_soon(write, writer)
            seconds = time.perf_counter() - begin
            # Otherwise a watch that delivers nothing would make the floor too low.
            await delivered.wait()
            nursery.cancel_scope.cancel()
        return seconds


async def _followed(
    client: EtcdClient, prefix: str, size: int, *, task_status: trio.TaskStatus[trio.Event] = trio.TASK_STATUS_IGNORED
) -> None:
    """Follow the prefix, and set the event when ``size`` new keys have been delivered."""
    begin, delivered, new = prefix.encode(), trio.Event(), 0
    request = WatchCreateRequest(key=begin, range_end=begin[:-1] + bytes((begin[-1] + 1,)), fragment=True)
    async with client.watch(request) as stream:
        async for responses in stream:
            for response in responses:
                if response.created:
                    task_status.started(delivered)
                new += sum(event.kv is not None and event.kv.version == 1 for event in response.events)
            # The head is a new key once.
            if new > size:
                delivered.set()


SCENARIO = Scenario("etcd", 1.3, measure, size=6400, rounds=5)
