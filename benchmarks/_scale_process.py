"""The processes of `benchmarks.scale`: an engine that takes commands, and the watchers of it.

``python -m benchmarks._scale_process engine STORE CONTROLLER`` opens an engine, with a controller that writes a status
after each change if CONTROLLER is 1. It prints its address, and then an answer to each line of its standard input:

- ``fill NUMBER``: store this number of resources.
- ``write NUMBER RATE``: change this number of resources, one after the other, at most RATE each second.
- ``hot NUMBER RATE``: the same with the few resources of the other type.

``python -m benchmarks._scale_process watch ADDRESS NUMBER SCOPE`` opens NUMBER watches, prints ``ready`` when each has
its snapshot, and then answers each line with the number of events since, and of bytes on its connections. A watch is of
the whole other type, or of one group of the many resources if SCOPE is 1.
"""

from __future__ import annotations

import gc
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import trio

import headway
from benchmarks._message import Note, built, note, put, texts
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import pb
from headway.storage import EtcdBackend

GROUPS = 100
"""The number of groups of the many resources."""

HOT = 100
"""The number of resources of the other type."""

STREAMS = 50
"""The number of watches that share a connection."""

_AT_ONCE = 1_000
_READY = pb.Condition(type="Ready", state=pb.ConditionState.TRUE)

app = headway.App("bench")
MANY = app.type("bench", "v1", "Many", Note)
FEW = app.type("bench", "v1", "Few", Note)


async def lines() -> AsyncIterator[list[str]]:
    """Yield the words of each line of the standard input."""
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        yield line.split()


async def serve(store: str, *, controller: bool) -> None:
    """Run the engine until the input ends."""
    if controller:

        @app.controller(manages=MANY, concurrency=8, name="notes")
        async def notes(rt: headway.Runtime, request: headway.Request[Note]) -> None:
            found = rt.resource(request)
            if found is not None and "changed" in found.metadata:
                await rt.client.write_status(found, "notes", [_READY])

    backend = EtcdBackend(store)
    async with headway.open_engine(
        backend,
        app,
        report=ignore,
        network=headway.Network(["127.0.0.1:0"], insecure=True),
        process=f"engine-{os.getpid()}",
    ) as engine:
        await engine.wait_idle()
        print(engine.addresses[0], flush=True)
        stored = 0

        async def fill(type: headway.ResourceType[Note], count: int) -> None:
            for begin in range(0, count, _AT_ONCE):
                made = []
                for number in range(begin, min(begin + _AT_ONCE, count)):
                    resource = built(type, texts(number), encode(note(number)))
                    resource.metadata["group"] = f"group-{number % GROUPS}"
                    made.append(put(type, resource))
                await backend.commit(made)

        async for command, *given in lines():
            count, rate = int(given[0]), float((given[1:] or ["0"])[0])
            if command == "fill":
                await fill(MANY, count)
                await fill(FEW, HOT)
                stored = count
                gc.collect()
            else:
                type, among = (MANY, stored) if command == "write" else (FEW, HOT)
                begin = trio.current_time()
                for number in range(count):
                    if rate:
                        await trio.sleep_until(begin + number / rate)
                    at = number * 7_919 % among
                    metadata = {"group": f"group-{at % GROUPS}", "changed": str(number)}
                    await engine.client.write(type.new(texts(at).name, note(number), metadata=metadata))
            await engine.wait_idle()
            print("done", flush=True)


def received_bytes() -> int:
    """Return the bytes that all TCP connections of this process have received, by the kernel's count."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as opened:
                info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        except OSError:
            continue
        total += struct.unpack_from("Q", info, 128)[0]
    return total


async def watch(address: str, count: int, *, scoped: bool) -> None:
    """Watch until the input ends."""
    snapshots, events = 0, 0
    all_ready = trio.Event()

    async def one(client: headway.Client, number: int) -> None:
        nonlocal snapshots, events
        wanted = MANY.within(metadata=f"group=group-{number % GROUPS}") if scoped else FEW
        async with client.watch(wanted) as changes:
            async for change in changes:
                if isinstance(change, headway.client.SnapshotEnd):
                    snapshots += 1
                    if snapshots == count:
                        all_ready.set()
                events += isinstance(change, headway.client.Upserted)

    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        clients = [
            await stack.enter_async_context(headway.connect(address, app, timeout=300.0))
            for _ in range(-(-count // STREAMS))
        ]
        for number in range(count):
            nursery.start_soon(one, clients[number // STREAMS], number)
        await all_ready.wait()
        events, before = 0, received_bytes()
        print("ready", flush=True)
        async for _ in lines():
            print(events, received_bytes() - before, flush=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    if sys.argv[1] == "engine":
        trio.run(lambda: serve(sys.argv[2], controller=sys.argv[3] == "1"))
    else:
        trio.run(lambda: watch(sys.argv[2], int(sys.argv[3]), scoped=sys.argv[4] == "1"))
