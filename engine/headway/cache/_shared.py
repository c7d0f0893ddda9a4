"""One type's stream and store in this process, and the runs that subscribe to it.

A run first waits until the store is primed up to the run's starting revision, then subscribes: at that instant, with
no checkpoint in it, its indexes are built over what is held and its feed begins. From then on every change goes
into its indexes in the same step in which it goes into the store, and into its feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from headway.cache._gate import Applied, Gate
from headway.cache._indexes import Index, IndexTable, OnFailure
from headway.errors import HeadwayError, StoreChanged
from headway.events import Report, StaleRefused
from headway.resource import EndOfSnapshot, Key, Position, ResourceType, StreamItem, pb

LINGER_LIMIT = 100_000
"""How many changes are kept for a controller that has no run: as many as a store keeps of its history."""


class Subscription:
    """What one run has of a shared type: its feed and its indexes."""

    def __init__(self, shared: SharedType, gate: Gate, tables: dict[str, IndexTable]) -> None:
        self._shared = shared
        self.gate = gate
        self.tables = tables
        # The revision at which the subscription began: what it was built over is complete up to there.
        self.joined_at = gate.frontier
        self._feed: list[Applied] = []
        self._lingers = False
        self._gave_up = False
        self._failure: HeadwayError | None = None
        self._woken = trio.Event()

    def applied(self, applied: Sequence[Applied]) -> None:
        """The gate has applied these; called in the same step."""
        for table in self.tables.values():
            table.apply(applied)
        self._keep(applied)

    def overtaken(self, overtaken: Sequence[Applied]) -> None:
        """These happened and are not held; they are mapped alone."""
        self._keep(overtaken)

    def _keep(self, changes: Sequence[Applied]) -> None:
        if self._lingers and len(self._feed) + len(changes) > LINGER_LIMIT:
            self._feed, self._gave_up = [], True
        elif not self._gave_up:
            self._feed.extend(changes)

    def wake(self) -> None:
        """Something was applied or the frontier has moved."""
        self._woken.set()

    def fail(self, error: HeadwayError) -> None:
        """The data is void: the run must end."""
        self._failure = error
        self._woken.set()

    @property
    def pending(self) -> bool:
        """Whether something was applied that `next` has not handed out yet."""
        return bool(self._feed)

    def check(self) -> None:
        """Raise what has made the data void, if something has."""
        if self._failure is not None:
            raise self._failure

    async def next(self) -> list[Applied]:
        """Wait until something was applied or the frontier has moved, and return what was applied since last time.

        Raises StoreChanged or StoreWentBack when the data is void. Cancelled, it has taken nothing.
        """
        await self._woken.wait()
        self.check()
        self._woken = trio.Event()
        return self.take()

    def take(self) -> list[Applied]:
        """What was applied since last time, without waiting."""
        feed, self._feed = self._feed, []
        return feed

    def linger(self) -> None:
        """Its run has ended: go on with the feed alone, until the next run takes it.

        A feed that grows past LINGER_LIMIT is given up, so that a controller which can't start doesn't fill the memory.
        The next run then has what the cache holds and, for deletions, the store's history, as after a new start.
        """
        self.tables = {}
        self._lingers = True

    def close(self) -> None:
        """End the subscription. Idempotent."""
        self._shared.leave(self)


class SharedType:
    """Meets `watch.Sink`: the store of one type, fed by its follower, shared by all runs of the process.

    Attributes:
        gate: what is held. Another object after the store has been replaced by another one.
        heard: how many items its streams have brought so far.
    """

    def __init__(self, type: ResourceType[Any], report: Report) -> None:
        self.type = type
        self.gate = Gate()
        self.heard = 0
        self._report = report
        self._subscriptions: list[Subscription] = []
        self._distrusted = False
        self._failure: HeadwayError | None = None
        self._progress = trio.lowlevel.ParkingLot()

    # --- as the follower's sink ---

    @property
    def store_id(self) -> str:
        """See `watch.Sink`."""
        return self.gate.store_id

    @property
    def frontier(self) -> int:
        """See `watch.Sink`."""
        return self.gate.frontier

    @property
    def distrusted(self) -> bool:
        """See `watch.Sink`."""
        return self._distrusted

    @property
    def resume_after(self) -> Position | None:
        """See `watch.Sink`."""
        gate = self.gate
        if not gate.primed or self._distrusted:
            return None
        return Position(gate.store_id, gate.incarnation, gate.frontier)

    def restart(self) -> None:
        """See `watch.Sink`."""
        self.gate.restart()

    def distrust(self) -> None:
        """See `watch.Sink`."""
        self._distrusted = True

    def feed(self, item: StreamItem) -> None:
        """See `watch.Sink`."""
        self.heard += 1
        gate = self.gate
        stale = gate.refused.changes + gate.refused.snapshots
        applied = gate.feed(item)
        if isinstance(item, EndOfSnapshot) and item.position.revision >= gate.frontier:
            self._distrusted = False
        count = gate.refused.changes + gate.refused.snapshots
        if count > stale:
            self._report(StaleRefused(self.type.name, type(item).__name__, count))
        self._tell(applied)

    # --- for the runs ---

    @property
    def went_back(self) -> bool:
        """Whether the data is void and nobody has accepted the store as it is now."""
        return self._failure is not None

    def check(self) -> None:
        """Raise StoreWentBack if the store went back."""
        if self._failure is not None:
            raise self._failure

    @property
    def resources(self) -> int:
        """How many are held; while the first snapshot comes in, how many have come."""
        return len(self.gate.entries) if self.gate.primed else self.gate.gathered

    def reply(self, key: Key, stored: pb.Resource | None, position: Position) -> None:
        """Apply what a write was answered (C5). Raises StoreChanged when another store answered."""
        self._tell(self.gate.reply(key, stored, position))

    async def wait_complete(self, revision: int) -> int:
        """Wait until the store is primed and complete up to ``revision``; returns its frontier.

        Raises StoreChanged or StoreWentBack when that can't be.
        """
        await trio.lowlevel.checkpoint()
        gate = self.gate
        while not (gate.primed and gate.frontier >= revision):
            self.check()
            await self._progress.park()
            if self.gate is not gate:
                raise StoreChanged(f"the store of {self.type.name} was replaced while it was being primed")
        self.check()
        return gate.frontier

    def subscribe(self, indexes: Sequence[Index[Any]], on_failure: OnFailure) -> Subscription:
        """Join: build the indexes over what is held now, and feed what comes after. No checkpoint in it."""
        tables = {index.name: IndexTable(index, self.type, on_failure) for index in indexes}
        for table in tables.values():
            table.build(self.gate.entries)
        subscription = Subscription(self, self.gate, tables)
        self._subscriptions.append(subscription)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """End a subscription. Idempotent."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def void(self, error: HeadwayError, *, replaced: bool) -> None:
        """The data is void; every run that subscribes must end. ``replaced``: begin anew with the other store."""
        if replaced:
            self.gate = Gate()
            self._distrusted = False
            self._failure = None
        else:
            self._failure = error
        for subscription in self._subscriptions:
            subscription.fail(error)
        self._subscriptions = []
        self._progress.unpark_all()

    def _tell(self, applied: list[Applied]) -> None:
        overtaken = self.gate.take_overtaken()
        for subscription in self._subscriptions:
            if applied:
                subscription.applied(applied)
            if overtaken:
                subscription.overtaken(overtaken)
            subscription.wake()
        self._progress.unpark_all()
