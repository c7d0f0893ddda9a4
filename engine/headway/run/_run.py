"""One run of a controller, from its fence to its end.

The course of a run:

1. A commit raises the fence (C3), so that pending writes of the previous run can no longer be stored.
2. The initialiser runs, if there is one, and the fence is raised again, above the initialiser's writes. The revision
   of the last raise is the run's *starting revision*.
3. A nursery runs N+1 priming tasks, one for each type. A task ends when its type's store has passed an EndOfSnapshot
   and is complete up to the starting revision. In that step it subscribes, so that no later change of the type is
   missed. The run then waits until every type has reached the highest revision that any of them shows, replies to
   other controllers' writes included: its first reconciles see one cut. No mapper and no reconciler has run yet (C1).
4. Resources deleted before the subscriptions began are in no cache. The run reads these deletions from the store's
   history, from the checkpoint of the previous run on. The first run of all starts at its own first fence (C6).
5. A second nursery runs the N+1 long-lived watches, the mapping's retries, the workers, the sources, and the
   resolution of unknown writes. The cache and those deletions are enqueued as backlog, after what the previous run
   in this process left pending.

A run ends by an error or by cancellation, or ends itself because it has added a watch. Its nurseries have then closed,
so the next run cannot overlap it (C7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import trio

from headway.api import Channel
from headway.base import BoundedReport, guarded, of_controller, only_error, stack_text
from headway.cache import Cache
from headway.client import Client, HeldLease, LeaseClient, RunFence
from headway.controller import GrowingDefinition
from headway.errors import Closed, EngineBug
from headway.events import Report, RunStarted, WatchAdded
from headway.informers import Informers
from headway.journal import ControllerJournal
from headway.mapper import Watch, watch_name
from headway.reconcile import Declared, Gate, Lifetimes, Reason, RecordEvent, Runtime, ignore_event
from headway.resource import Key, Registry, TypeName
from headway.run._cached_states import CachedStates
from headway.run._callbacks import call_back
from headway.run._change_mapper import ChangeMapper
from headway.run._fence import RunWrites
from headway.run._governor import Governor
from headway.run._keys import RunKeys
from headway.run._mapping import Progress, RunMapping
from headway.run._outcomes import Outcomes
from headway.run._owed import Owed, add_owed
from headway.run._own_writes import OwnWrites
from headway.run._ownership import Ownership, PrimedRun
from headway.run._priming import STALL_LIMIT, Deletions, RunCaches
from headway.run._self_triggers import Fights, SelfTriggers
from headway.run._sources import RunSources
from headway.run._status import ControllerStatus, Phase, Results, type_statuses
from headway.run._worker import Worker

_NOTHING = Owed()


class Run:
    """A run of a controller. Call `run` once.

    Args:
        growing: the controller's definition. The run has its current watches, and adds to them for the next run.
        fence_name: the name under which the store keeps the controller's fence.
        gate: says whether the controller may reconcile.
        ownership: the keys that belong to this process.
        lease: the lease under which it runs; None if it needs none.
        owed: the work that the previous run in this process left.
        stall_limit: the time, in seconds, within which a type being primed must receive something.
        journal: records the reconciles, and the changes that a predicate turns away.
        new_mapper: creates what maps one change, as `ChangeMapper` does.
        record_event: records the events of `Runtime.event`.
        counts: counts the reconciles by outcome.
        governor: the limit on the rate of its writes.
        new_fights: returns the fights of a run with these own writes.

    Attributes:
        began: the time of its creation, on Trio's clock.
        answered: True once an engine has accepted this run's fence.
        progress: a signal for each mapping, reconcile and resolved write, and for the end of the run.
        definition: the controller's definition, with the watches of this run.
        keys: the states of its keys; None before it is primed.
    """

    def __init__(
        self,
        growing: GrowingDefinition,
        *,
        informers: Informers,
        channel: Channel,
        registry: Registry,
        report: Report,
        fence_name: str,
        gate: Gate,
        ownership: Ownership,
        lease: HeldLease | None = None,
        owed: Owed = _NOTHING,
        stall_limit: float = STALL_LIMIT,
        journal: ControllerJournal | None = None,
        new_mapper: Callable[..., ChangeMapper] = ChangeMapper,
        record_event: RecordEvent = ignore_event,
        counts: Counter[str] | None = None,
        governor: Governor | None = None,
        new_fights: Callable[[OwnWrites], Fights] | None = None,
    ) -> None:
        self.began = self._phase_began = trio.current_time()
        self.answered = self._over = False
        self._growing = growing
        self.definition = definition = growing.current
        # Canceled when the run has added a watch.
        self._ending = trio.CancelScope()
        self._report, self._bounded = report, BoundedReport(report)
        self._fence_name = fence_name
        self._gate = gate
        # The reason that the run has found the gate closed for.
        self._closed: str | None = None
        self._stall_limit = stall_limit
        self._ownership, self._lease, self._owed = ownership, lease, owed
        self._journal, self._new_mapper = journal, new_mapper
        self._leases = LeaseClient(channel)
        self.progress = Progress()
        self._caches = RunCaches(definition, informers, channel, report, self._bounded, stall_limit)
        ownership.priority, noted = self._caches.priority, self.progress.note
        self._writes = RunWrites(
            definition.full_name, self._leases, self._caches, ownership.queue, report, noted, governor=governor
        )
        self._cache = Cache(
            definition.full_name, definition.manages, definition.watches, definition.queries, informers.isolation
        )
        own = self._writes.own
        self._self_triggers = SelfTriggers(own, None if new_fights is None else new_fights(own))
        self._lifetimes, self._results = Lifetimes(self._cache, definition.types), Results(counts)
        declared = Declared(
            definition.full_name,
            definition.types,
            definition.reads,
            definition.writes,
            shares_keys=definition.placement == "every_process",
        )
        cached = CachedStates(
            self._cache, self._caches, lambda: self._primed is None or self._primed.hold() is not None
        )
        client = Client(channel, registry, ownership.writes(self._writes), allow=declared, cached=cached)
        self._new_runtime = partial(
            Runtime,
            definition.name,
            definition.watches,
            self._cache,
            client,
            self._lifetimes,
            declared,
            report,
            self._watch,
            gate,
            record_event,
        )
        self._runtime = self._new_runtime(self._writes)
        self._primed: PrimedRun | None = None
        self.keys: RunKeys | None = None
        self._worker: Worker | None = None
        self._phase: Phase = "starting"
        self._initialising: tuple[float, trio.lowlevel.Task] | None = None

    async def run(self) -> None:
        """Run until canceled, or return when the run has added a watch.

        Raises the error that ended the run, such as a source's error, StoreChanged or Fenced.
        """
        ended_by: BaseException | None = None
        try:
            with self._ending:
                # Don't write to a store that was rolled back, just as it is not read.
                self._caches.check_store()
                raised = await self._start()
                self.answered = True
                self._enter("priming")
                self._cache.begin_priming()
                await self._caches.prime(raised.position)
                await self._gate.wait_known(self._stall_limit)
                missed = await self._ownership.missed(self._caches, raised)
                await self._live(missed)
        except BaseException as error:
            ended_by = error
            raise
        finally:
            self._over = True
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
        if not self._ending.cancelled_caught:
            raise EngineBug("a run ended by itself")

    async def _watch(self, given: Sequence[object]) -> None:
        """Return if the run has these watches. Otherwise add them for the next run, and end this one.

        The new types are primed first, while this run goes on: their access is checked, and the next run begins soon.
        """
        await trio.lowlevel.checkpoint()
        self._check_not_over()
        lacking = self._growing.lacking(given)
        if lacking:
            await self._caches.open([each.type for each in lacking], self._growing.may_have)
            self._check_not_over()
            # Another task may have added some of them during the wait.
            lacking = self._growing.lacking(given)
            self._growing.add(lacking)
            for each in lacking:
                self._report(WatchAdded(self.definition.full_name, each.type.name, watch_name(each)))
        elif all(each.type in self.definition.watches for each in given if isinstance(each, Watch)):
            return
        self._ending.cancel()
        await trio.lowlevel.checkpoint()
        # The caller was not canceled: it is not a task of the run, or it has shielded itself.
        raise Closed(
            f"rt.watch: this run of controller {self.definition.full_name} ends, because a watch was added: "
            "leave the rest to its next run"
        )

    def _check_not_over(self) -> None:
        if self._over:
            raise Closed(
                f"rt.watch: this run of controller {self.definition.full_name} has ended, and nothing was added: call "
                "it with the rt of the current run, as the initialiser, the reconciler and the sources receive it"
            )

    async def _stopped(self, ended_by: BaseException | None) -> None:
        """Call ``on_stop``. Everything else of the run has ended, and the cache can still be read."""
        failed = None if ended_by is None else of_controller(ended_by)[0]
        error = None if failed is None else only_error(failed)
        with trio.CancelScope(shield=True):
            await call_back(self._report, self.definition, "on_stop", self._runtime, error)

    async def owed(self) -> Owed:
        """Return the work that this run leaves to the next one. Call it when the run has ended."""
        if self._primed is None:
            return self._owed
        feeds = tuple(self._caches.subscriptions.items())
        # A key that waits for its requested delay may have no cached resource.
        keys = [*self._ownership.queue.owed(), *self._ownership.queue.scheduled()]
        return Owed(keys, await self._primed.mapping.owed(), feeds)

    def scheduled(self) -> dict[Key, float]:
        """Return the keys that wait only for the delay that they requested, with the time when it ends."""
        return self._ownership.queue.scheduled()

    def runtime_for(self, key: Key) -> Runtime:
        """Return the reconcile context of a key."""
        return self._ownership.runtime_for(key) or self._runtime

    def wrote(self, type: TypeName, key: Key, revision: int) -> bool:
        """Return True if this run has written a revision of a resource."""
        return self._writes.own.find(type, key, revision) is not None

    def reach(self, revision: int) -> None:
        """Note that a task waits for progress until every change up to a revision is mapped."""
        if self._primed is not None:
            self._primed.mapping.reach(revision)

    def checkpoint(self) -> int:
        """Return the revision up to which this run has no pending work, or 0 if some work is pending."""
        run = None if self.ends else self._primed
        return run.mapped() if run is not None and run.mapping.is_idle and self._ownership.is_idle() else 0

    @property
    def starting_revision(self) -> int:
        """The revision of its last commit before it read anything; 0 before that commit."""
        # A run that is still starting has no revision to wait for: the initialiser raises the fence again.
        return self._writes.starting_revision if self.answered else 0

    @property
    def ends(self) -> bool:
        """True if the run has added a watch, so that it ends."""
        return self._ending.cancel_called

    def status(self) -> ControllerStatus:
        """Return the state of this run."""
        now = trio.current_time()
        known = [
            each for type in self.definition.types for each in self._caches.informers.opened(type) if each.type is type
        ]
        queue = self._ownership.queue.statistics() if self._primed is not None else None
        oldest = queue.oldest_queued_at if queue is not None else None
        hold = self._writes.hold if self._primed is None else self._primed.hold()
        return ControllerStatus(
            name=self.definition.full_name,
            phase=self._phase,
            seconds=now - self._phase_began,
            term=self._runtime.term,
            starting_revision=self.starting_revision,
            settled=self.checkpoint(),
            types=type_statuses(known, self.starting_revision, now),
            concurrency=self.definition.concurrency,
            queue=queue,
            running=() if self._worker is None else self._worker.at_work.running(),
            oldest_wait=None if oldest is None else max(now - oldest, 0.0),
            holding="the outcome of a write is unknown and is being resolved" if hold is not None else "",
            unmapped=0 if self._primed is None else self._primed.mapping.unmapped,
            not_done=self._results.list(),
            not_done_count=len(self._results.not_done),
            shards=self._ownership.shards(),
        )

    def reconciled_for(self) -> float:
        """Return the seconds since it was primed; 0 if it is not."""
        return trio.current_time() - self._phase_began if self._phase == "running" else 0.0

    def initialising(self) -> tuple[float, str] | None:
        """Return since when the initialiser has been running, and where it waits; None if it does not run."""
        of = self._initialising
        return None if of is None or self._over else (of[0], stack_text(of[1].iter_await_frames()))

    def _enter(self, phase: Phase) -> None:
        self._phase, self._phase_began = phase, trio.current_time()

    async def _start(self) -> RunFence:
        """Raise the fence, whose commit is the starting revision (C3), and run the initialiser."""
        # Under a lease, the fence is raised in the lease's term. This is the only run in that term.
        term, number = (0, 0) if self._lease is None else (self._lease.term, 1)
        raised = await self._writes.raise_first(self._fence_name, self._ownership.member, term=term, number=number)
        if self.definition.initialiser is not None:
            self._initialising = trio.current_time(), trio.lowlevel.current_task()
            await guarded(self.definition.initialiser, self._runtime)
            # The initialiser's writes carried the fence. Because of a second commit, the run sees them from its start.
            again = await self._writes.raise_again()
            raised = again._replace(checkpoint=raised.checkpoint)
            self._initialising = None
        return raised

    async def _live(self, missed: Deletions) -> None:
        """Map, reconcile and watch, until canceled."""
        definition, writes, report = self.definition, self._writes, self._report
        run, queue = self._begin(missed), self._ownership.queue
        ready = queue.statistics().ready
        report(RunStarted(definition.full_name, self._runtime.term, writes.starting_revision, ready))
        await call_back(self._report, definition, "on_start", self._runtime)
        triggers, journal = self._self_triggers, self._journal
        outcomes = Outcomes(definition, queue, report, self.progress.note, triggers, self._results, journal)
        reconcile, find = self._ownership.reconciler(definition.reconcile), self._caches.find
        worker = self._worker = Worker(
            definition=definition,
            reconcile=reconcile,
            runtime=self._runtime,
            queue=queue,
            outcomes=outcomes,
            report=report,
            self_triggers=triggers,
            find=find,
            noted=journal is not None,
        )
        assert self.keys is not None
        self.keys.worker = worker
        # Before any worker starts: the tasks of a nursery start in no particular order.
        self._obey_gate()
        async with trio.open_nursery() as nursery:
            for type, subscription in self._caches.subscriptions.items():
                nursery.start_soon(run.mapping.watch, type, subscription, name=f"watching {type}")
            nursery.start_soon(writes.resolve, name="resolving unknown writes")
            nursery.start_soon(run.mapping.map_ready, name="mapping the backlog")
            nursery.start_soon(run.mapping.retries.run, name="retrying mappers")
            nursery.start_soon(self._ownership.serve, run, name=f"the ownership of keys of {definition.full_name}")
            nursery.start_soon(worker.at_work.watchdog, name="watching for slow reconciles")
            nursery.start_soon(self._follow_gate, name="following the gate")
            nursery.start_soon(self._bounded.report_rest, name="reporting the rest")
            sources = RunSources(definition, self._runtime, find, run.mapping, queue)
            for name in definition.sources:
                nursery.start_soon(sources.call, name, name=f"source {name}")
            for number in range(definition.concurrency):
                nursery.start_soon(worker.work, name=f"worker {number} of {definition.full_name}")

    def _begin(self, missed: Deletions) -> PrimedRun:
        """Open the cache to readers and enqueue the pending work. Contains no checkpoint."""
        self._caches.check()
        new_mapping = partial(
            RunMapping,
            self.definition,
            self._cache,
            self._caches.subscriptions,
            self._bounded,
            self._self_triggers,
            self._lifetimes,
            self._journal,
            new_mapper=self._new_mapper,
        )
        run = self._primed = PrimedRun(
            definition=self.definition,
            fence_name=self._fence_name,
            lease=self._lease,
            leases=self._leases,
            report=self._report,
            caches=self._caches,
            ownership=self._ownership,
            writes=self._writes,
            mapping=new_mapping(self._ownership.queue, self.progress.note),
            progress=self.progress,
            new_runtime=self._new_runtime,
            new_mapping=new_mapping,
        )
        self.keys = RunKeys(run, self._results)
        self._enter("running")
        self._cache.open(self._caches.subscriptions)
        for key in self._owed.keys:
            self._ownership.queue.add(key, Reason("owed"))
        add_owed(run.mapping, self._owed, self._caches.subscriptions, self._writes.first_commit)
        self._ownership.begin(run, missed)
        return run

    async def _follow_gate(self) -> None:
        while True:
            self._obey_gate()
            await self._gate.wait_changed()

    def _obey_gate(self) -> None:
        """Hold all keys while the gate is closed. Running reconciles finish."""
        if self._gate.reason == self._closed:
            return
        self._closed = self._gate.reason
        queue = self._ownership.queue
        if self._closed is None:
            queue.release(self._gate)
        else:
            queue.hold(self._gate)
        self._gate.report_to(self._report, queue.statistics().ready)
        self.progress.note()

    @property
    def is_blocked(self) -> bool:
        """True if the gate is closed, none of its reconciles is running, and keys are pending."""
        running = self._worker is not None and self._worker.at_work.running()
        return self._closed is not None and not running and not self._ownership.queue.is_idle()
