"""A run's mapping: from what its types' caches applied to keys in its queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import trio

from headway.cache import Applied, CachedType, CacheReader, Found, Subscription
from headway.controller._alive import Lives
from headway.controller._definition import Definition
from headway.controller._own_writes import OwnWrites
from headway.controller._request import Reason
from headway.controller._self_triggers import SelfTriggers
from headway.errors import DeclarationError
from headway.events import MappingFailed, Report
from headway.mapper import MapItem, MapQueue, Predicate, Watch, ask, ids_of, mapper_name
from headway.queue import BACKLOG, LIVE, Priority
from headway.resource import Key, TypeName


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


class Keys(Protocol):
    """A work queue, as far as keys are put into it."""

    def add(self, key: Key, reason: Reason, *, priority: Priority = LIVE) -> None:
        """Queue a key at once."""
        ...


class RunMapping:
    """Maps a run's changes when every type of the run has reached them (C4), by their old and new state (C6)."""

    def __init__(
        self,
        definition: Definition,
        cache: CacheReader,
        queue: Keys,
        report: Report,
        on_progress: Callable[[], None],
        *,
        own: OwnWrites,
        self_triggers: SelfTriggers,
        lives: Lives,
    ) -> None:
        self._definition = definition
        self._own = own
        self._self_triggers = self_triggers
        self._lives = lives
        self._cache = cache
        self._queue = queue
        self._report = report
        self._on_progress = on_progress
        self._items = MapQueue()
        self._manages = definition.manages.name
        self._watches = {type.name: watch for type, watch in definition.watches.items()}
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

    @property
    def unmapped(self) -> int:
        """How many changes are taken and not mapped, or have failed to be."""
        return len(self._items)

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
            applied = await subscription.next()
            self._items.push(type, applied)
            self._lives.heard(type, applied)
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
        applied, definition = item.applied, self._definition
        priority: Priority = BACKLOG if item.backlog else LIVE
        reason = Reason("started" if item.backlog else "changed", item.type, applied.key, applied.revision)
        # Whose function is at work, should it raise.
        asked: object = definition.when
        try:
            if item.type == self._manages and (
                definition.when is None or self._passes(item, definition.manages, definition.when)
            ):
                self.add(applied.key, reason, priority)
            watch = self._watches.get(item.type)
            if watch is None:
                return
            asked = watch.when
            if watch.when is not None and not self._passes(item, watch.type, watch.when):
                return
            asked = watch.mapper
            keys = self._keys(item, watch)
        except Exception as error:  # noqa: BLE001  # a user's function may raise anything; the change is kept
            if (legible := self._legible(item)) is not item.applied:
                self._map_legible(item, legible)
                return
            self._keep(item, asked, error)
        else:
            for key in keys:
                self.add(key, reason, priority)

    def _legible(self, item: MapItem) -> Applied:
        """The change without its states whose payloads do not decode: a function can only raise for those, always."""
        is_undecodable = self._subscriptions[item.type].is_undecodable
        applied = item.applied
        key, old, new, _ = applied
        if old is not None and is_undecodable(key, old):
            applied = applied._replace(old=None)
        if new is not None and is_undecodable(key, new):
            applied = applied._replace(new=None)
        return applied

    def _map_legible(self, item: MapItem, legible: Applied) -> None:
        """Map what is left of a change. No predicate judges it: one would take it for a creation or a deletion."""
        reason = Reason("changed", item.type, legible.key, legible.revision)
        if item.type == self._manages:
            self.add(legible.key, reason)
        watch = self._watches.get(item.type)
        if watch is None or (legible.old is None and legible.new is None):
            return
        try:
            keys = self._keys(item._replace(applied=legible), watch)
        except Exception as error:  # noqa: BLE001  # likewise
            self._keep(item, watch.mapper, error)
            return
        for key in keys:
            self.add(key, reason)

    def add(self, key: Key, reason: Reason, priority: Priority = LIVE) -> None:
        """Queue a key, and end the rest of one that has only triggered itself."""
        if self._self_triggers.loops:
            self._self_triggers.queued(key, reason)
        self._queue.add(key, reason, priority=priority)

    def _passes(self, item: MapItem, type: CachedType[Any], when: Predicate[Any]) -> bool:
        applied = item.applied
        return when.passes(type, applied.old, applied.new, self._own.is_own(item.type, applied), self._cache.isolation)

    def _keys(self, item: MapItem, watch: Watch[Any]) -> list[Key]:
        old, new = item.applied.old, item.applied.new
        view, mapper = watch.type.view, watch.mapper
        states = (None if old is None else view(old), None if new is None else view(new))
        keys: list[Key] = []
        problems: list[str] = []
        for answer in ask(mapper, *states, self._cache):
            found, wrong = ids_of(answer, self._definition.manages)
            keys += found
            problems += wrong
        if problems:
            # Mapping again would give the same: what is right is queued, what is wrong is named.
            self._fail(item, watch.mapper, DeclarationError("; ".join(problems)), 0.0)
        return list(dict.fromkeys(keys)) if len(keys) > 1 else keys

    def _keep(self, item: MapItem, asked: object, error: Exception) -> None:
        delay = self._definition.backoff.delay(item.failures)
        self._items.keep(item, trio.current_time() + delay)
        self._kept.set()
        self._fail(item, asked, error, delay)

    def _fail(self, item: MapItem, asked: object, error: Exception, delay: float) -> None:
        self._report(
            MappingFailed(self._definition.name, mapper_name(asked), item.type, item.applied.key, error, delay)
        )
