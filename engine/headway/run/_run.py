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
   in this process left pending.

A run ends by an error or by cancellation. Its nurseries have then closed, so the next run cannot overlap it (C7).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import trio

from headway.base import BoundedReport, guarded, of_controller, only_error, repr_text
from headway.cache import Cache, Informers
from headway.client import Client, HeldLease, LeaseClient, RunFence
from headway.controller import Definition, Enqueue
from headway.errors import EngineBug, InvalidArgument
from headway.events import CallbackFailed, Report, RunStarted
from headway.mapper import ids_of
from headway.reconcile import Declared, Lifetimes, Reason, Runtime
from headway.resource import Key, Registry, ResourceId
from headway.rpc import Channel
from headway.run._fence import RunWrites
from headway.run._mapping import Owed, Progress, RunMapping
from headway.run._own_writes import SelfTriggers
from headway.run._ownership import Ownership, PrimedRun
from headway.run._priming import STALL_LIMIT, Deletions, RunCaches
from headway.run._status import ControllerStatus, Phase, Results, type_statuses
from headway.run._worker import Worker

_NOTHING = Owed()
CALLBACK_DEADLINE = 10.0
"""The deadline of `on_start` and `on_stop`, in seconds. After it, they are canceled and count as failed."""


class Run:
    """A run of a controller. Call `run` once.

    Args:
        fence_name: the name under which the store keeps the controller's fence.
        member: this process, among those that may run the controller.
        ownership: the keys that belong to this process.
        lease: the lease under which it runs; None if it needs none.
        owed: the work that the previous run in this process left.
        stall_limit: the time, in seconds, within which a type being primed must receive something.

    Attributes:
        began: the time of its creation, on Trio's clock.
        answered: True once an engine has accepted this run's fence.
        progress: a signal for each mapping, reconcile and resolved write, and for the end of the run.
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
        ownership: Ownership,
        lease: HeldLease | None = None,
        owed: Owed = _NOTHING,
        stall_limit: float = STALL_LIMIT,
    ) -> None:
        self.began = self._phase_began = trio.current_time()
        self.answered = False
        self._definition = definition
        self._report = report
        self._bounded = BoundedReport(report)
        self._fence_name = fence_name
        self._member = member
        self._ownership = ownership
        self._lease = lease
        self._owed = owed
        self._leases = LeaseClient(channel)
        self.progress = Progress()
        self._caches = RunCaches(definition, informers, channel, report, self._bounded, stall_limit)
        self._writes = RunWrites(
            definition.name, self._leases, self._caches, ownership.queue, report, self.progress.note
        )
        self._cache = Cache(
            definition.name, definition.manages, definition.watches, definition.queries, informers.isolation
        )
        self._self_triggers = SelfTriggers(self._writes.own)
        self._lifetimes = Lifetimes(self._cache, definition.types)
        self._results = Results()
        declared = Declared(definition.name, definition.types, definition.reads, definition.writes)
        client = Client(channel, registry, ownership.writes(self._writes), allow=declared)
        self._new_runtime = partial(
            Runtime, definition.name, definition.watches, self._cache, client, self._lifetimes, declared, report
        )
        self._runtime = self._new_runtime(self._writes)
        self._primed: PrimedRun | None = None
        self._worker: Worker | None = None
        self._phase: Phase = "starting"

    async def run(self) -> NoReturn:
        """Run until canceled. Raises the error that ended the run, such as a source's error, StoreChanged or Fenced."""
        ended_by: BaseException | None = None
        try:
            # Don't write to a store that was rolled back, just as it is not read.
            self._caches.check_store()
            raised = await self._start()
            self.answered = True
            self._enter("priming")
            self._cache.begin_priming()
            await self._caches.prime(raised.position)
            missed = await self._ownership.missed(self._caches, raised)
            await self._live(missed)
        except BaseException as error:
            ended_by = error
            raise
        finally:
            # Do this while the subscriptions exist: without them the frontier would pass changes that are not mapped.
            if self._primed is not None:
                await self._ownership.end(self._primed)
            await self._stopped(ended_by)
            self._cache.close()
            self._ownership.queue.close()
            for subscription in self._caches.subscriptions.values():
                if self._primed is not None:
                    subscription.linger()
                else:
                    subscription.close()
            self.progress.note()
        raise EngineBug("a run ended by itself")

    async def _stopped(self, ended_by: BaseException | None) -> None:
        """Call ``on_stop``. Everything else of the run has ended, and the cache can still be read."""
        failed = None if ended_by is None else of_controller(ended_by)[0]
        error = None if failed is None else only_error(failed)
        with trio.CancelScope(shield=True):
            await self._call("on_stop", self._definition.on_stop, self._runtime, error)

    def owed(self) -> Owed:
        """Return the work that this run leaves to the next one. Call it when the run has ended."""
        if self._primed is None:
            return self._owed
        feeds = tuple(self._caches.subscriptions.items())
        return Owed(self._ownership.queue.owed(), self._primed.mapping.owed(), feeds, self._writes.store_id)

    def scheduled(self) -> dict[Key, float]:
        """Return the keys that wait only for a time that they requested, with that time."""
        return self._ownership.queue.scheduled()

    def runtime_for(self, key: Key) -> Runtime:
        """Return the reconcile context of a key."""
        return self._ownership.runtime_for(key) or self._runtime

    def checkpoint(self) -> int:
        """Return the revision up to which this run has no pending work, or 0 if some work is pending."""
        run = self._primed
        return run.mapped() if run is not None and run.mapping.is_idle and self._ownership.is_idle() else 0

    def status(self) -> ControllerStatus:
        """Return the state of this run."""
        now = trio.current_time()
        known = [
            each for type in self._definition.types for each in self._caches.informers.opened(type) if each.type is type
        ]
        # A run that is still starting has no revision to wait for: the initialiser raises the fence again.
        starting_revision = self._writes.starting_revision if self.answered else 0
        queue = self._ownership.queue.statistics() if self._primed is not None else None
        oldest = queue.oldest_queued_at if queue is not None else None
        held = self._ownership.queue.held
        return ControllerStatus(
            name=self._definition.name,
            phase=self._phase,
            seconds=now - self._phase_began,
            term=self._runtime.term,
            starting_revision=starting_revision,
            settled=self.checkpoint(),
            types=type_statuses(known, starting_revision, now),
            concurrency=self._definition.concurrency,
            queue=queue,
            running=() if self._worker is None else self._worker.running(),
            oldest_wait=None if oldest is None else max(now - oldest, 0.0),
            holding="the outcome of a write is unknown and is being resolved" if held else "",
            unmapped=0 if self._primed is None else self._primed.mapping.unmapped,
            not_done=self._results.list(),
            not_done_count=len(self._results.not_done),
            shards=self._ownership.shards(),
        )

    def _enter(self, phase: Phase) -> None:
        self._phase, self._phase_began = phase, trio.current_time()

    async def _start(self) -> RunFence:
        """Raise the fence, whose commit is the starting revision (C3), and run the initialiser."""
        # Under a lease, the fence is raised in the lease's term. This is the only run in that term.
        term, number = (0, 0) if self._lease is None else (self._lease.term, 1)
        raised = await self._writes.raise_first(self._fence_name, self._member, term=term, number=number)
        if self._definition.initialiser is not None:
            await guarded(self._definition.initialiser, self._runtime)
            # The initialiser's writes carried the fence. Because of a second commit, the run sees them from its start.
            again = await self._writes.raise_again()
            raised = again._replace(checkpoint=raised.checkpoint)
        return raised

    async def _live(self, missed: Deletions) -> None:
        """Map, reconcile and watch, until canceled."""
        definition, writes, report = self._definition, self._writes, self._report
        run = self._begin(missed)
        ready = run.queue.statistics().ready
        report(RunStarted(definition.name, self._runtime.term, writes.starting_revision, ready))
        await self._call("on_start", definition.on_start, self._runtime)
        worker = self._worker = Worker(
            definition,
            self._ownership.reconciler(definition.reconcile),
            self._runtime,
            run.queue,
            report,
            self.progress.note,
            self._self_triggers,
            self._results,
        )
        async with trio.open_nursery() as nursery:
            for type, subscription in self._caches.subscriptions.items():
                nursery.start_soon(run.mapping.watch, type, subscription, name=f"watching {type}")
            nursery.start_soon(writes.resolve, name="resolving unknown writes")
            nursery.start_soon(run.mapping.map_ready, name="mapping the backlog")
            nursery.start_soon(run.mapping.retry, name="retrying mappers")
            nursery.start_soon(self._ownership.serve, run, name=f"the ownership of keys of {definition.name}")
            nursery.start_soon(worker.watchdog, name="watching for slow reconciles")
            nursery.start_soon(self._bounded.report_rest, name="reporting the rest")
            for name, source in definition.sources.items():
                enqueue = self._enqueue(run.mapping, f"source {name}")
                nursery.start_soon(guarded, source, self._runtime, enqueue, name=f"source {name}")
            for number in range(definition.concurrency):
                nursery.start_soon(worker.work, name=f"worker {number} of {definition.name}")

    def _begin(self, missed: Deletions) -> PrimedRun:
        """Open the cache to readers and enqueue the pending work. Contains no checkpoint."""
        self._caches.check()
        new_mapping = partial(
            RunMapping,
            self._definition,
            self._cache,
            self._caches.subscriptions,
            self._bounded,
            self._self_triggers,
            self._lifetimes,
        )
        run = self._primed = PrimedRun(
            definition=self._definition,
            fence_name=self._fence_name,
            lease=self._lease,
            leases=self._leases,
            report=self._report,
            caches=self._caches,
            queue=self._ownership.queue,
            writes=self._writes,
            mapping=new_mapping(self._ownership.queue, self.progress.note),
            progress=self.progress,
            new_runtime=self._new_runtime,
            new_mapping=new_mapping,
        )
        self._enter("running")
        self._cache.open(self._caches.subscriptions)
        for key in self._owed.keys:
            run.queue.add(key, Reason("owed"))
        run.mapping.add_owed(self._owed, self._writes.store_id)
        self._ownership.begin(run, missed)
        return run

    def _enqueue(self, mapping: RunMapping, what: str) -> Enqueue:
        reason, manages = Reason(what), self._definition.manages

        def enqueue(id: ResourceId) -> None:
            keys, problems = ids_of([id], manages)
            if problems:
                raise InvalidArgument(
                    f"{what} enqueued {repr_text(id)}; {problems[0]}: enqueue ids of {manages.name}, as from "
                    f"TYPE.id(name)"
                )
            mapping.add(keys[0], reason)

        return enqueue

    async def _call(self, what: str, callback: Callable[..., Any] | None, *arguments: object) -> None:
        """Call a plain or async callback, and report it if it raises or times out. Its failure never ends the run."""
        if callback is None:
            return
        try:
            with trio.fail_after(CALLBACK_DEADLINE):
                answer = callback(*arguments)
                if inspect.isawaitable(answer):
                    await answer
        except BaseException as error:  # noqa: BLE001  # a user's function may raise anything, `SystemExit` too
            failed, others = of_controller(error)
            if failed is not None:
                self._report(CallbackFailed(self._definition.name, what, only_error(failed)))
            if others is not None:
                raise others from None
