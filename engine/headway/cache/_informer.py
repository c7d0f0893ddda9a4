"""The informer of a type: its store and its subscriptions in this process. The runs of all controllers share it.

A run first waits until the store is primed up to the run's starting revision, then it subscribes. In that step its
feed begins. `_indexing.py` builds its indexes from the entries of that moment. Once they are complete, every change
enters them in the same step in which it enters the store, and it enters the run's feed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from headway.base import BoundedReport
from headway.cache._index_table import IndexTable, IsUndecodable, OnFailure
from headway.cache._indexes import Index
from headway.cache._isolation import Isolation
from headway.cache._projection import UNDECODABLE, CachedType, Projection, range_of
from headway.cache._type_store import Applied, TypeStore
from headway.cache._undecodable import Undecodable
from headway.cache._view import Pin
from headway.errors import HeadwayError, PermissionDenied, StoreChanged
from headway.events import BookmarkRefused, ProjectionFailed, Report, StaleRefused
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
    redact_error,
    resource_key,
    unseen,
)


class Informer:
    """The store of one type, fed by its follower and shared by all runs of the process.

    Attributes:
        store: the cached data. It is a different object after the store has been replaced by another one.
        received: the number of items received from its streams so far.
        distrusted: True if the received data may be incomplete. Only a snapshot that is applied solves that.
        cut_off: the reason for the lack of a stream, and since when on Trio's clock; None with a stream, or before the
            first.
        failures: the number of streams that have ended since one has delivered an item.
        denied: the server's reason for denying the last stream because of a missing right; empty if it did not.
        on_disproved: called when a reply has proved the frontier false. The open stream is then of no use.
        ask: asks the open stream how far it is, and returns a bookmark to apply, if there is one. It is given the
            revision at which the stream is to send one; 0 for none.
        wanted: the lowest revision that a task waits for the frontier to reach; 0 for none.
        stream_changed: wakes the tasks that follow these three, also when the data becomes void.
    """

    def __init__(self, type: CachedType[Any], report: Report, isolation: Isolation | None = None) -> None:
        self.type = type
        self.store = TypeStore()
        self.received = 0
        self.distrusted = False
        self.cut_off: tuple[str, float] | None = None
        self.failures = 0
        self.denied = ""
        self.on_disproved: Callable[[], object] = lambda: None
        self.ask: Callable[[int], Bookmark | None] = lambda _: None
        self.wanted = 0
        self.stream_changed = trio.lowlevel.ParkingLot()
        self._range = range_of(type)
        self._projection = type if isinstance(type, Projection) else None
        self._report = report
        self.bounded = BoundedReport(report)
        self.isolation = isolation
        self._undecodable = Undecodable(type, self.bounded)
        self._subscriptions: list[Subscription] = []
        self._failure: HeadwayError | None = None
        self._progress = trio.lowlevel.ParkingLot()

    @property
    def resume_after(self) -> Position | None:
        """The position after which the next stream should resume; None if it must begin with a snapshot."""
        return self.store.position if self.store.primed and not self.distrusted else None

    def feed(self, item: StreamItem) -> None:
        """Apply an item of a stream, and deliver its changes to the subscriptions."""
        self.received += 1
        store = self.store
        if self._projection is not None:
            item = self._projected(item)
        refused = store.refused
        before = store.frontier
        applied = store.feed(item)
        if isinstance(item, EndOfSnapshot) and item.position.revision >= store.frontier:
            self.distrusted = False
        if store.refused > refused:
            self._report(StaleRefused(self.type.name, type(item).__name__, store.refused))
        self._distrust_disproved()
        # Nobody is woken for a frontier that nobody waits for.
        if not isinstance(item, Bookmark) or 0 < self.wanted <= store.frontier:
            self._deliver(applied, isinstance(item, EndOfSnapshot) and item.position.revision >= before)

    def ask_on(self) -> int:
        """Return the frontier, which is as far as the stream can tell now. An open stream learns what is wanted."""
        # Another time, because the bookmark may be one that is wanted, so that a later one is.
        while (bookmark := self.ask(self.wanted)) is not None:
            self.feed(bookmark)
        return self.store.frontier

    def reach(self, revision: int) -> int:
        """Return the frontier. If it is below a revision, who waits in this informer is woken when it is reached."""
        reached = self.store.frontier
        if reached < revision and (reached := self.ask_on()) < revision and not 0 < self.wanted <= revision:
            self.wanted = revision
            reached = self.ask_on()
        return reached

    def _distrust_disproved(self) -> bool:
        """Return True, and distrust the data, if its frontier has just been proved false."""
        store = self.store
        if not store.disproved:
            return False
        store.disproved = False
        self.distrusted = True
        why = f"a change at or below {store.frontier} arrived that is newer than the cached entry"
        self._report(BookmarkRefused(self.type.name, why))
        return True

    def disconnected(self, why: str, *, denied: bool = False) -> None:
        """Note that a stream has ended. ``denied`` is True if the server refused it because of a missing right."""
        self.cut_off = why, trio.current_time() if self.cut_off is None else self.cut_off[1]
        self.failures += 1
        self.denied = why if denied else ""
        if denied:
            self._progress.unpark_all()
        self.stream_changed.unpark_all()

    def reconnected(self) -> None:
        """Note that a new stream has delivered an item, or the end of its snapshot."""
        self.cut_off, self.failures, self.denied = None, 0, ""
        self.stream_changed.unpark_all()

    @property
    def rolled_back(self) -> bool:
        """True if the store was rolled back and has not been accepted in its current state."""
        return self._failure is not None

    def check(self) -> None:
        """Raise StoreRolledBack if the store was rolled back, and PermissionDenied if the last stream was denied."""
        if self._failure is not None:
            raise self._failure
        if self.denied:
            raise PermissionDenied(f"{self.type.name} cannot be watched: {self.denied}")

    @property
    def resources(self) -> int:
        """The number of resources in the cache; during the first snapshot, the number received."""
        return len(self.store.entries) if self.store.primed else self.store.gathered

    @property
    def undecodable(self) -> list[Key]:
        """The sorted keys of the resources whose payloads could not be decoded."""
        return self._undecodable.found(self.store)

    def is_undecodable(self, key: Key, message: pb.Resource) -> bool:
        """Return True if the payload of this state of a resource does not decode. A cached one is reported once."""
        return self._undecodable.check(self.store, key, message)

    def reply(self, key: Key, stored: pb.Resource | None, position: Position) -> None:
        """Apply the response to a write (C5), a whole resource. Raises StoreChanged if it is from another store."""
        if not self._range.matches(key):
            return
        if stored is not None:
            # If the write has moved the resource out of the scope, the cache handles it like a deletion.
            stored = self.cached_form(stored) if self._range.admits(stored) else None
        applied = self.store.reply(key, stored, position)
        if applied is None:
            return
        if self._distrust_disproved():
            self.on_disproved()
        for subscription in self._subscriptions:
            for pin in subscription.pins:
                pin.replied(key, position.revision)
        self._deliver(applied)

    async def wait_complete(self, revision: int) -> int:
        """Wait until the store is primed and complete up to ``revision``, and return its frontier.

        Raises StoreChanged, StoreRolledBack or PermissionDenied if that is impossible.
        """
        await trio.lowlevel.checkpoint()
        store = self.store
        while not (self.reach(revision) >= revision and store.primed):
            self.check()
            await self._progress.park()
            if self.store is not store:
                raise StoreChanged(f"the store of {self.type.name} was replaced while it was being primed")
        self.check()
        return store.frontier

    def subscribe(self, indexes: Sequence[Index[Any, Any]], on_failure: OnFailure) -> Subscription:
        """Subscribe: build the indexes from the current entries, and feed all later changes. Contains no checkpoint."""
        is_undecodable = functools.partial(self._undecodable.check, self.store)
        tables = {index.name: IndexTable(index, on_failure, self.isolation, is_undecodable) for index in indexes}
        for table in tables.values():
            table.build(self.store.entries)
        subscription = Subscription(self, tables, is_undecodable)
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. Idempotent."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def void(self, error: HeadwayError, *, replaced: bool) -> None:
        """Declare the data void, which ends every subscribed run. ``replaced``: begin anew with the other store."""
        if replaced:
            self.store = TypeStore()
            self._undecodable = Undecodable(self.type, self.bounded)
            self.distrusted = False
            self._failure = None
            self.reconnected()
        else:
            self._failure = error
            self.stream_changed.unpark_all()
        for subscription in self._subscriptions:
            subscription.fail(error)
        self._subscriptions = []
        self.wanted = 0
        self._progress.unpark_all()

    def cached_form(self, message: pb.Resource) -> pb.Resource:
        """Return the part of a stored message that is cached: all of it, or its projection."""
        projection = self._projection
        if projection is None:
            return message
        try:
            with unseen():
                return projection.project(message, self.isolation)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a user's function may raise anything; the resource is known
            key = resource_key(message)
            if self._undecodable.note(key, message):
                return projection.without_payload(message, UNDECODABLE)
            name = projection.payload.__name__
            redact_error(error, [self.type.view(message)])
            self.bounded(ProjectionFailed, type=self.type.name, projection=name, key=key, error=error)
            return projection.without_payload(message)

    def _projected(self, item: StreamItem) -> StreamItem:
        form = self.cached_form
        if isinstance(item, SnapshotChunk):
            return SnapshotChunk([form(resource) for resource in item.resources])
        if isinstance(item, Changes):
            return Changes(
                [Change(revision, form(resource), deleted, more) for revision, resource, deleted, more in item.changes]
            )
        return item

    def _deliver(self, applied: list[Applied], snapshot: bool = False) -> None:
        overtaken = self.store.take_overtaken()
        if self.wanted <= self.store.frontier:
            self.wanted = 0
        if self._undecodable.versions:
            self._undecodable.forget_changed(applied)
        projection = self._projection
        # A change that does not affect the projection updates the entry, because its version counts, but is not
        # delivered.
        delivered = applied if projection is None else [each for each in applied if not projection.hides(each)]
        for subscription in self._subscriptions:
            for pin in subscription.pins:
                pin.follow(applied, overtaken, snapshot)
                if not pin.reached and not 0 < self.wanted <= pin.revision:
                    self.wanted = pin.revision
            subscription.deliver(delivered, overtaken)
        self._progress.unpark_all()


LINGER_LIMIT = 100_000
"""The number of changes kept for a controller without a run, which equals the length of a store's history."""


class Subscription:
    """A run's subscription to an informer: its feed and its indexes."""

    def __init__(self, informer: Informer, tables: dict[str, IndexTable], is_undecodable: IsUndecodable) -> None:
        self.store = store = informer.store
        self.is_undecodable = is_undecodable
        self.tables = tables
        self._informer = informer
        # The highest revision in its initial content, replies included. The feed lacks what a reply has applied before.
        self.subscribed_at = store.newest
        self.listener: Callable[[Sequence[Applied]], object] | None = None  # gets the changes in place of the feed
        self._feed: list[Applied] = []
        self._lingers = False
        self._overflowed = False
        self._failure: HeadwayError | None = None
        self._woken = trio.Event()
        # Invariant: empty unless a view is open. Views cost something only while they are open.
        self.pins: list[Pin] = []

    def deliver(self, applied: Sequence[Applied], overtaken: Sequence[Applied]) -> None:
        """Index the changes that the store has just applied, add all to the feed, and wake the run.

        Overtaken changes happened but are not cached, so they are only mapped. A call without changes means that only
        the frontier has moved.
        """
        if applied:
            for table in self.tables.values():
                table.apply(applied)
            self._add(applied)
        if overtaken:
            self._add(overtaken)
        self._woken.set()

    def _add(self, changes: Sequence[Applied]) -> None:
        if self.listener is not None:
            self.listener(changes)
        elif self._lingers and len(self._feed) + len(changes) > LINGER_LIMIT:
            self._feed, self._overflowed = [], True
        elif not self._overflowed:
            self._feed.extend(changes)

    def fail(self, error: HeadwayError) -> None:
        """Declare the data void, which ends the run."""
        self._failure = error
        self._woken.set()
        for pin in self.pins:
            pin.fail(error)

    @property
    def revision(self) -> int:
        """The revision up to which the content is complete, as far as can be told now."""
        return self._informer.ask_on() if self._informer.store is self.store else self.store.frontier

    def reach(self, revision: int) -> int:
        """Return the revision up to which the content is complete. `next` returns when it reaches ``revision``."""
        return self._informer.reach(revision) if self._informer.store is self.store else self.store.frontier

    def find(self, key: Key) -> pb.Resource | None:
        """Return the resource with this key, or None."""
        return self.store.entries.get(key)

    def everything(self) -> Mapping[Key, pb.Resource]:
        """Return all resources."""
        return self.store.entries

    def table(self, name: str) -> IndexTable | None:
        """Return the index of this name, or None."""
        return self.tables.get(name)

    def pin(self, revision: int, on_change: Callable[[], object]) -> Pin:
        """Keep the state at a revision until `unpin`. The revision must not be below any that is known now."""
        self.reach(revision)
        pin = Pin(self.store, self.tables, revision, on_change)
        if self._failure is not None and not pin.reached:
            pin.fail(self._failure)
        self.pins.append(pin)
        return pin

    def unpin(self, pin: Pin) -> None:
        """Release a pin, because its view has been closed."""
        self.pins.remove(pin)

    @property
    def pending(self) -> bool:
        """True if changes were applied that `next` has not returned yet."""
        return bool(self._feed)

    def check(self) -> None:
        """Raise the error that made the data void, if there is one."""
        if self._failure is not None:
            raise self._failure

    async def next(self) -> list[Applied]:
        """Wait until a change was applied or a wanted revision is reached, and return the changes since the last call.

        Raises StoreChanged or StoreRolledBack if the data is void. If canceled, no change is lost.
        """
        await self._woken.wait()
        self.check()
        self._woken = trio.Event()
        return self.drain()

    def drain(self) -> list[Applied]:
        """Return the changes since the last call, without waiting."""
        feed, self._feed = self._feed, []
        return feed

    def linger(self) -> None:
        """Continue with the feed only, because the run has ended, until the next run takes it over.

        A feed that exceeds LINGER_LIMIT is discarded, so that a controller that cannot start does not fill the memory.
        The next run then uses the cache and, for deletions, the store's history, as after a restart of the process.
        """
        self.tables = {}
        self._lingers = True

    def close(self) -> None:
        """End the subscription. Idempotent."""
        self._informer.unsubscribe(self)
