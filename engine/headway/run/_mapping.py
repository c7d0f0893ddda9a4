"""The mapping of a run: from changes in the caches of its types to keys in its queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import trio

from headway.base import BoundedReport, leaving, ordinary, story
from headway.cache import Applied, Backlog, CachedType, CacheReader, Subscription
from headway.controller import Definition
from headway.errors import DeclarationError, PayloadError
from headway.events import MappingFailed
from headway.journal import ControllerJournal
from headway.mapper import FailedChanges, MapItem, MapQueue, Predicate, Watch, ask, ids_of, mapper_name
from headway.queue import BACKLOG, LIVE, Priority
from headway.reconcile import MAPPING, KeyAtWork, Lifetimes, Reason
from headway.resource import Key, TypeName
from headway.run._own_writes import SelfTriggers


class Owed(NamedTuple):
    """The work that a run leaves to the next one when it ends (C6).

    Attributes:
        keys: the keys that are still to be reconciled.
        changes: the changes that are still to be mapped. If a change moved a resource from one key to another, it is
            the only record of the old key.
        store_id: the store that their revisions belong to.
        subscriptions: subscriptions left open, so that no change is missed between two runs. The next run closes them.
    """

    keys: Sequence[Key] = ()
    changes: Sequence[tuple[TypeName, Applied]] = ()
    subscriptions: Sequence[tuple[TypeName, Subscription]] = ()
    store_id: str = ""


class Progress:
    """A signal that a run has mapped, reconciled or resolved something, or has ended."""

    def __init__(self) -> None:
        self._waiting = trio.lowlevel.ParkingLot()

    def note(self) -> None:
        """Wake every task that waits."""
        if self._waiting:
            self._waiting.unpark_all()

    async def wait(self) -> None:
        """Wait for the next progress."""
        await self._waiting.park()


_STEP = 500
"""The number of changes that are mapped between two checkpoints."""


class SupportsAdd(Protocol):
    """The part of a work queue that accepts keys."""

    def add(self, key: Key, reason: Reason, *, priority: Priority = LIVE) -> None:
        """Enqueue a key immediately."""
        ...


class Unmapped(NamedTuple):
    """A resource whose changes could not be mapped, so that the keys of these changes are not known.

    Times are on Trio's clock, in seconds.

    Attributes:
        function: the mapper or predicate that raised.
        error: the class and message of what it raised.
        failures: the number of consecutive failures.
        since: the time of the first failure.
        due: the time of the next attempt.
    """

    type: TypeName
    key: Key
    revision: int
    function: str
    error: str
    failures: int
    since: float
    due: float


class RunMapping:
    """The mapping of a run. It maps a change, by its old and new states (C6), when all types have reached it (C4)."""

    def __init__(
        self,
        definition: Definition,
        cache: CacheReader,
        subscriptions: Mapping[TypeName, Subscription],
        bounded: BoundedReport,
        self_triggers: SelfTriggers,
        lifetimes: Lifetimes,
        journal: ControllerJournal | None,
        queue: SupportsAdd,
        on_progress: Callable[[], None],
    ) -> None:
        self._definition = definition
        self._self_triggers = self_triggers
        self._lifetimes = lifetimes
        self._journal = journal
        self._cache = cache
        self._queue = queue
        self._bounded = bounded
        self._on_progress = on_progress
        self._items = MapQueue()
        self._manages = definition.manages.name
        self._watches = {type.name: watch for type, watch in definition.watches.items()}
        self._subscriptions = subscriptions
        self._has_kept = trio.Event()
        # The function to name if it raises.
        self._calling: object = None
        self._at_work = KeyAtWork()

    @property
    def complete(self) -> int:
        """The revision that every type of the run has reached."""
        return min(subscription.store.frontier for subscription in self._subscriptions.values())

    @property
    def is_idle(self) -> bool:
        """True if every received change has been mapped."""
        return not self._items and not any(each.pending for each in self._subscriptions.values())

    @property
    def unmapped(self) -> int:
        """The number of changes that were received and not mapped. A resource whose mapping failed counts as one."""
        return len(self._items)

    def failures(self) -> list[Unmapped]:
        """Return the resources whose mapping failed, those that have waited longest first."""
        found = [
            Unmapped(
                each.type,
                each.changes[0].key,
                each.changes[-1].revision,
                each.function,
                each.error,
                each.failures,
                each.since,
                each.due,
            )
            for each in self._items.failed()
        ]
        return sorted(found, key=lambda each: each.since)

    def add_owed(self, owed: Owed, store_id: str) -> None:
        """Map the previous run's changes once their revisions are reached. Another store's revisions mean nothing."""
        add = self._items.push if owed.store_id == store_id else self._items.push_backlog
        for type, change in owed.changes:
            add(type, [change])
        for type, former in owed.subscriptions:
            add(type, former.drain())
            former.close()

    def add_start(self, deletions: Mapping[TypeName, Sequence[Applied]]) -> None:
        """Map what a start has to map: the cached resources of the watched types, and these deletions."""
        for name in self._subscriptions:
            if name in self._watches:
                self._add_cached(name)
            self._items.push_backlog(name, deletions.get(name, ()))

    def _add_cached(self, type: TypeName) -> None:
        """Map the cached resources of a type after the live changes, but none before all types have reached it."""
        store, complete = self._subscriptions[type].store, self.complete
        if store.newest <= complete:
            self._items.push_backlog(type, Backlog(store.entries))
            return
        # Some resources arrived after the subscription or were ahead before it. Map them like changes (C4).
        reached: list[Applied] = []
        beyond: list[Applied] = []
        for each in Backlog(store.entries):
            version = int(each.new.version) if each.new is not None else 0
            if version > complete:
                beyond.append(each._replace(revision=version))
            else:
                reached.append(each)
        self._items.push(type, beyond)
        self._items.push_backlog(type, reached)

    def owed(self) -> list[tuple[TypeName, Applied]]:
        """Return the changes that were taken from the feeds and are not mapped."""
        return self._items.drain()

    async def watch(self, type: TypeName, subscription: Subscription) -> None:
        """Take changes of one type from its feed and map those that are ready, until canceled."""
        while True:
            applied = await subscription.next()
            self._items.push(type, applied)
            if self._lifetimes.scopes:
                self._lifetimes.cancel_ended(type, applied)
            await self.map_ready()

    async def map_ready(self) -> None:
        """Map and enqueue every change that all types have reached.

        Each change is one step without a checkpoint. It is either completely in the reconcile queue or still in the map
        queue.
        """
        MAPPING.set(self._at_work)
        step = 0
        # Frontiers move only at checkpoints, so read them again after each.
        complete = self.complete
        while (item := self._items.pop(complete)) is not None:
            self._map(item)
            step += 1
            if step % _STEP == 0:
                await trio.lowlevel.checkpoint()
                complete = self.complete
        self._at_work.key = None
        self._on_progress()

    async def retry(self) -> None:
        """Retry the changes whose mapping failed, each when it is due, until canceled."""
        MAPPING.set(self._at_work)
        while True:
            due = self._items.next_due()
            with trio.CancelScope(deadline=trio.current_time() + 3600 if due is None else due):
                await self._has_kept.wait()
            self._has_kept = trio.Event()
            while (kept := self._items.pop_due(trio.current_time())) is not None:
                self._map_again(kept)
            self._at_work.key = None
            self._on_progress()

    def _map(self, item: MapItem) -> None:
        try:
            self._map_change(item.type, item.applied, backlog=item.backlog)
        except BaseException as raised:  # noqa: BLE001  # cancellation and interrupts are raised again
            # A user's function may raise anything; the change is kept.
            error = ordinary(raised)
            if error is None:
                # This ends the run. The next run maps the change (C6).
                self._items.defer(item, trio.current_time())
                raise leaving(raised) from raised.__cause__
            now = trio.current_time()
            delay = self._definition.backoff.delay(0)
            kept = self._items.defer(item, now + delay)
            self._has_kept.set()
            # It waits together with earlier changes of its resource, for as long as they do.
            delay = delay if kept.changes[0] is item.applied else max(kept.due - now, 0.0)
            self._fail(kept, item.applied, error, delay)

    def _map_again(self, kept: FailedChanges) -> None:
        done = 0
        try:
            for applied in kept.changes:
                self._map_change(kept.type, applied, backlog=kept.backlog)
                done += 1
        except BaseException as raised:  # noqa: BLE001  # cancellation and interrupts are raised again
            error = ordinary(raised)
            if error is None:
                self._items.defer_again(kept, trio.current_time())
                raise leaving(raised) from raised.__cause__
            failed = kept.changes[done]
            del kept.changes[:done]
            delay = self._definition.backoff.delay(kept.failures)
            self._items.defer_again(kept, trio.current_time() + delay)
            self._fail(kept, failed, error, delay)
        else:
            if kept.lost:
                self._add_every(Reason("changed", kept.type, kept.name[1], kept.changes[-1].revision))

    def _add_every(self, reason: Reason) -> None:
        """Enqueue every key in the cache at low priority, because a lost state mapped to one of them."""
        for key in self._subscriptions[self._manages].store.entries:
            self.add(key, reason, BACKLOG)

    def _map_change(self, type: TypeName, applied: Applied, *, backlog: bool) -> None:
        """Map a change and enqueue the affected keys. Raises whatever a user's function raises."""
        try:
            self._map_states(type, applied, backlog=backlog)
        except PayloadError:
            # Any other exception is unrelated to the payload. It may not occur again, so the change is kept for a
            # retry.
            legible = self._legible(type, applied)
            if legible is applied:
                raise
            self._map_legible(type, applied, legible)

    def _map_states(self, type: TypeName, applied: Applied, *, backlog: bool) -> None:
        definition = self._definition
        self._at_work.key = applied.key
        priority: Priority = BACKLOG if backlog else LIVE
        reason = Reason("started" if backlog else "changed", type, applied.key, applied.revision)
        self._calling = definition.when
        if type == self._manages and (
            definition.when is None or self._passes(type, applied, definition.manages, definition.when)
        ):
            self.add(applied.key, reason, priority)
        elif type == self._manages and definition.when is not None:
            self._turned_away(definition.when, type, applied, backlog=backlog)
        watch = self._watches.get(type)
        if watch is None:
            return
        self._calling = watch.when
        if watch.when is not None and not self._passes(type, applied, watch.type, watch.when):
            self._turned_away(watch.when, type, applied, backlog=backlog)
            return
        self._map_by(watch, applied, reason, priority)

    def _turned_away(self, when: Predicate[Any], type: TypeName, applied: Applied, *, backlog: bool) -> None:
        """Record that a predicate has turned a change away. The backlog is no change."""
        if self._journal is not None and not backlog:
            self._journal.turn_away(type, applied.key, applied.revision, when.name)

    def _map_by(self, watch: Watch[Any], applied: Applied, reason: Reason, priority: Priority) -> None:
        self._calling = watch.mapper
        keys, problems = self._keys(applied, watch)
        for key in keys:
            self.add(key, reason, priority)
        if problems:
            # The valid ids are enqueued. The change is kept, because a mapper that returned an invalid id may have more
            # (C6).
            raise DeclarationError("; ".join(problems))

    def _legible(self, type: TypeName, applied: Applied) -> Applied:
        """Return the change without the states whose payloads do not decode, since reading those always raises."""
        is_undecodable = self._subscriptions[type].is_undecodable
        key, old, new, _ = applied
        if old is not None and is_undecodable(key, old):
            applied = applied._replace(old=None)
        if new is not None and is_undecodable(key, new):
            applied = applied._replace(new=None)
        return applied

    def _map_legible(self, type: TypeName, applied: Applied, legible: Applied) -> None:
        """Map a change, or its readable states if the mapper reads payloads.

        No predicate is called, because it would take a partial change for a creation or a deletion.
        """
        reason = Reason("changed", type, applied.key, applied.revision)
        if type == self._manages:
            self.add(applied.key, reason)
        watch = self._watches.get(type)
        if watch is None:
            return
        try:
            # The error may have come from a predicate that reads the payload.
            self._map_by(watch, applied, reason, LIVE)
        except PayloadError:
            if legible.old is not None or legible.new is not None:
                self._map_by(watch, legible, reason, LIVE)

    def add(self, key: Key, reason: Reason, priority: Priority = LIVE) -> None:
        """Enqueue a key, and end the delay of a key that had only triggered itself."""
        if self._self_triggers.loops:
            self._self_triggers.queued(key, reason)
        self._queue.add(key, reason, priority=priority)

    def _passes(self, name: TypeName, applied: Applied, type: CachedType[Any], when: Predicate[Any]) -> bool:
        return when.passes(
            type, applied.old, applied.new, self._self_triggers.own.is_own(name, applied), self._cache.isolation
        )

    def _keys(self, applied: Applied, watch: Watch[Any]) -> tuple[list[Key], list[str]]:
        """Return the keys that a change maps to, and a problem for each invalid value that the mapper returned."""
        old, new = applied.old, applied.new
        view, mapper = watch.type.view, watch.mapper
        states = (None if old is None else view(old), None if new is None else view(new))
        keys: list[Key] = []
        problems: list[str] = []
        for answer in ask(mapper, *states, self._cache):
            found, wrong = ids_of(answer, self._definition.manages)
            keys += found
            problems += wrong
        return list(dict.fromkeys(keys)) if len(keys) > 1 else keys, problems

    def _fail(self, kept: FailedChanges, applied: Applied, error: Exception, delay: float) -> None:
        type, name = kept.type, mapper_name(self._calling)
        kept.function, kept.error = name, story(error)
        kept.since = kept.since or trio.current_time()
        self._bounded(
            MappingFailed,
            of=(type, name),
            controller=self._definition.name,
            mapper=name,
            type=type,
            key=applied.key,
            error=error,
            retry_after=delay,
        )
