"""The mapping of a run: it takes changes from the caches of its types, and maps those that all types have reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from headway.base import BoundedReport, give_way
from headway.cache import Applied, CacheReader, Subscription
from headway.controller import Definition
from headway.journal import ControllerJournal
from headway.mapper import MapQueue
from headway.reconcile import MAPPING, Lifetimes
from headway.resource import TypeName
from headway.run._change_mapper import ChangeMapper, SupportsAdd
from headway.run._mapping_retries import STEP, TURN, MappingRetries
from headway.run._self_triggers import SelfTriggers


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


class RunMapping:
    """The mapping of a run. It maps a change when all types have reached it (C4).

    Attributes:
        changes: the changes that are not mapped yet.
        mapper: maps one change.
        retries: the changes whose mapping has failed.
    """

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
        new_mapper: Callable[..., ChangeMapper] = ChangeMapper,
    ) -> None:
        self._subscriptions = subscriptions
        self._lifetimes = lifetimes
        self._on_progress = on_progress
        self.changes = MapQueue()
        self.mapper = new_mapper(definition, cache, subscriptions, self_triggers, journal, queue)
        self.retries = MappingRetries(definition, self.changes, self.mapper, bounded, on_progress)

    @property
    def complete(self) -> int:
        """The revision that every type of the run has reached."""
        return min(subscription.revision for subscription in self._subscriptions.values())

    def reach(self, revision: int) -> int:
        """Return the revision that every type has reached. If it is below another, there is progress once it is not."""
        return min([subscription.reach(revision) for subscription in self._subscriptions.values()])

    @property
    def is_idle(self) -> bool:
        """True if every received change has been mapped."""
        return not self.changes and not any(each.pending for each in self._subscriptions.values())

    @property
    def unmapped(self) -> int:
        """The number of changes that were received and not mapped. A resource whose mapping failed counts as one."""
        return len(self.changes)

    async def owed(self) -> list[tuple[TypeName, Applied]]:
        """Return the changes that were taken from the feeds and are not mapped. There may be as many as are cached."""
        owed: list[tuple[TypeName, Applied]] = []
        for each in self.changes.drain():
            owed.append(each)
            if len(owed) % STEP == 0:
                await trio.lowlevel.checkpoint()
        return owed

    async def watch(self, type: TypeName, subscription: Subscription) -> None:
        """Take changes of one type from its feed and map those that are ready, until canceled."""
        while True:
            applied = await subscription.next()
            self.changes.push(type, applied)
            if self._lifetimes.scopes:
                self._lifetimes.cancel_ended(type, applied)
            await self.map_ready()

    async def map_ready(self) -> None:
        """Map and enqueue every change that all types have reached.

        Each change is one step without a checkpoint. It is either completely in the reconcile queue or still in the map
        queue. Slow mappers have a checkpoint between them, so that a backlog of any length leaves time to renew leases.
        """
        at_work, map_change = self.mapper.at_work, self.mapper.map_change
        MAPPING.set(at_work)
        step, clock = 0, trio.lowlevel.current_clock().current_time
        until = clock() + TURN
        complete = asked = 0
        while True:
            # Frontiers move only at checkpoints, so ask once for each revision, and again after a checkpoint.
            if asked != (first := self.changes.first) > complete:
                complete, asked = self.reach(first), first
            if (item := self.changes.pop(complete)) is None:
                break
            try:
                map_change(item.type, item.applied, backlog=item.backlog)
            except BaseException as raised:  # noqa: BLE001  # what must not be kept is raised again
                # A user's function may raise anything; the change is kept.
                self.retries.keep(item, raised)
            step += 1
            if step == STEP or clock() >= until:
                await give_way()
                asked, step, until = 0, 0, clock() + TURN
        at_work.key = None
        self._on_progress()
