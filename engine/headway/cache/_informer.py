"""The informer of a type: its stream and store in this process, shared by the runs that subscribe to it.

A run first waits until the store is primed up to the run's starting revision, then it subscribes. In that step, without
a checkpoint, its indexes are built from the current entries and its feed begins. From then on, every change enters the
run's indexes in the same step in which it enters the store, and it enters the run's feed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import trio

from headway._bounded_report import BoundedReport
from headway.cache._cached_type import CachedType
from headway.cache._indexes import Index, IndexTable, OnFailure
from headway.cache._isolation import Isolation
from headway.cache._projection import UNDECODABLE, Projection
from headway.cache._subscription import Subscription
from headway.cache._type_store import Applied, TypeStore
from headway.cache._undecodable import Undecodable
from headway.errors import HeadwayError, PermissionDenied, StoreChanged
from headway.events import BookmarkRefused, ProjectionFailed, Report, StaleRefused
from headway.resource import (
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
    resource_key,
)


class Informer:
    """The store of one type, fed by its follower and shared by all runs of the process. It implements `_follower.Sink`.

    Attributes:
        store: the cached data. It is a different object after the store has been replaced by another one.
        received: the number of items received from its streams so far.
        cut_off: the reason for the lack of a stream, and since when on Trio's clock; None with a stream, or before the
            first.
    """

    def __init__(self, type: CachedType[Any], report: Report, isolation: Isolation | None = None) -> None:
        self.type = type
        self.store = TypeStore()
        self.received = 0
        self.cut_off: tuple[str, float] | None = None
        self._projection = type if isinstance(type, Projection) else None
        self._report = report
        self.bounded = BoundedReport(report)
        self._isolation = isolation
        self._undecodable = Undecodable(type, self.bounded)
        self._subscriptions: list[Subscription] = []
        self._distrusted = False
        self._failure: HeadwayError | None = None
        # The server's reason for denying the last stream because of a missing right; empty if it did not.
        self._denied = ""
        self._progress = trio.lowlevel.ParkingLot()

    # --- the follower's sink ---

    @property
    def store_id(self) -> str:
        """The store that the data belongs to; empty before the first data."""
        return self.store.store_id

    @property
    def frontier(self) -> int:
        """The revision up to which the data is complete."""
        return self.store.frontier

    @property
    def distrusted(self) -> bool:
        """True if the received data may be incomplete."""
        return self._distrusted

    @property
    def resume_after(self) -> Position | None:
        """The position after which the next stream should resume; None if it must begin with a snapshot."""
        store = self.store
        if not store.primed or self._distrusted:
            return None
        return store.position

    @property
    def known(self) -> Position | None:
        """The newest position that the data depends on, or None."""
        return self.store.known

    def restart(self) -> None:
        """Forget the content of an unfinished snapshot."""
        self.store.restart()

    def distrust(self) -> None:
        """Note that the received data may be incomplete."""
        self._distrusted = True

    def feed(self, item: StreamItem) -> None:
        """Apply an item, and pass its changes to the subscriptions."""
        self.received += 1
        store = self.store
        if self._projection is not None:
            item = self._projected(item)
        stale = self.refused
        before = store.frontier
        applied = store.feed(item)
        if isinstance(item, EndOfSnapshot) and item.position.revision >= store.frontier:
            self._distrusted = False
        if self.refused > stale:
            self._report(StaleRefused(self.type.name, type(item).__name__, self.refused))
        if store.disproved:
            store.disproved = False
            self._distrusted = True
            why = f"a change at or below {store.frontier} arrived that is newer than the cached entry"
            self._report(BookmarkRefused(self.type.name, why))
        self._tell(applied, isinstance(item, EndOfSnapshot) and item.position.revision >= before)

    def interrupted(self, why: str, *, denied: bool = False) -> None:
        """Note that a stream has ended, or (``why`` empty) that a new one has delivered an item."""
        self._denied = why if denied else ""
        if denied:
            self._progress.unpark_all()
        if not why:
            self.cut_off = None
        else:
            since = trio.current_time() if self.cut_off is None else self.cut_off[1]
            self.cut_off = why, since

    # --- called by the runs ---

    @property
    def rolled_back(self) -> bool:
        """True if the store was rolled back and has not been accepted in its current state."""
        return self._failure is not None

    def check(self) -> None:
        """Raise StoreRolledBack if the store was rolled back, and PermissionDenied if the last stream was denied."""
        if self._failure is not None:
            raise self._failure
        if self._denied:
            raise PermissionDenied(f"{self.type.name} cannot be watched: {self._denied}")

    @property
    def refused(self) -> int:
        """The number of items that were refused because they were older than the cached data."""
        return self.store.refused.changes + self.store.refused.snapshots

    @property
    def resources(self) -> int:
        """The number of resources in the cache; during the first snapshot, the number received."""
        return len(self.store.entries) if self.store.primed else self.store.gathered

    @property
    def undecodable(self) -> list[Key]:
        """The keys of the resources whose payloads were found not to decode, in order."""
        return self._undecodable.held(self.store.entries)

    def reply(self, key: Key, stored: pb.Resource | None, position: Position) -> None:
        """Apply the response to a write (C5), a whole resource. Raises StoreChanged if it is from another store."""
        if stored is not None:
            stored = self.held(stored)
        refused = self.store.refused.replies
        applied = self.store.reply(key, stored, position)
        if self.store.refused.replies == refused:
            for subscription in self._subscriptions:
                for pin in subscription.pins:
                    pin.replied(key, position.revision)
        self._tell(applied)

    async def wait_complete(self, revision: int) -> int:
        """Wait until the store is primed and complete up to ``revision``, and return its frontier.

        Raises StoreChanged, StoreRolledBack or PermissionDenied if that is impossible.
        """
        await trio.lowlevel.checkpoint()
        store = self.store
        while not (store.primed and store.frontier >= revision):
            self.check()
            await self._progress.park()
            if self.store is not store:
                raise StoreChanged(f"the store of {self.type.name} was replaced while it was being primed")
        self.check()
        return store.frontier

    def subscribe(self, indexes: Sequence[Index[Any, Any]], on_failure: OnFailure) -> Subscription:
        """Subscribe: build the indexes from the current entries, and feed all later changes. Contains no checkpoint."""
        is_undecodable = functools.partial(self._undecodable.is_so, self.store)
        tables = {index.name: IndexTable(index, on_failure, self._isolation, is_undecodable) for index in indexes}
        for table in tables.values():
            table.build(self.store.entries)
        subscription = Subscription(self.store, tables, self.leave, is_undecodable)
        self._subscriptions.append(subscription)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """End a subscription. Idempotent."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def void(self, error: HeadwayError, *, replaced: bool) -> None:
        """Declare the data void, which ends every subscribed run. ``replaced``: begin anew with the other store."""
        if replaced:
            self.store = TypeStore()
            self._undecodable = Undecodable(self.type, self.bounded)
            self._distrusted = False
            self._failure = None
            self._denied = ""
            self.cut_off = None
        else:
            self._failure = error
        for subscription in self._subscriptions:
            subscription.fail(error)
        self._subscriptions = []
        self._progress.unpark_all()

    def held(self, message: pb.Resource) -> pb.Resource:
        """Return the part of a stored message that is cached: all of it, or its projection."""
        projection = self._projection
        if projection is None:
            return message
        try:
            return projection.project(message, self._isolation)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a user's function may raise anything; the resource is known
            key = resource_key(message)
            if self._undecodable.note(key, message):
                return projection.without_payload(message, UNDECODABLE)
            name = projection.payload.__name__
            self.bounded(ProjectionFailed, type=self.type.name, projection=name, key=key, error=error)
            return projection.without_payload(message)

    def _projected(self, item: StreamItem) -> StreamItem:
        held = self.held
        if isinstance(item, SnapshotChunk):
            return SnapshotChunk([held(resource) for resource in item.resources])
        if isinstance(item, Changes):
            return Changes(
                [Change(revision, held(resource), deleted, more) for revision, resource, deleted, more in item.changes]
            )
        return item

    def _tell(self, applied: list[Applied], snapshot: bool = False) -> None:
        overtaken = self.store.take_overtaken()
        self._undecodable.follow(applied)
        projection = self._projection
        # A change that does not affect the projection updates the entry, because its version counts, but is not passed
        # on.
        told = applied if projection is None else [each for each in applied if not _unchanged(projection, each)]
        for subscription in self._subscriptions:
            for pin in subscription.pins:
                pin.follow(applied, overtaken, snapshot)
            if told:
                subscription.applied(told)
            if overtaken:
                subscription.overtaken(overtaken)
            subscription.wake()
        self._progress.unpark_all()


def _unchanged(projection: Projection[Any], applied: Applied) -> bool:
    return applied.old is not None and applied.new is not None and projection.same(applied.old, applied.new)
