"""One run of a controller, from its fence to its end.

The course of a run:

1. A commit raises the fence (C3), so that pending writes of the previous run can no longer be stored.
2. The initialiser runs, if there is one, and the fence is raised again, above the initialiser's writes. The revision
   of the last raise is the run's *starting revision*.
3. A nursery runs N+1 priming tasks, one for each type. A task ends when its type's store has passed an EndOfSnapshot
   and is complete up to the starting revision. In that step it subscribes, so that no later change of the type is
   missed. The run then waits until every type has reached the highest of their revisions: its first reconciles see
   one cut. No mapper and no reconciler has run yet (C1).
4. Resources deleted before the subscriptions began are in no cache. The run reads these deletions from the store's
   history, from the checkpoint of the previous run on. The first run of all starts at its own first fence (C6).
5. A second nursery runs the N+1 long-lived watches, the mapping's retries, the workers, the sources, and the
   resolution of unknown writes. The cache and those deletions are enqueued as backlog, after what the previous run
   in this process still owed.

A run ends by an error or by cancellation. Its nurseries have then closed, so the next run cannot overlap it (C7).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import trio

from headway._bounded_report import BoundedReport
from headway._groups import guarded, of_controller, only_error
from headway._safe_text import repr_text
from headway.cache import Cache, CachedType, Informers, Subscription, stored_type
from headway.client import Client, HeldLease, LeaseClient, RunFence, Writes
from headway.controller import Definition, Enqueue
from headway.errors import EngineBug, HeadwayError, InvalidArgument, RemoteError, StoreChanged
from headway.events import CallDelayed, Primed, Priming, Report, RunStarted
from headway.mapper import ids_of
from headway.queue import BACKLOG, WaitingQueue, WorkQueue
from headway.reconcile import Declared, Lifetimes, Reason, Runtime
from headway.resource import Key, Position, Registry, ResourceId, TypeName
from headway.rpc import Channel
from headway.run._callbacks import call
from headway.run._fence import RunWrites
from headway.run._mapping import Keys, Owed, RunMapping
from headway.run._own_writes import SelfTriggers
from headway.run._priming import Deletions, deletions_since, report_indexes, wait_primed
from headway.run._status import ControllerStatus, Phase, Results, type_statuses
from headway.run._worker import Worker

RECORD_INTERVAL = 5.0
_NOTHING = Owed()
STALL_LIMIT = 60.0


class Run:
    """A run of a controller. Call `run` once.

    Args:
        fence_name: the name under which the store keeps the controller's fence.
        member: this process, among those that may run the controller.
        owed: the work that the previous run in this process left.
        stall_limit: the time, in seconds, within which a type being primed must receive something.

    Attributes:
        began: the time of its creation, on Trio's clock.
        lease: the lease under which it runs, to be set before `run`; None if it needs none.
    """

    def __init__(
        self,
        definition: Definition,
        *,
        informers: Informers,
        channel: Channel,
        registry: Registry,
        report: Report,
        fence_name: str,
        member: str,
        owed: Owed = _NOTHING,
        stall_limit: float = STALL_LIMIT,
    ) -> None:
        self.began = trio.current_time()
        self.lease: HeldLease | None = None
        self._definition = definition
        self._informers = informers
        self._channel = channel
        self._report = report
        self._bounded = BoundedReport(report)
        self._fence_name = fence_name
        self._member = member
        self._owed = owed
        self._stall_limit = stall_limit
        self._lease = LeaseClient(channel)
        self._queue = self._make_queue(WorkQueue(definition.backoff))
        self._writes = RunWrites(definition.name, informers, self._queue, report, self._note_progress)
        self._cache = Cache(
            definition.name, definition.manages, definition.watches, definition.queries, informers.isolation
        )
        self._self_triggers = SelfTriggers(self._writes.own)
        self._results = Results()
        self._lives, declared = (
            Lifetimes(self._cache, definition.types),
            Declared(definition.name, definition.types, definition.reads, definition.writes),
        )
        client = Client(channel, registry, self._client_writes(), allow=declared)
        self._runtime = Runtime(definition.name, definition.watches, self._cache, client, self._lives, declared, report)
        self._mapping = self._make_mapping(self._queue, self._note_progress)
        self._subscriptions: dict[TypeName, Subscription] = {}
        self._worker: Worker | None = None
        self._begun = False
        self._phase: Phase = "starting"
        self._phase_began = trio.current_time()
        self._starting_revision = 0
        # True once an engine has accepted this run's fence.
        self.answered = False
        self._recorded = 0
        self._progress = trio.lowlevel.ParkingLot()

    # --- the parts that a sharded run overrides ---

    def _make_queue(self, machine: WorkQueue[Key, Reason]) -> WaitingQueue[Key, Reason]:
        return WaitingQueue(machine)

    def _client_writes(self) -> Writes:
        return self._writes

    def _make_mapping(self, queue: Keys, on_progress: Callable[[], None]) -> RunMapping:
        return RunMapping(
            self._definition,
            self._cache,
            queue,
            self._bounded,
            on_progress,
            own=self._writes.own,
            self_triggers=self._self_triggers,
            lives=self._lives,
        )

    async def _missed(self, raised: RunFence) -> Deletions:
        """Return the deletions from before the subscriptions began."""
        until = {name: subscription.joined_at for name, subscription in self._subscriptions.items()}
        return await self._deletions(raised.position, raised.checkpoint, until)

    def _queue_held(self, mapping: RunMapping, deleted: Deletions) -> None:
        """Enqueue the cached resources, and those to be mapped, as backlog. Contains no checkpoint."""
        manages = self._definition.manages.name
        self._queue.add_all(self._subscriptions[manages].gate.entries, Reason("started"), priority=BACKLOG)
        self._map_held(mapping, deleted)

    def _map_held(self, mapping: RunMapping, deleted: Deletions) -> None:
        for name in self._subscriptions:
            if name != self._definition.manages.name or self._definition.manages in self._definition.watches:
                mapping.add_held(name)
            mapping.add_backlog(name, deleted.get(name, []))

    def _start_beside(self, nursery: trio.Nursery) -> None:
        """Start further tasks that run as long as the run."""

    async def run(self) -> NoReturn:
        """Run until canceled. Raises the error that ended the run, such as a source's error, StoreChanged or Fenced."""
        ended_by: BaseException | None = None
        try:
            for type in self._definition.types:
                # Don't write to a store that was rolled back, just as it is not read. This opens no stream.
                for known in self._informers.known(type):
                    known.check()
            raised = await self._start()
            self._starting_revision = raised.position.revision
            self.answered = True
            self._enter("priming")
            await self._prime(raised.position)
            deleted = await self._missed(raised)
            await self._live(raised.position.revision, deleted)
        except BaseException as error:
            ended_by = error
            raise
        finally:
            # Do this while the subscriptions exist: without them the frontier would pass changes that are not mapped.
            await self._record_last()
            await self._stopped(ended_by)
            self._cache.close()
            self._queue.close()
            for subscription in self._subscriptions.values():
                if self._begun:
                    subscription.linger()
                else:
                    subscription.close()
            self._progress.unpark_all()
        raise EngineBug("a run ended by itself")

    async def _stopped(self, ended_by: BaseException | None) -> None:
        """Call ``on_stop``. Everything else of the run has ended, and the cache can still be read."""
        failed = None if ended_by is None else of_controller(ended_by)[0]
        error = None if failed is None else only_error(failed)
        with trio.CancelScope(shield=True):
            await call(self._report, self._definition.name, "on_stop", self._definition.on_stop, self._runtime, error)

    def owed(self) -> Owed:
        """Return the work that this run leaves to the next one. Call it when the run has ended."""
        if not self._begun:
            return self._owed
        feeds = tuple(self._subscriptions.items())
        return Owed(self._queue.owed(), self._mapping.owed(), feeds, self._writes.store_id)

    def scheduled(self) -> list[Key]:
        """Return the keys that wait only for a time that they requested."""
        return list(self._queue.scheduled())

    def runtime_for(self, key: Key) -> Runtime:  # noqa: ARG002  # a sharded run needs it
        """Return the runtime for a reconcile of the key."""
        return self._runtime

    async def wait_progress(self) -> None:
        """Wait until something has been mapped or reconciled, or until the run has ended."""
        await self._progress.park()

    def checkpoint(self) -> int:
        """Return the revision up to which this run owes nothing, or 0 while it owes something."""
        if not self._begun or not self._mapping.owes_nothing or not self._queue.is_idle() or self._queue.held:
            return 0
        distrusted = any(self._informers.shared(type).distrusted for type in self._definition.types)
        return 0 if distrusted else self._mapping.complete

    def status(self) -> ControllerStatus:
        """Return the state of this run."""
        now = trio.current_time()
        known = [each for type in self._definition.types for each in self._informers.known(type) if each.type is type]
        queue = self._queue.statistics() if self._begun else None
        oldest = queue.oldest_queued_at if queue is not None else None
        return ControllerStatus(
            name=self._definition.name,
            phase=self._phase,
            seconds=now - self._phase_began,
            term=self._runtime.term,
            starting_revision=self._starting_revision,
            settled=self.checkpoint(),
            types=type_statuses(known, self._starting_revision, now),
            concurrency=self._definition.concurrency,
            queue=queue,
            running=() if self._worker is None else self._worker.running(),
            oldest_wait=None if oldest is None else max(now - oldest, 0.0),
            holding="the outcome of a write is unknown and is being resolved" if self._queue.held else "",
            unmapped=self._mapping.unmapped if self._begun else 0,
            not_done=self._results.list(),
            not_done_count=len(self._results.not_done),
        )

    def _enter(self, phase: Phase) -> None:
        self._phase, self._phase_began = phase, trio.current_time()

    def _note_progress(self) -> None:
        if self._progress:
            self._progress.unpark_all()

    # --- priming ---

    async def _start(self) -> RunFence:
        """Raise the fence, whose commit is the starting revision (C3), and run the initialiser."""
        # Under a lease, the fence is raised in the lease's term. This is the only run in that term.
        term, number = (0, 0) if self.lease is None else (self.lease.term, 1)
        raised = await self._writes.raise_first(self._lease, self._fence_name, self._member, term=term, number=number)
        self._runtime.term = raised.fence.term
        self._runtime.strong.began_at = raised.position.revision
        if self._definition.initialiser is not None:
            await guarded(self._definition.initialiser, self._runtime)
            # The initialiser's writes carried the fence. Because of a second commit, the run sees them from its start.
            checkpoint = raised.checkpoint
            raised = (await self._writes.raise_again(self._lease))._replace(checkpoint=checkpoint)
            self._runtime.strong.began_at = raised.position.revision
        return raised

    async def _prime(self, start: Position) -> None:
        self._cache.begin_priming()
        async with trio.open_nursery() as nursery:
            for type in self._definition.types:
                nursery.start_soon(self._prime_type, type, start, name=f"priming {type.name}")
        cut = max(subscription.joined_at for subscription in self._subscriptions.values())
        for type in self._definition.types:
            await self._informers.shared(type).wait_complete(cut)

    async def _prime_type(self, type: CachedType[Any], start: Position) -> None:
        """Fill the store of one type, and do nothing else (C1). This is one of the N+1 priming tasks."""
        name = self._definition.name
        self._report(Priming(name, type.name, start.revision))
        began = trio.current_time()
        shared = self._informers.shared(type)
        await wait_primed(shared, start.revision, self._stall_limit)
        if shared.store_id != start.store_id:
            raise StoreChanged(
                f"the cache of {type.name} belongs to store {shared.store_id}, but the fence to {start.store_id}"
            )
        # No checkpoint since the check, so every change from here on enters the feed.
        subscription = shared.subscribe(
            self._definition.indexes_of(type), report_indexes(self._bounded, name, type.name)
        )
        self._subscriptions[type.name] = subscription
        count, seconds = len(subscription.gate.entries), trio.current_time() - began
        self._report(Primed(name, type.name, count, subscription.joined_at, seconds))

    async def _deletions(self, start: Position, after: int, until: Mapping[TypeName, int]) -> Deletions:
        """Return the deletions after a revision, up to a revision for each type, as far as the history has them."""
        since = start._replace(revision=after)
        found: Deletions = {}
        for type in self._definition.types:
            up_to = until[type.name]
            if up_to > since.revision:
                deleted = await deletions_since(
                    self._channel, stored_type(type), since, up_to, self._report, self._definition.name
                )
                if deleted is not None:
                    held = self._informers.shared(type).held
                    found[type.name] = [each._replace(old=each.old and held(each.old)) for each in deleted]
        return found

    # --- the second nursery ---

    async def _live(self, starting_revision: int, deleted: Deletions) -> None:
        definition = self._definition
        self._begin(deleted)
        self._report(RunStarted(definition.name, self._runtime.term, starting_revision, self._queue.statistics().ready))
        await call(self._report, definition.name, "on_start", definition.on_start, self._runtime)
        worker = self._worker = Worker(
            definition,
            self._runtime,
            self._queue,
            self._report,
            self._note_progress,
            self._self_triggers,
            self._results,
        )
        async with trio.open_nursery() as nursery:
            for type in definition.types:
                subscription = self._subscriptions[type.name]
                nursery.start_soon(self._mapping.watch, type.name, subscription, name=f"watching {type.name}")
            shared = self._writes.cached = [self._informers.shared(type) for type in definition.types]
            nursery.start_soon(self._writes.settle, self._lease, shared, name="settling unknown writes")
            nursery.start_soon(self._mapping.map_ready, name="mapping the backlog")
            nursery.start_soon(self._mapping.retry, name="retrying mappers")
            nursery.start_soon(self._record, name="recording checkpoints")
            nursery.start_soon(worker.watchdog, name="watching for slow reconciles")
            nursery.start_soon(self._bounded.report_rest, name="reporting the rest")
            self._start_beside(nursery)
            for name, source in definition.sources.items():
                enqueue = self._enqueue(f"source {name}")
                nursery.start_soon(guarded, source, self._runtime, enqueue, name=f"source {name}")
            for number in range(definition.concurrency):
                nursery.start_soon(worker.work, name=f"worker {number} of {definition.name}")

    def _begin(self, deleted: Deletions) -> None:
        """Open the cache to readers and enqueue what is owed. Contains no checkpoint."""
        for subscription in self._subscriptions.values():
            subscription.check()
        self._begun = True
        self._enter("running")
        self._mapping.open(self._subscriptions)
        self._cache.open(self._subscriptions)
        for key in self._owed.keys:
            self._queue.add(key, Reason("owed"))
        self._mapping.add_owed(self._owed, self._writes.store_id)
        self._queue_held(self._mapping, deleted)

    def _enqueue(self, what: str) -> Enqueue:
        reason = Reason(what)

        def enqueue(id: ResourceId) -> None:
            keys, problems = ids_of([id], self._definition.manages)
            if problems:
                raise InvalidArgument(
                    f"{what} enqueued {repr_text(id)}; {problems[0]}: enqueue ids of "
                    f"{self._definition.manages.name}, as from TYPE.id(name)"
                )
            self._mapping.add(keys[0], reason)

        return enqueue

    # --- checkpoints ---

    async def _record(self) -> None:
        """Record in the store, at intervals, the revision up to which nothing is owed (C6, across runs)."""
        # If recording fails, the next run reconciles more than necessary, but nothing is lost. Fenced ends the run.
        while True:
            await trio.sleep(RECORD_INTERVAL)
            try:
                await self._record_now()
            except RemoteError as error:
                self._report(CallDelayed(self._definition.name, "RecordSettled", error, RECORD_INTERVAL))

    async def _record_now(self) -> None:
        checkpoint = self.checkpoint()
        if self.lease is not None and not self.lease.held:
            return
        if checkpoint > self._recorded and self._writes.fence is not None:
            await self._lease.record_checkpoint(self._writes.fence, checkpoint)
            self._recorded = checkpoint

    async def _record_last(self) -> None:
        with trio.move_on_after(1, shield=True), contextlib.suppress(HeadwayError):
            await self._record_now()
