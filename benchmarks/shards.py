"""``python -m benchmarks.shards [--reconciles 600] [--ms 0]``: the gain of a second process for a sharded controller.

A controller with 16 shards reconciles each of some creations once: it computes for ``--ms`` milliseconds and writes a
status. It runs on a real etcd with one durable member, in four ways: in one and in two engines on the store, and in one
and in two workers of a single server. 32 writers in one more process create the resources over the network.

Each line has the reconciles a second, and the milliseconds of processor time for each reconcile in every process. On a
machine with enough cores, the process with the highest figure is the limit; with fewer, it is their sum.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from typing import Any

import trio

import headway
from benchmarks._etcd import etcd_member, new_url
from benchmarks._harness import load
from benchmarks._message import Note, note, texts
from benchmarks._scale_process import lines
from benchmarks.scale import Process, cpu_of, etcd_pid, process
from headway.events import ignore
from headway.resource import pb

SHARDS = 16
WRITERS = 32
_MODULE = "benchmarks.shards"
_READY = pb.Condition(type="Ready", state=pb.ConditionState.TRUE)

app = headway.App("bench")
NOTE = app.type("bench", "v1", "Note", Note)


def declare(milliseconds: float) -> list[str]:
    """Declare the controller, and return the list of the names that it has reconciled."""
    done: list[str] = []

    @app.controller(manages=NOTE, placement=headway.sharded(shards=SHARDS), concurrency=8, name="notes")
    async def notes(rt: headway.Runtime, request: headway.Request[Note]) -> None:
        found = rt.resource(request)
        if found is None or "notes" in found.status:
            return
        end = time.thread_time() + milliseconds / 1e3
        while time.thread_time() < end:
            pass
        await rt.client.write_status(found, "notes", [_READY])
        done.append(found.name)

    return done


async def run(kind: str, where: str, name: str, milliseconds: float) -> None:
    """Run one process, and answer lines: ``shards`` with their number, ``done`` with that of its reconciles."""
    done = [] if kind == "server" else declare(milliseconds)
    opened: Any
    if kind == "worker":
        opened = headway.open_workers(where, app, report=ignore, process=name)
    else:
        opened = headway.open_engine(
            where, app, report=ignore, process=name, network=headway.Network(["127.0.0.1:0"], insecure=True)
        )
    async with opened as engine:
        print("ready" if kind == "worker" else engine.addresses[0], flush=True)
        async for (word,) in lines():
            shards = engine.controllers["notes"].status().shards if word == "shards" else None
            print(len(shards or ()) if word == "shards" else len(done), flush=True)


async def create(address: str, count: int) -> None:
    """Create the resources."""
    async with headway.connect(address, app) as client, trio.open_nursery() as nursery:

        async def write(first: int) -> None:
            for number in range(first, count, WRITERS):
                await client.write(NOTE.new(texts(number).name, note(number)))

        for writer in range(WRITERS):
            nursery.start_soon(write, writer)


def measured(endpoint: str, kind: str, number: int, count: int, milliseconds: float) -> str:
    """Return the line of one way."""
    url, name = new_url(endpoint), "a server with workers" if kind == "worker" else "engines on etcd"
    with ExitStack() as stack:

        def start(*arguments: str) -> Process:
            return stack.enter_context(process(*arguments, module=_MODULE))

        servers = [start("server", url, "serving", "0")] if kind == "worker" else []
        where = servers[0].first if servers else url
        running = [start(kind, where, f"{kind}-{each}", str(milliseconds)) for each in range(number)]
        address = (servers or running)[0].first
        while sum(shares := [int(each.ask("shards")) for each in running]) < SHARDS or not all(shares):
            time.sleep(0.2)
        processes, etcd = [*running, *servers], etcd_pid(endpoint)
        before, began = [each.cpu() for each in processes] + [cpu_of(etcd)], time.perf_counter()
        trio.run(create, address, count)
        while sum(int(each.ask("done")) for each in running) < count:
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        after = [each.cpu() for each in processes] + [cpu_of(etcd)]
        each = [(end - begin) / count * 1e3 for begin, end in zip(before, after, strict=True)]
        names = [f"{kind} {at + 1}" for at in range(number)] + ["server"] * len(servers) + ["etcd"]
        parts = ", ".join(f"{who} {cost:.2f}" for who, cost in zip(names, each, strict=True))
        return f"{name}, {number}: {count / seconds:.0f}/s; ms of processor time: {parts}; sum {sum(each):.2f}"


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reconciles", type=int, default=600)
    parser.add_argument("--ms", type=float, default=0.0, help="milliseconds that each reconcile computes")
    given = parser.parse_args()
    print(f"load before: {load()}")
    with etcd_member() as endpoint:
        for kind in ("engine", "worker"):
            for number in (1, 2):
                print(measured(endpoint, kind, number, given.reconciles, given.ms), flush=True)
    print(f"load after: {load()}")


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] in ("engine", "worker", "server"):
        trio.run(run, sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        main()
