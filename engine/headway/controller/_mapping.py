"""A run's mapping: from what its types' caches applied to keys in its queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import trio

from headway.cache import Applied, CachedType, CacheReader, Found, Isolation, Subscription
from headway.controller._definition import Definition
from headway.controller._request import Reason
from headway.errors import DeclarationError
from headway.events import MappingFailed, Report
from headway.mapper import MapItem, Mapper, MapQueue, ids_of, mapper_name
from headway.queue import BACKLOG, LIVE, Priority, WaitingQueue
from headway.resource import Key, TypeName, pb


class Owed(NamedTuple):
    """What a run that has ended leaves to the next one (C6).

    Attributes:
        keys: those still to be reconciled.
        changes: those still to be mapped. One that moved a resource from one key to another is the only one who knows
            the key that it was moved from.
        store_id: the store that their revisions are of.
        subscriptions: still open, so that what comes while no run is there is not missed; closed by who takes it.
    """

    keys: Sequence[Key] = ()
    changes: Sequence[tuple[TypeName, Applied]] = ()
    subscriptions: Sequence[tuple[TypeName, Subscription]] = ()
    store_id: str = ""


_STEP = 500
"""How many changes are mapped between two checkpoints."""


class RunMapping:
    """Maps a run's changes when every type of the run has reached them (C4), by their old and new state (C6)."""

    def __init__(
        self,
        definition: Definition,
        cache: CacheReader,
        queue: WaitingQueue[Key, Reason],
        report: Report,
        on_progress: Callable[[], None],
        isolation: Isolation | None = None,
    ) -> None:
        self._definition = definition
        self._cache = cache
        self._queue = queue
        self._report = report
        self._on_progress = on_progress
        self._isolation = isolation
        self._items = MapQueue()
        self._mappers = {type.name: (type, mapper) for type, mapper in definition.watches.items()}
        self._subscriptions: Mapping[TypeName, Subscription] = {}
        self._kept = trio.Event()

    def open(self, subscriptions: Mapping[TypeName, Subscription]) -> None:
        """The run is primed: these are its types."""
        self._subscriptions = subscriptions

    @property
    def complete(self) -> int:
        """The revision that every type of the run has reached."""
        return min(subscription.gate.frontier for subscription in self._subscriptions.values())

    @property
    def owes_nothing(self) -> bool:
        """Whether every change that has come has been mapped."""
        return not self._items and not any(each.pending for each in self._subscriptions.values())

    def add_backlog(self, type: TypeName, applied: Collection[Applied]) -> None:
        """Map these behind the live changes."""
        self._items.push_backlog(type, applied)

    def add_owed(self, owed: Owed, store_id: str) -> None:
        """Map what the former run has left, when its revisions are reached; another store's mean nothing here."""
        add = self._items.push if owed.store_id == store_id else self._items.push_backlog
        for type, change in owed.changes:
            add(type, [change])
        for type, former in owed.subscriptions:
            add(type, former.take())
            former.close()

    def add_held(self, type: TypeName) -> None:
        """Map what the cache holds of a type, behind the live changes; what another type hasn't reached yet, then."""
        gate, complete = self._subscriptions[type].gate, self.complete
        if gate.newest <= complete:
            self._items.push_backlog(type, Found(gate.entries))
            return
        # Some came between the subscription and now, or were ahead already then: to be mapped as a change is (C4).
        reached: list[Applied] = []
        beyond: list[Applied] = []
        for each in Found(gate.entries):
            version = int(each.new.version) if each.new is not None else 0
            if version > complete:
                beyond.append(each._replace(revision=version))
            else:
                reached.append(each)
        self._items.push(type, beyond)
        self._items.push_backlog(type, reached)

    def owed(self) -> list[tuple[TypeName, Applied]]:
        """The changes that were taken from the feeds and are not mapped."""
        return self._items.take_all()

    async def watch(self, type: TypeName, subscription: Subscription) -> None:
        """The long-lived watch of one type: take its feed and map what is ready, for ever."""
        while True:
            self._items.push(type, await subscription.next())
            await self.map_ready()

    async def map_ready(self) -> None:
        """Map and enqueue every change that all types have reached.

        Each is one step without a checkpoint: it is either wholly in the reconcile queue or still in the map queue.
        """
        step = 0
        # Frontiers move only where something waits: it is asked for again after each checkpoint.
        complete = self.complete
        while (item := self._items.take(complete)) is not None:
            self._map(item)
            step += 1
            if step % _STEP == 0:
                await trio.lowlevel.checkpoint()
                complete = self.complete
        self._on_progress()

    async def retry(self) -> None:
        """Map again, when their time has come, the changes whose mapping failed; for ever."""
        while True:
            due = self._items.next_due()
            with trio.CancelScope(deadline=trio.current_time() + 3600 if due is None else due):
                await self._kept.wait()
            self._kept = trio.Event()
            while (item := self._items.take_due(trio.current_time())) is not None:
                self._map(item)
            self._on_progress()

    def _map(self, item: MapItem) -> None:
        applied = item.applied
        priority: Priority = BACKLOG if item.backlog else LIVE
        reason = Reason("started" if item.backlog else "changed", item.type, applied.key, applied.revision)
        if item.type == self._definition.manages.name:
            self._queue.add(applied.key, reason, priority=priority)
        watched = self._mappers.get(item.type)
        if watched is None:
            return
        try:
            keys = self._keys(item, *watched)
        except Exception as error:  # noqa: BLE001  # a user's function may raise anything; the change is kept
            self._keep(item, error)
        else:
            for key in keys:
                self._queue.add(key, reason, priority=priority)

    def _keys(self, item: MapItem, type: CachedType[Any], mapper: Mapper) -> list[Key]:
        keys: list[Key] = []
        problems: list[str] = []
        for state in (item.applied.old, item.applied.new):
            if state is not None:
                found, wrong = self._ask(mapper, type.view(state), state)
                keys += found
                problems += wrong
        if problems:
            # Mapping again would give the same: what is right is queued, what is wrong is named.
            self._fail(item, DeclarationError("; ".join(problems)), 0.0)
        return list(dict.fromkeys(keys)) if len(keys) > 1 else keys

    def _ask(self, mapper: Mapper, given: Any, state: pb.Resource) -> tuple[list[Key], list[str]]:
        def call() -> tuple[list[Key], list[str]]:
            return ids_of(mapper(given, self._cache), self._definition.manages)

        if self._isolation is None:
            return call()
        return self._isolation.reading(f"mapper {mapper_name(mapper)}", state, given, call)

    def _keep(self, item: MapItem, error: Exception) -> None:
        delay = self._definition.backoff.delay(item.failures)
        self._items.keep(item, trio.current_time() + delay)
        self._kept.set()
        self._fail(item, error, delay)

    def _fail(self, item: MapItem, error: Exception, delay: float) -> None:
        name = mapper_name(self._mappers[item.type][1])
        self._report(MappingFailed(self._definition.name, name, item.type, item.applied.key, error, delay))
