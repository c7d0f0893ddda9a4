"""The subscribe service: several types and topics on one stream, each commit whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import trio

from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.api import Api, Call, Cardinality, Exhausted, method, stream
from headway.errors import HistoryCompacted, Unavailable
from headway.resource import Registry, SnapshotChunk
from headway.service import Context, Forms, current_position
from headway.storage import Backend
from headway.subscribing._admission import SubscribePermissions, Wanted, admit_subscription
from headway.subscribing._sources import StoreSource, TopicSource
from headway.subscription import (
    Commit,
    Commits,
    NewSnapshot,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionItem,
    SubscriptionPosition,
    Topic,
)

SUBSCRIBE = "/headway.subscribe.v1.SubscribeService/Subscribe"

MAX_STREAMS = 1000
"""The maximum number of open subscriptions of one caller."""

ENDING = "the engine is shutting down: subscribe again, with the last position"

Told = TypeVar("Told", Reached, SnapshotComplete)
Send = Callable[[SubscriptionItem], Awaitable[None]]


class OpenSubscriptions:
    """The open subscriptions of an engine, so that callers are bounded and an ending engine can end all of them."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()
        self._waits: set[trio.CancelScope] = set()
        self._ended = False

    def __len__(self) -> int:
        return self._open.total()

    @contextmanager
    def counted(self, caller: str | None) -> Iterator[None]:
        """Count a subscription of a caller during the block; None for code within the process, which has no bound."""
        name = caller or ""
        if self._ended:
            raise Unavailable(ENDING)
        if caller is not None and self._open[name] >= self._limit:
            raise Exhausted(f"you have {self._limit} open subscriptions: end one, or send several subjects in one")
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    @contextmanager
    def wait(self, deadline: float) -> Iterator[None]:
        """Leave the block at a deadline, and raise Unavailable if the engine ends."""
        if not self._ended:
            with trio.CancelScope(deadline=deadline) as scope:
                self._waits.add(scope)
                try:
                    yield
                finally:
                    self._waits.remove(scope)
        if self._ended:
            raise Unavailable(ENDING)

    def end(self) -> None:
        """End all subscriptions, and refuse new ones."""
        self._ended = True
        for scope in self._waits:
            scope.cancel()


class SubscribeService(Api, service="headway.subscribe.v1.SubscribeService"):
    """Subscriptions to several types and topics: Subscribe over a store and the topics of the engine's apps.

    Args:
        permissions: what the caller may do; without them, every caller may do everything.
        forms: how the resources of each type are stored and shown; shared by all services over a store.
        streams: the open subscriptions; shared by all services over a store. None creates a new one.
    """

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        topics: Mapping[str, Topic[Any]],
        permissions: SubscribePermissions | None = None,
        *,
        forms: Forms | None = None,
        streams: OpenSubscriptions | None = None,
    ) -> None:
        self._context = Context(backend, registry, permissions, forms=forms)
        self._topics = topics
        self._permissions = permissions
        self._streams = OpenSubscriptions() if streams is None else streams

    @method("Subscribe", subscribe_pb.SubscribeRequest, subscribe_pb.SubscribeResponse, Cardinality.UNARY_STREAM)
    @stream
    async def subscribe(
        self, _call: Call, request: subscribe_pb.SubscribeRequest
    ) -> AsyncGenerator[SubscriptionItem, None]:
        """Yield a snapshot, and then whole commits. An encoder turns them into messages."""
        permissions = self._permissions
        wanted = admit_subscription(self._context, self._topics, permissions, request)
        with ExitStack() as held:
            held.enter_context(self._streams.counted(None if permissions is None else permissions.caller))
            for topic, subjects in wanted.topics:
                held.enter_context(topic.subscribed(subjects))
            served = _Served(self._context, permissions, wanted, self._streams)
            held.callback(served.close)
            async with served.items() as items:
                async for item in items:
                    yield item


class _Served:
    """A subscription."""

    def __init__(
        self,
        context: Context,
        permissions: SubscribePermissions | None,
        wanted: Wanted,
        streams: OpenSubscriptions,
    ) -> None:
        self._backend = context.backend
        self._wanted = wanted
        self._streams = streams
        self._store = StoreSource(context, wanted.types) if wanted.types else None
        self._topics = [TopicSource(topic, subjects, permissions) for topic, subjects in wanted.topics]
        # The position that the caller knows, and the time when the caller gets the next position.
        self._told = SubscriptionPosition()
        self._due = -float("inf")

    @property
    def position(self) -> SubscriptionPosition:
        """The position of the subscriber, once everything that was taken from the sources is sent."""
        store = None if self._store is None else self._store.position
        return SubscriptionPosition(store, tuple(each.position for each in self._topics), self._wanted.selection)

    @stream
    async def items(self) -> AsyncGenerator[SubscriptionItem, None]:
        """Yield what is sent, until the caller ends it."""
        why = await self._resumed()
        if why is None:
            yield self._tell(Reached(self.position))
        live = why is None
        while True:
            if why:
                yield NewSnapshot(why)
            why = ""
            try:
                if not live:
                    self._begin_snapshot()
                    while (part := await self._next_part()) is not None:
                        yield part
                    live = True
                    yield self._tell(SnapshotComplete(self.position))
                while True:
                    yield await self._next()
            except HistoryCompacted as error:
                # The caller reads too slowly, or a topic was reset. It keeps what it has until the snapshot is whole.
                live, why = False, str(error)

    def close(self) -> None:
        """Close what is open. Idempotent."""
        if self._store is not None:
            self._store.close()

    async def _resumed(self) -> str | None:
        """Resume after the caller's position, and return None. Or return the reason why a snapshot is needed.

        The reason is empty if the caller expects one.
        """
        after = self._wanted.resume_after
        if after is None:
            return ""
        known = {each.topic: each for each in after.topics}
        try:
            if self._store is not None and after.store is not None:
                # First, because even a snapshot must not take the caller to another store, or back.
                await self._store.resume(after.store)
            if after.selection and after.selection != self._wanted.selection:
                return "the subjects, or your rights, have changed since resume_after"
            if self._store is not None and after.store is None:
                return "resume_after has no position in the store"
            for source in self._topics:
                if source.topic.name not in known:
                    return f"resume_after has no position in topic {source.topic.name}"
                source.resume(known[source.topic.name])
        except HistoryCompacted as error:
            await self._check_not_behind(after)
            return str(error)
        return None

    async def _check_not_behind(self, after: SubscriptionPosition) -> None:
        """Refuse a snapshot that would take the caller back, because this server lags behind another one."""
        if self._store is not None and after.store is not None:
            here = await current_position(self._backend)
            if here.store_id == after.store.store_id and here.revision < after.store.revision:
                raise Unavailable(
                    f"this server is at revision {here.revision}, below resume_after {after.store.revision}: retry"
                )

    def _begin_snapshot(self) -> None:
        self._ahead = list(self._topics)
        self._caught_up = self._store is None
        if self._store is not None:
            self._store.begin_snapshot()

    async def _next_part(self) -> SnapshotChunk | SnapshotPart | None:
        """Return the next part of the snapshot, or None at its end."""
        store = self._store
        if store is not None and not self._caught_up:
            found = await store.next_part()
            if found is not None:
                return found
            self._caught_up = True
            late = await store.catch_up()
            if late:
                return SnapshotPart([*late])
        while self._ahead:
            events = self._ahead.pop().snapshot()
            if events:
                return SnapshotPart([*events])
        return None

    async def _next(self) -> SubscriptionItem:
        """Wait for whole commits, or until it is time to send the caller its position."""
        while True:
            commits = self._taken()
            if commits:
                self._told = commits[-1].position
                return Commits(commits)
            here = self.position
            if here != self._told and trio.current_time() >= self._due:
                return self._tell(Reached(here))
            with self._streams.wait(self._due if here != self._told else float("inf")):
                await self._advance()

    def _taken(self) -> list[Commit]:
        """Return the commits that are whole, each with the position after it."""
        # A source reports where it stands after all that it hands out, so what is handed out now begins before.
        before = self._told
        store_at, topics_at = before.store, {each.topic: each for each in before.topics}
        commits: list[Commit] = []

        def position() -> SubscriptionPosition:
            there = tuple(topics_at.get(each.topic.name, each.position) for each in self._topics)
            return SubscriptionPosition(store_at, there, self._wanted.selection)

        if self._store is not None:
            for revision, changes in self._store.take():
                store_at = self._store.at(revision)
                commits.append(Commit([*changes], position()))
        for source in self._topics:
            for topic_at, events in source.take():
                topics_at[topic_at.topic] = topic_at
                commits.append(Commit([*events], position()))
        return commits

    async def _advance(self) -> None:
        """Wait until one of the sources has made progress."""
        sources: list[StoreSource | TopicSource] = [*self._topics]
        if self._store is not None:
            sources.append(self._store)
        if len(sources) == 1:
            await sources[0].advance()
            return
        failures: list[Exception] = []

        async def one(source: StoreSource | TopicSource) -> None:
            try:
                await source.advance()
            except Exception as error:  # noqa: BLE001  # raised again below, outside of the nursery's group
                failures.append(error)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for source in sources:
                nursery.start_soon(one, source)
        if failures:
            raise failures[0]

    def _tell(self, item: Told) -> Told:
        self._told = item.position
        self._due = trio.current_time() + self._wanted.interval
        return item
