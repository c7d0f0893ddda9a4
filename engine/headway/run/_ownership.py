"""The ownership of keys: which keys of a controller this process reconciles, and under which fence.

A run is the same for every placement. Its *ownership* has the work queue, decides which keys enter it at the start, and
records in the store the revision up to which no deletion is pending. `EveryKey` owns all keys under the run's fence. A
`headway.controller.Division` makes another one.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import trio
from typing_extensions import override

from headway.client import HeldLease, LeaseClient, RunFence, Writes
from headway.controller import Definition, Reconciler
from headway.errors import Fenced, HeadwayError, RemoteError
from headway.events import CallDelayed, Report
from headway.queue import BACKLOG, RankedQueue, WaitingQueue, WorkQueue
from headway.reconcile import Fence, Reason, Runtime
from headway.resource import Key
from headway.run._change_mapper import SupportsAdd
from headway.run._fence import Hold, RunWrites
from headway.run._mapping import Progress, RunMapping
from headway.run._owed import add_start
from headway.run._priming import Deletions, RunCaches

RECORD_INTERVAL = 5.0
_MOST_VISITED = 20_000


@dataclass(frozen=True, slots=True)
class PrimedRun:
    """The parts of a run that its ownership works with, once the run is primed.

    Attributes:
        ownership: the keys that belong to this process, with their queue.
        lease: the lease under which the whole run runs; None if it needs none.
        progress: the progress of the run.
        new_runtime: creates a reconcile context under another fence.
        new_mapping: creates a further mapping of the run, into a queue of its own and with a callback for progress.
    """

    definition: Definition
    fence_name: str
    lease: HeldLease | None
    leases: LeaseClient
    report: Report
    caches: RunCaches
    ownership: Ownership
    writes: RunWrites
    mapping: RunMapping
    progress: Progress
    new_runtime: Callable[[Fence], Runtime]
    new_mapping: Callable[[SupportsAdd, Callable[[], None]], RunMapping]

    def hold(self) -> Hold | None:
        """Return the first write that holds back every key until its outcome is known, or None."""
        if not (further := self.ownership.further_writes()):
            return self.writes.hold
        writes = (self.writes, *further)
        return min((each.hold for each in writes if each.hold is not None), default=None, key=lambda each: each.since)

    def mapped(self) -> int:
        """Return the revision up to which every change is mapped and every write is resolved, or 0."""
        if not self.mapping.is_idle or self.hold() is not None or self.caches.distrusted:
            return 0
        return self.mapping.complete


class Ownership(ABC):
    """The keys of one run that belong to this process.

    Args:
        new_queue: makes the work queue of the run, given the one without I/O.
        member: this process, among those that may run the controller, as the run's fence names it.
    """

    def __init__(self, of: Definition, member: str, new_queue: Callable[[Any], WaitingQueue[Key, Reason]]) -> None:
        self.machine: WorkQueue[Key, Reason] = WorkQueue(of.backoff, min_interval=of.min_interval)
        if of.priority is not None:
            self.machine = RankedQueue(lambda key: self.priority(key), of.backoff, of.min_interval)
        self.priority: Callable[[Key], int] = lambda _: 0  # set by the run
        self.queue = new_queue(self.machine)
        self.member = member

    def shards(self) -> tuple[int, ...] | None:
        """Return the shards of this process; None unless the controller is sharded."""
        return None

    def shard_number(self, key: Key) -> int | None:  # noqa: ARG002  # there are no shards
        """Return the number of a key's shard; None unless the controller is sharded."""
        return None

    def further_writes(self) -> Collection[RunWrites]:
        """Return the writes that carry other fences than the run's own."""
        return ()

    def writes(self, own: RunWrites) -> Writes:
        """Return the writes of the run's client, given those under the run's fence."""
        return own

    def reconciler(self, declared: Reconciler[Any]) -> Reconciler[Any]:
        """Return the function that reconciles a key, given the declared one."""
        return declared

    def runtime_for(self, key: Key) -> Runtime | None:  # noqa: ARG002  # all keys have the run's
        """Return the reconcile context of a key, or None if it uses the run's context."""
        return None

    def is_idle(self) -> bool:
        """Return True if no key is pending and this process already owns every key that it should."""
        return self.queue.is_idle()

    async def missed(self, caches: RunCaches, raised: RunFence) -> Deletions:  # noqa: ARG002  # none
        """Return the deletions that happened before the run subscribed, which it still has to map."""
        return {}

    def begin(self, run: PrimedRun, missed: Deletions) -> None:  # noqa: B027  # by default, no key is owned at first
        """Enqueue the cached resources, and those to be mapped, as backlog. Contains no checkpoint."""

    @abstractmethod
    async def serve(self, run: PrimedRun) -> None:
        """Acquire and release keys, and record checkpoints, as long as the run lasts."""

    async def end(self, run: PrimedRun) -> None:  # noqa: B027  # by default, `serve` has recorded all
        """Record the last checkpoint. Everything else of the run has ended."""


class EveryKey(Ownership):
    """The ownership of all keys, under the fence of the run."""

    def __init__(self, definition: Definition, member: str = "") -> None:
        super().__init__(definition, member, WaitingQueue)
        self._recorded = 0

    @override
    async def missed(self, caches: RunCaches, raised: RunFence) -> Deletions:
        until = {name: subscription.subscribed_at for name, subscription in caches.subscriptions.items()}
        return await caches.deletions(raised.position, raised.checkpoint, until)

    @override
    def begin(self, run: PrimedRun, missed: Deletions) -> None:
        managed = run.caches.subscriptions[run.definition.manages.name]
        self.queue.add_all(managed.store.entries, Reason("started"), priority=BACKLOG)
        add_start(run.mapping, run.definition, run.caches.subscriptions, missed)

    @override
    async def serve(self, run: PrimedRun) -> None:
        # If recording fails, the next run reconciles more than necessary, but nothing is lost. Fenced ends the run.
        while True:
            await trio.sleep(RECORD_INTERVAL)
            try:
                await self._record(run, self._owes_no_deletion(run))
            except RemoteError as error:
                run.report(CallDelayed(run.definition.full_name, "RecordSettled", error, RECORD_INTERVAL))

    def _owes_no_deletion(self, run: PrimedRun) -> bool:
        """Return True if every pending key is one that the next run begins with, whatever the history has."""
        managed = run.caches.subscriptions[run.definition.manages.name].store.entries
        return self.is_idle() or (len(managed) <= _MOST_VISITED and self.machine.owes_only(managed))

    @override
    async def end(self, run: PrimedRun) -> None:
        with trio.move_on_after(1, shield=True), contextlib.suppress(HeadwayError):
            # A key in hand may have added a watch, so that the next run looks for deletions of another type.
            await self._record(run, self.is_idle())

    async def _record(self, run: PrimedRun, done: bool) -> None:
        """Record in the store the revision up to which no deletion is pending (C6, across runs)."""
        checkpoint = run.mapped() if done else 0
        if run.lease is not None and not run.lease.held:
            return
        if checkpoint > self._recorded and (fence := run.writes.fence) is not None:
            try:
                await run.leases.record_checkpoint(fence, checkpoint, run.caches.known)
            except Fenced:
                # The run itself raises its fence to resolve a write.
                if run.hold() is None and run.writes.fence == fence:
                    raise
            else:
                self._recorded = checkpoint
