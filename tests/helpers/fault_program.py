"""An engine process of the fault tests: `python -m tests.helpers.fault_program STORE PROCESS WHO FACTS SEED`.

It writes jobs, runs its share of two controllers that copy them, and watches everything. It appends what it sees to a
file, as facts of a history. It reads commands from standard input: `stop-writing`, `wait-idle`, a revision up to which
to watch, and `end`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import trio

import headway
from headway import events, field, testing
from headway.client import Client
from headway.engine import combine_apps
from headway.resource import Key, Position
from headway.rpc import InProcessChannel
from headway.service import LeaseService, ResourceService, StoreService
from headway.storage import Backend, open_store
from headway.testing import CacheSeen, DeletionsMissed, Fact, ReconcileDone, RecordingChannel, TermHeld, fact_line

TTL = 2.0
NAMES = [f"job-{number}" for number in range(32)]
PATIENCE = 5.0
WRITERS = 4
SHARDS = 4
Record = Callable[[Fact], object]


@headway.message
class Job:
    text: str = field(1)


@headway.message(name="tests.Copy")
class Copy:
    text: str = field(1)


Types = tuple[headway.ResourceType[Job], headway.ResourceType[Copy], headway.ResourceType[Copy]]


def types_of(app: headway.App) -> Types:
    """Return the types of jobs, copies and stamps.

    One process makes and deletes the copies. Every process makes the stamps of its shards; the reaper deletes them.
    """
    job, copy = app.type("staff", "v1", "Job", Job), app.type("staff", "v1", "Copy", Copy)
    return job, copy, app.type("staff", "v1", "Stamp", Copy)


def app_of(who: str, record: Record) -> tuple[headway.App, Types]:
    """Return the app, whose reconciles record what they see, and its types."""
    app = headway.App("staff")
    job, copy, stamp = types_of(app)

    def controller(name: str, made: headway.ResourceType[Copy], placement: Any) -> None:
        @app.controller(
            manages=job,
            watches=[headway.watch(made, headway.mappers.same_name())],
            concurrency=4,
            placement=placement,
            name=name,
        )
        async def copies(rt: headway.Runtime, request: headway.Request[Job]) -> None:
            began = time.monotonic()
            types: tuple[headway.ResourceType[Any], ...] = (job, made)
            seen = tuple((type.kind, rt.cache.revision(type)) for type in types)
            for type in types:
                held = tuple((each.id.key, int(each.version)) for each in rt.cache.list(type))
                record(CacheSeen(f"{who} {name}", type.kind, rt.cache.revision(type), held))
            given, there = rt.resource(request), rt.cache.get(made, request.id.name)
            owner = given if made is stamp else None
            if there is not None and (given is None if owner is None else not _owns(owner, there)):
                # This stamp belongs to an earlier job with this name. Without a job, the reaper deletes it.
                if made is copy or given is not None:
                    await rt.client.delete(there)
            elif given is not None and (there is None or there.data.text != given.data.text):
                await rt.apply(made.new(request.id.name, Copy(text=given.data.text), owner=owner))
            record(ReconcileDone(who, f"staff/{name}", request.id.key, began, seen))

    controller("copier", copy, "singleton")
    controller("stamper", stamp, headway.sharded(shards=SHARDS))
    return app, (job, copy, stamp)


def _owns(owner: headway.Resource[Any], owned: headway.Resource[Any]) -> bool:
    return owned.owner is not None and owned.owner.uid == owner.uid


def same(key: Key) -> list[Key]:
    return [key]


def owes() -> dict[str, Any]:
    """Return the keys that the two controllers have to reconcile because of each change, for `History.check`."""
    job, copy, stamp = types_of(headway.App("staff"))
    return {"staff/copier": {job.kind: same, copy.kind: same}, "staff/stamper": {job.kind: same, stamp.kind: same}}


class Writer:
    """Writes, deletes and reads jobs, and ignores failures."""

    def __init__(self, client: headway.Client, job: headway.ResourceType[Job], who: str, seed: int) -> None:
        self.stopping = False
        self.stopped = trio.Event()
        self._client = client
        self._job = job
        self._who = who
        self._random = random.Random(seed)

    async def work(self) -> None:
        """Run until `stopping` is set."""
        number = 0
        while not self.stopping:
            number += 1
            await trio.sleep(self._random.uniform(0.01, 0.1))
            try:
                with trio.move_on_after(PATIENCE):
                    await self._once(number)
            except headway.HeadwayError:
                # The channel has recorded whether it was rejected or its outcome is unknown.
                await trio.sleep(0.05)
        self.stopped.set()

    async def _once(self, number: int) -> None:
        name, dice = self._random.choice(NAMES), self._random.random()
        if dice < 0.15:
            await self._client.delete(self._job.id(name))
        elif dice < 0.3:
            await self._client.get(self._job, name)
        else:
            await self._client.apply(self._job.new(name, Job(text=f"{self._who} {number}")))


class Watcher:
    """A watcher of all types. Each of its watches resumes where the one before ended."""

    def __init__(
        self, client: headway.Client, nursery: trio.Nursery, types: tuple[headway.ResourceType[Any], ...]
    ) -> None:
        self._client = client
        self._reached = dict.fromkeys(types, 0)
        for type in types:
            nursery.start_soon(self._watch, type)

    async def _watch(self, type: headway.ResourceType[Any]) -> None:
        at: Position | None = None
        while True:
            try:
                async with self._client.watch(type, resume_after=at, progress_interval=0.2) as events_of_type:
                    async for event in events_of_type:
                        if isinstance(event, headway.client.Upserted | headway.client.Deleted):
                            self._reached[type] = max(self._reached[type], event.revision)
                        else:
                            at = event.position
                            self._reached[type] = max(self._reached[type], at.revision)
            except headway.errors.HistoryCompacted:
                at = None
            except headway.HeadwayError:
                await trio.sleep(0.1)

    async def reached(self, revision: int) -> None:
        """Wait until everything up to a revision has been delivered."""
        with trio.fail_after(60):
            while True:
                if min(self._reached.values()) >= revision:
                    return
                await trio.sleep(0.05)


@asynccontextmanager
async def recorded(
    store: str, app: headway.App, who: str, record: Record
) -> AsyncIterator[tuple[Backend, headway.Client]]:
    """Open a store, and yield it with a client whose calls and watches are recorded."""
    registry, _ = combine_apps([app])
    async with open_store(store) as backend:
        services = InProcessChannel(
            ResourceService(backend, registry), LeaseService(backend), StoreService(backend, registry)
        )
        yield backend, Client(RecordingChannel(f"{who} client", record).over(services), registry)


def share_of(engine: headway.Engine) -> dict[str, Any]:
    """Return the part of the controllers that this process runs."""
    copier, stamper = (engine.controllers[name].status() for name in ("copier", "stamper"))
    shards = stamper.shards if stamper.phase == "running" else ()
    return {"copier": copier.phase == "running", "shards": shards, "restarts": [copier.restarts, stamper.restarts]}


async def main(store: str, process: str, who: str, path: str, seed: int) -> None:
    """Run until the command `end`."""
    facts = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def record(fact: Fact) -> None:
        # Written at once, because the process may be killed at any time.
        os.write(facts, (fact_line(fact) + "\n").encode())

    def report(event: object) -> None:
        if isinstance(event, events.LeaseTaken):
            record(TermHeld(who, event.name, event.term))
        elif isinstance(event, events.DeletionsUnknown):
            print(event, file=sys.stderr, flush=True)
            # An engine that reports has an open store.
            upto = backend.position.revision
            record(DeletionsMissed(who, event.controller, event.type.unversioned, event.settled, upto))
        elif isinstance(event, events.RunEnded | events.StaleRefused | events.ShutdownBlocked):
            print(event, file=sys.stderr, flush=True)

    app, types = app_of(who, record)
    async with (
        recorded(store, app, who, record) as (backend, client),
        testing.open_engine(
            nullcontext(backend),
            app,
            process=process,
            timing=headway.Timing(lease_ttl=TTL),
            report=report,
            wrap_channel=RecordingChannel(who, record).over,
        ) as engine,
        trio.open_nursery() as nursery,
    ):
        watcher = Watcher(client, nursery, types)
        writers = [Writer(client, types[0], f"{who}.{number}", seed + number) for number in range(WRITERS)]
        for writer in writers:
            nursery.start_soon(writer.work)
        print("ready", flush=True)
        async for line in trio.lowlevel.FdStream(os.dup(0)):
            for word in line.decode().split():
                if word == "stop-writing":
                    for writer in writers:
                        writer.stopping = True
                    for writer in writers:
                        await writer.stopped.wait()
                    print("stopped", flush=True)
                elif word == "wait-idle":
                    await engine.wait_idle()
                    print("idle", json.dumps(share_of(engine)), flush=True)
                elif word.isdigit():
                    await watcher.reached(int(word))
                    print("reached", word, flush=True)
                else:
                    nursery.cancel_scope.cancel()
                    return


if __name__ == "__main__":
    _, url, name, life, file, number = sys.argv
    trio.run(main, url, name, life, file, int(number))
