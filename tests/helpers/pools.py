"""An app in which each pool has a summary that lists the members that refer to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import trio

import headway
from headway import field
from headway.cache import CacheReader, range_of
from headway.errors import Closed
from headway.resource import Kind, ResourceType, ScopedType, resource_key, unseen
from tests.helpers.truth import Commit

TOLD = ("first", "second")
"""The statuses that a reconcile writes on its pool."""


@headway.message(name="tests.Pool")
class Pool:
    note: str = field(1)


@headway.message(name="test.v1.Member")
class Member:
    pool: str = field(1)


@headway.message(name="test.v1.Summary")
class Summary:
    members: list[str] = field(1)


Around = Callable[[headway.Runtime, headway.Request], AbstractContextManager[None]]
Reconciler = Callable[[headway.Runtime, headway.Request], Awaitable[headway.RequeueAfter | None]]
Concerned = Iterable[headway.ResourceId | headway.Resource[Any] | headway.Projected[Any]]


def _nothing_around(*_: object) -> AbstractContextManager[None]:
    return nullcontext()


def _ignore_mapping(*_: object) -> None:
    pass


class SourceFailed(Exception):
    """The exception that the source of a `PoolsApp` raises on request."""


class PoolsApp:
    """An app of one controller with a managed type, two watched types, an index and a source.

    Attributes:
        around: returns a context manager that is entered around each reconcile.
        on_mapping: is called with the arguments of each mapper call.
        pause: seconds that each reconcile sleeps before it reads anything.
        pauses: the same for single pools, by name, in place of ``pause``.
        final_pause: seconds that each reconcile sleeps after its last write.
        failures: by pool, the exceptions that its next reconciles raise before they read anything.
        mapping_failures: the exceptions that the next calls of the mapper of members raise.
        stray: what the mapper of members returns in addition.
        requeues: by pool, the seconds after which each of its reconciles asks for another one.
        told: the number that each reconcile writes into two statuses of its pool at once; 0 for none.
        stated: the pool and the version of each status that a reconcile had acknowledged before it ended normally.
        at_start: the pools that the source enqueues when it begins.
        linger: seconds that each reconcile takes to end when it is canceled.
        blind: True if a summary is written over whatever the server has, even if the cache does not have it yet.
        applying: further arguments of each apply.
        runtime: the reconcile context of the last run that began.
        ranges: by kind, the part of each type that the controller has.

    Args:
        scoped: True if the controller has only a scope of each type. Its own writes move summaries out of theirs.
    """

    controller = "pools"

    def __init__(self, *, concurrency: int = 2, deadline: float = 20.0, scoped: bool = False) -> None:
        self.app = headway.App("test")
        self.pool = self.declare("Pool", Pool)
        self.member = self.declare("Member", Member)
        self.summary = self.declare("Summary", Summary)
        self.by_pool = headway.indexes.by(self.member, "pool", lambda member: member.data.pool)
        # The types that the controller manages or watches now.
        self.types: tuple[headway.ResourceType[Any], ...] = (self.pool, self.member, self.summary)
        # The kinds of those that it has not watched from the beginning.
        self.added: set[Kind] = set()
        self.scoped = scoped
        self.cached: tuple[ResourceType[Any] | ScopedType[Any], ...] = self.types
        if scoped:
            self.cached = (
                self.pool.within(partition="default", namespace="default"),
                self.member.within(metadata="counts=yes"),
                self.summary.within(metadata="shown=yes"),
            )
        self.ranges = {type.kind: range_of(type) for type in self.cached}
        self.concurrency = concurrency
        self._deadline = deadline
        self.around: Around = _nothing_around
        self.on_mapping: Callable[[headway.Resource[Any], CacheReader], None] = _ignore_mapping
        self.pause = self.final_pause = self.linger = 0.0
        self.pauses: dict[str, float] = {}
        self.failures: dict[str, Iterator[Exception]] = {}
        self.mapping_failures: Iterator[Exception] = iter(())
        self.stray: list[Any] = []
        self.requeues: dict[str, float] = {}
        self.told = 0
        self.stated: set[tuple[str, int]] = set()
        self.blind = False
        self.applying: dict[str, Any] = {}
        self.runtime: headway.Runtime | None = None
        self.at_start: list[str] = []
        self._enqueue: Callable[[headway.ResourceId], None]
        self._failing = trio.Event()
        self.replace(self.reconcile)

    def declare(self, kind: str, payload: type[Any]) -> ResourceType[Any]:
        """Declare a type of the app. A subclass may have its resources elsewhere than in a store of Headway."""
        return self.app.type("test", "v1", kind, payload)

    def replace(
        self, reconcile: Reconciler, initialiser: Callable[[headway.Runtime], Awaitable[None]] | None = None
    ) -> None:
        """Replace the reconciler. The mappers and the source stay."""
        self.app.controllers.clear()
        self.app.controller(
            manages=self.cached[0],
            watches=[headway.watch(self.cached[1], self._map_member), headway.watch(self.cached[2], self._map_summary)],
            indexes=[self.by_pool],
            sources={"trouble": self._source},
            initialiser=initialiser,
            on_start=self.on_start,
            concurrency=self.concurrency,
            deadline=self._deadline,
            backoff=headway.Backoff(0.01, 5.0),
            name=self.controller,
        )(reconcile)

    def on_start(self, rt: headway.Runtime) -> None:
        """Do nothing when a run is primed. A subclass may do more, here and in the next two methods."""

    async def prepare(self, rt: headway.Runtime) -> None:
        """Do nothing before a reconcile."""

    def further_members(self, rt: headway.Runtime, pool: str) -> list[str]:  # noqa: ARG002  # for subclasses
        """Return further entries for the summary of a pool."""
        return []

    def concerned(self, kind: Kind, message: Any) -> set[str]:
        """Return the names of the pools that a state of a resource concerns."""
        if kind == self.pool.kind:
            return {resource_key(message)[2]}
        if kind == self.member.kind:
            return {self.member.view(message).data.pool} - {""}
        owner = self.summary.view(message).owner
        return set() if owner is None else {owner.name}

    def _map_member(self, member: headway.Resource[Member], cache: CacheReader) -> Concerned:
        self.on_mapping(member, cache)
        if (failure := next(self.mapping_failures, None)) is not None:
            raise failure
        return [*([self.pool.id(member.data.pool)] if member.data.pool else []), *self.stray]

    def _map_summary(self, summary: headway.Resource[Summary], cache: CacheReader) -> Concerned:
        self.on_mapping(summary, cache)
        return headway.mappers.owner()(summary, cache)

    def fail_source(self) -> None:
        """Make the source raise, which ends the run."""
        self._failing.set()

    def enqueue(self, name: str) -> None:
        """Enqueue a pool without a change. Between two runs this has no effect: the next run reconciles every pool."""
        with suppress(Closed):
            self._enqueue(self.pool.id(name))

    async def _source(self, rt: headway.Runtime, enqueue: Callable[[headway.ResourceId], None]) -> None:
        self.runtime, self._enqueue = rt, enqueue
        for name in self.at_start:
            self.enqueue(name)
        await self._failing.wait()
        self._failing = trio.Event()
        raise SourceFailed

    async def reconcile(self, rt: headway.Runtime, request: headway.Request) -> headway.RequeueAfter | None:
        """Give a pool its summary, and do what the attributes ask for."""
        name = request.id.name
        with self.around(rt, request):
            try:
                if pause := self.pauses.get(name, self.pause):
                    await trio.sleep(pause)
                if (failure := next(self.failures.get(name, iter(())), None)) is not None:
                    raise failure
                await self.prepare(rt)
                with unseen():
                    self._scribble(rt.cache)
                await self._converge(rt, request.id)
                versions = await self._tell(rt, request.id)
                if self.final_pause:
                    await trio.sleep(self.final_pause)
                self.stated |= {(name, version) for version in versions}
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.linger)
                raise
        return headway.requeue_after(self.requeues[name]) if name in self.requeues else None

    def _scribble(self, cache: CacheReader) -> None:
        """Change everything that reads of the cache return. Nobody else may see that (C9)."""
        pools, members, summaries = cache.list(self.pool), cache.list(self.member), cache.list(self.summary)
        for pool in pools:
            pool.data.note += "scribbled"
        for member in members:
            member.data.pool += "scribbled"
        for summary in summaries:
            summary.data.members.append("scribbled")
        read: list[headway.Resource[Any]] = [*pools, *members, *summaries]
        for each in read:
            each.metadata["scribbled"] = "yes"
            for status in each.status.values():
                status.conditions.clear()

    async def _tell(self, rt: headway.Runtime, id: headway.ResourceId) -> list[int]:
        """Write both statuses, and return the versions of the replies."""
        pool, versions = rt.cache.get(self.pool, id), list[int]()
        if not self.told or pool is None:
            return versions
        conditions = [headway.Condition(type="Told", message=str(self.told))]

        async def write(key: str, delay: float) -> None:
            await trio.sleep(delay)
            written = await rt.client.write_status(pool, key, conditions)
            with unseen():
                versions.append(int(written.version))

        first, second = TOLD
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, first, 0.0)
            # The first one has been sent by then. Its reply may come later than that of the second one.
            nursery.start_soon(write, second, 0.01)
        return versions

    def states_alone(self, commit: Commit) -> bool:
        """Return True if all of a commit is a status of a pool that the pool's own reconcile has written."""
        if commit.kind != self.pool.kind or (commit.key[2], commit.revision) not in self.stated:
            return False
        old, new = commit.old, commit.new
        if old is None or new is None or old.generation != new.generation:
            return False
        return {key for key in new.status if new.status[key] != old.status.get(key)} <= set(TOLD)

    async def _converge(self, rt: headway.Runtime, id: headway.ResourceId) -> None:
        pool, summary = rt.cache.get(self.pool, id), rt.cache.get(self.summary, id.name)
        if summary is None and self.scoped:
            # It may be outside of the scope.
            summary = await rt.strong.get(self.summary, id.name)
        owner = None if summary is None or summary.owner is None else summary.owner.uid
        if summary is not None and (pool is None or owner != pool.uid):
            await rt.client.delete(summary, version=summary.version)
        if pool is None:
            return
        members = [member.name for member in rt.cache.index(self.by_pool, id.name)]
        members += self.further_members(rt, id.name)
        metadata = {"shown": "yes" if len(members) % 2 else "no"} if self.scoped else {}
        if self.blind and members:
            whole = self.summary.new(id.name, Summary(members=members), owner=pool, metadata=metadata)
            await rt.client.apply(whole, **self.applying)
            return
        if summary is not None and not members and self.scoped:
            await rt.client.delete(summary, version=summary.version)
        async with rt.outputs(self.summary, owner=pool) as wanted:
            if members:
                await wanted.apply(id.name, Summary(members=members), metadata=metadata, **self.applying)
