"""The workers of several processes in one Trio run, on one store, over wires that can be cut, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock

import headway
from headway import field
from headway.client import Client, LeaseClient
from headway.engine import combine_apps
from headway.rpc import Channel, InProcessChannel, Metadata
from headway.service import LeaseService, ResourceService, StoreService
from headway.testing import ScriptedChannel
from headway.testing.simulation.world import _wire as wire
from tests.helpers.truth import RecordingBackend

TTL = 15.0


@headway.message
class Job:
    text: str = field(1)


@headway.message
class Copy:
    text: str = field(1)
    by: str = field(2)


class Wire(wire.Wire):
    """A `Channel` from one process to the server."""

    knows_outcomes = False

    def __init__(self, inner: Channel) -> None:
        super().__init__()
        self._inner = inner
        # (when, method, request) of each request.
        self.asked: list[tuple[float, str, Any]] = []

    async def unary(
        self, path: str, request: object, reply_type: type[Any], *, metadata: Metadata | None = None
    ) -> Any:
        self.asked.append((trio.current_time(), path.rpartition("/")[2], request))
        return await self.through(lambda: self._inner.unary(path, request, reply_type, metadata=metadata))

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        self.asked.append((trio.current_time(), path.rpartition("/")[2], request))
        return wire.WireStream(self, self._inner.stream(path, request, metadata=metadata))

    def snapshots(self, since: float) -> list[str]:
        """Return the types whose snapshots were requested since then."""
        return [
            request.type.kind
            for when, method, request in self.asked
            if method == "WatchList" and when >= since and request.resume_after is None
        ]


Around = Callable[[str, headway.Runtime, headway.Request[Job]], Awaitable[headway.RequeueAfter | None]]


class Member:
    """A process: a copy of the program, its wire, and the record of its reconciles."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.events: list[object] = []
        self.script = ScriptedChannel()
        self.wire = Wire(self.script.over(cluster.channel))
        self.scope = trio.CancelScope()
        self.engine: headway.Engine
        self.ended = trio.Event()

    def status(self) -> headway.run.ControllerStatus:
        return self.engine.status()[0]

    def kill(self) -> None:
        """Cut the wire and end the member, as `kill -9` does. Nothing that it sends afterwards reaches the server."""
        self.wire.cut()
        self.scope.cancel()

    async def stop(self) -> None:
        """End the member in order."""
        self.scope.cancel()
        await self.ended.wait()

    def events_of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Cluster:
    """The store, the server's services, and the members, under the virtual time of a test's clock.

    Attributes:
        placement: the placement of the only controller, which copies each Job.
        reconciled: (when, member, job, term) of each reconcile's beginning.
        pause: seconds that a reconcile sleeps before it writes.
        options: further arguments for the declaration of a member's controller.
    """

    def __init__(self, clock: MockClock, placement: Any) -> None:
        self.clock = clock
        self.placement = placement
        self.options: Callable[[str], dict[str, Any]] = lambda _: {}
        self.store = RecordingBackend()
        app = self.app("server")
        self.registry, _ = combine_apps([app])
        self.channel = InProcessChannel(
            ResourceService(self.store, self.registry),
            LeaseService(self.store),
            StoreService(self.store, self.registry),
        )
        self.client = Client(self.channel, self.registry)
        self.leases = LeaseClient(self.channel)
        self.reconciled: list[tuple[float, str, str, int]] = []
        self.running: list[tuple[str, str]] = []
        self.broken: list[str] = []
        self.pause = 0.0
        self.around: Around | None = None
        self.members: dict[str, Member] = {}
        self._copied: tuple[int, dict[str, str]] = (-1, {})

    def app(self, member: str) -> headway.App:
        app = headway.App("staff")
        self.job = job = app.type("staff", "v1", "Job", Job)
        self.copy = copy = app.type("staff", "v1", "Copy", Copy)

        @app.controller(
            manages=job,
            watches=[headway.watch(copy, headway.mappers.same_name())],
            concurrency=4,
            placement=self.placement,
            name="copier",
            **self.options(member),
        )
        async def copier(rt: headway.Runtime, request: headway.Request[Job]) -> headway.RequeueAfter | None:
            name = request.id.name
            result: headway.RequeueAfter | None = None
            others = [other for other, key in self.running if key == name and other != member]
            if others and self.placement != "every_process":
                self.broken.append(f"{name} is with {others} and {member}")
            self.running.append((member, name))
            self.reconciled.append((trio.current_time(), member, name, rt.term))
            try:
                if self.around is not None:
                    result = await self.around(member, rt, request)
                await trio.sleep(self.pause)
                given, made = rt.cache.get(job, name), rt.cache.get(copy, name)
                if given is None:
                    if made is not None:
                        await rt.client.delete(made)
                elif made is None or made.data.text != given.data.text:
                    await rt.client.apply(copy.new(name, Copy(text=given.data.text, by=member)))
            finally:
                self.running.remove((member, name))
            return result

        return app

    async def run(self, name: str, nursery: trio.Nursery) -> Member:
        """Start a member, and return when it runs."""
        member = self.members[name] = Member(self, name)
        await nursery.start(self._run, member)
        return member

    async def _run(self, member: Member, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with member.scope:
                async with headway.open_workers(
                    member.wire,
                    self.app(member.name),
                    process=member.name,
                    report=member.events.append,
                    timing=headway.Timing(lease_ttl=TTL),
                ) as member.engine:
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            member.ended.set()

    @asynccontextmanager
    async def open(self, *names: str) -> AsyncIterator[trio.Nursery]:
        """Run these members. All end with the block."""
        async with trio.open_nursery() as nursery:
            for name in names:
                await self.run(name, nursery)
            yield nursery
            nursery.cancel_scope.cancel()
        assert self.broken == []

    async def write(self, name: str, text: str) -> None:
        await self.client.apply(self.job.new(name, Job(text=text)))

    async def copies(self) -> dict[str, str]:
        return {each.name: each.data.text for each in await self.client.list(self.copy)}

    async def until(self, condition: Callable[[], Awaitable[bool]] | Callable[[], bool], seconds: float) -> None:
        """Wait until the condition holds; fail after ``seconds``. In virtual time frequent polling costs nothing."""
        with trio.fail_after(seconds):
            while True:
                found: Any = condition()
                if not isinstance(found, bool):
                    found = await found
                if found:
                    return
                await trio.sleep(0.05)

    async def copied(self, **jobs: str) -> bool:
        # Cached because it is polled all the time and nothing else can change it.
        at = self.store.position.revision
        if self._copied[0] != at:
            self._copied = (at, await self.copies())
        return self._copied[1] == jobs

    def check_fences(self) -> None:
        """Check that no write under a fence's term follows a write of a later term of that fence (C8)."""
        highest: dict[tuple[str, str], tuple[int, int]] = {}
        for commit in self.store.commits:
            if commit.fence is not None:
                controller, member, term, number = commit.fence
                assert (term, number) >= highest.get((controller, member), (0, 0)), commit
                highest[controller, member] = (term, number)
