"""A worker, which dequeues a key, reconciles it, and reports the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

import trio

from headway.base import leaves, leaving, of_controller, only_error, ordinary, own_frames, repr_text, stack_text, story
from headway.cache import READING
from headway.controller import Definition, Reconciler
from headway.errors import InvalidResult, PermanentFailure, ReconcileTimeout
from headway.events import Reconciled, ReconcileSlow, Report, SelfTriggered, receives_successes
from headway.journal import ControllerJournal
from headway.queue import Dequeued, WaitingQueue
from headway.reconcile import RECONCILING, Reason, Reconciling, Request, RequeueAfter, Runtime
from headway.resource import Key, ResourceId
from headway.run._own_writes import SelfTriggers
from headway.run._status import NotDone, Results

_SLOW = 30.0
_EARLY = 0.001
"""The fraction of its deadline by which a reconcile may be canceled too early."""
_IN_A_ROW = 8
"""The number of reconciles that a worker may do between two checkpoints of its own, if they never wait."""
_RETRY = Reason("retry")
_REQUEUE = Reason("requeue")


class Worker:
    """The workers of one run. Each of them calls `work`."""

    def __init__(
        self,
        definition: Definition,
        reconcile: Reconciler[Any],
        runtime: Runtime,
        queue: WaitingQueue[Key, Reason],
        report: Report,
        on_done: Callable[[], None],
        self_triggers: SelfTriggers,
        results: Results,
        journal: ControllerJournal | None,
    ) -> None:
        self._definition = definition
        self._reconcile = reconcile
        self._type = definition.manages.name
        self._runtime = runtime
        self._queue = queue
        self._report = report
        self._reports_all = receives_successes(report)
        self._on_done = on_done
        self._self_triggers = self_triggers
        self._results = results
        self._journal = journal
        self._started: dict[Key, float] = {}
        # The tasks of the workers. Invariant: the key that a task works on is that of its `Reconciling`.
        self._tasks: dict[trio.lowlevel.Task, Reconciling] = {}

    async def work(self) -> None:
        """Reconcile keys until canceled. If a reconcile is canceled, its key stays in hand and therefore pending."""
        reconciling = Reconciling()
        RECONCILING.set(reconciling)
        self._tasks[trio.lowlevel.current_task()] = reconciling
        if self._journal is not None:
            READING.set(reconciling)
        dequeued = await self._queue.dequeue()
        while dequeued is not None:
            dequeued = await self._work_on(dequeued, reconciling)

    async def _work_on(
        self, dequeued: Dequeued[Key, Reason] | None, reconciling: Reconciling
    ) -> Dequeued[Key, Reason] | None:
        """Reconcile from ``dequeued`` on until a deadline has passed, and return the next key.

        One cancel scope serves many reconciles, because opening one for each would cost more than everything else here.
        The deadline of the scope is moved when it is more than a thousandth too early for the next reconcile. It has no
        meaning while the worker waits for a key.
        """
        limit = self._definition.deadline
        began, due, in_a_row = 0.0, 0.0, 0
        running: tuple[Dequeued[Key, Reason], ResourceId] | None = None
        alongside: Exception | None = None
        canceled: BaseException | None = None
        own_writes = self._self_triggers.writes
        try:
            with trio.CancelScope() as scope:
                late = False
                while dequeued is not None and not late:
                    if not (own_writes and self._delays(dequeued)):
                        key = dequeued.key
                        id = ResourceId(self._type, key[2], key[0], key[1])
                        began, running = trio.current_time(), (dequeued, id)
                        if began + limit > due + limit * _EARLY:
                            scope.deadline = due = began + limit
                        reconciling.key = key
                        try:
                            result, error = await self._call(dequeued, id, began)
                        except BaseException as raised:
                            canceled = raised
                            raise
                        running = None
                        late = scope.cancel_called
                        if late and error is None:
                            # The reconciler has caught the cancellation, or has not reached a checkpoint since.
                            error = self._timeout(id)
                        self._done(dequeued, id, began, result, error, reconciling, timed_out=late)
                    in_a_row += 1
                    dequeued = self._queue.dequeue_nowait() if in_a_row % _IN_A_ROW else None
                    if dequeued is None:
                        dequeued = await self._queue.dequeue()
                        # If the deadline passes while the worker waits for a key, the scope is useless for that key.
                        late = scope.cancel_called
                return dequeued
        except Exception as raised:
            # The reconcile raised this alongside its cancellation. Headway's own code raises nothing here.
            if running is None:
                raise
            alongside = only_error(raised)
        except BaseException as raised:  # noqa: BLE001  # it is raised again
            # This ends the run or the engine. The key stays in hand, so the next run reconciles it.
            failed, _ = of_controller(raised)
            if running is not None and failed is not None:
                self._report_reconcile(
                    *running, "failed", began, only_error(failed), None, timed_out=scope.cancel_called
                )
                if self._journal is not None:
                    now = trio.current_time()
                    self._record(self._journal, running[0], "failed", began, now, only_error(failed), None, reconciling)
            raise leaving(raised) from None
        if running is not None:
            dequeued, id = running
            error = alongside or self._timeout(id, canceled)
            self._done(dequeued, id, began, None, error, reconciling, timed_out=True)
        return await self._queue.dequeue()

    def _timeout(self, id: ResourceId, canceled: BaseException | None = None) -> ReconcileTimeout:
        """Return the error of a missed deadline, with the traceback of the point that the reconcile had reached."""
        error = ReconcileTimeout(f"{id}: the reconcile exceeded its deadline of {self._definition.deadline} s")
        if canceled is None:
            return error
        error.__cause__ = canceled
        # Use the first task of a nursery, because its exception is a group, whose own frames end at the nursery.
        return error.with_traceback(next(leaves(canceled)).__traceback__)

    async def _call(
        self, dequeued: Dequeued[Key, Reason], id: ResourceId, began: float
    ) -> tuple[RequeueAfter | None, Exception | None]:
        """Call the reconciler. Return its result and its exception."""
        key = dequeued.key
        self._started[key] = began
        try:
            result: Any = await self._reconcile(self._runtime, Request(id, dequeued.reasons, dequeued.attempt))
        except BaseException as raised:
            # A user's function may raise anything; its key is retried. A nursery of the reconciler wraps exceptions in
            # a group. A PermanentFailure is recognized in a group as well.
            error = ordinary(raised)
            if error is None:
                raise
            return None, error
        finally:
            del self._started[key]
        if result is None or isinstance(result, RequeueAfter):
            return result, None
        advice = "return None, or headway.requeue_after(seconds)"
        if inspect.iscoroutine(result):
            # A forgotten `await`.
            result.close()
            advice = "await it, as in `return await ...`"
        elif isinstance(result, BaseException):
            advice = "raise it"
        return None, InvalidResult(f"{self._definition.name} returned {repr_text(result)}: {advice}")

    def _done(
        self,
        dequeued: Dequeued[Key, Reason],
        id: ResourceId,
        began: float,
        result: RequeueAfter | None,
        error: Exception | None,
        reconciling: Reconciling,
        *,
        timed_out: bool,
    ) -> None:
        if self._self_triggers.loops:
            self._self_triggers.ended(dequeued.key, wrote=reconciling.wrote)
        reconciling.key, reconciling.wrote = None, False
        now = trio.current_time()
        outcome, retry_after = self._finish(dequeued.key, result, error, now)
        if self._journal is not None:
            self._record(self._journal, dequeued, outcome, began, now, error, retry_after, reconciling)
        if reconciling.writes:
            reconciling.writes.clear()
        if error is not None:
            until = None if retry_after is None else now + retry_after
            failed: Literal["failed", "permanent"] = "permanent" if until is None else "failed"
            self._results.note(NotDone(id, failed, story(error), dequeued.attempt, now, until, timed_out))
        elif self._results.not_done:
            self._results.done(dequeued.key)
        if self._reports_all or error is not None:
            self._report_reconcile(dequeued, id, outcome, began, error, retry_after, timed_out=timed_out)
        self._on_done()

    def _record(
        self,
        journal: ControllerJournal,
        dequeued: Dequeued[Key, Reason],
        outcome: str,
        began: float,
        now: float,
        error: BaseException | None,
        retry_after: float | None,
        reconciling: Reconciling,
    ) -> None:
        """Add the reconcile to the journal, with what it has read and written."""
        key, reasons, _, queued_at, attempt = dequeued
        told, trace = ("", "") if error is None else (story(error), own_frames(error))
        reads, writes = reconciling.reads, reconciling.writes
        of = (now, key, outcome, now - began, began - queued_at, attempt)
        journal.ran(*of, reasons, reads, writes, told, trace, retry_after)
        reads.clear()

    def _report_reconcile(
        self,
        dequeued: Dequeued[Key, Reason],
        id: ResourceId,
        outcome: str,
        began: float,
        error: BaseException | None,
        retry_after: float | None,
        *,
        timed_out: bool,
    ) -> None:
        seconds = trio.current_time() - began
        name = self._definition.name
        # A key with a requested delay is queued from the end of the delay, and the clock may be read in between.
        waited = max(began - dequeued.queued_at, 0.0)
        attempt, reasons = dequeued.attempt, dequeued.reasons
        self._report(Reconciled(name, id, outcome, seconds, error, retry_after, reasons, waited, attempt, timed_out))

    def _finish(
        self, key: Key, result: RequeueAfter | None, error: Exception | None, now: float
    ) -> tuple[str, float | None]:
        queue = self._queue
        if error is None:
            if result is None:
                queue.succeeded(key, now)
                return "done", None
            queue.requeue_after(key, result.seconds, _REQUEUE)
            return "requeue", result.seconds
        if isinstance(error, PermanentFailure):
            queue.dropped(key)
            return "permanent", None
        return "failed", queue.failed(key, _RETRY)

    def running(self) -> tuple[float, ...]:
        """Return the duration so far, in seconds, of each running reconcile."""
        now = trio.current_time()
        return tuple(now - began for began in self._started.values())

    def stack(self, key: Key) -> tuple[float, str] | None:
        """Return since when a key is being reconciled, and the program's own frames where it waits, or None."""
        began = self._started.get(key)
        if began is None:
            return None
        for task, reconciling in self._tasks.items():
            if reconciling.key == key:
                return began, stack_text(_innermost(task).iter_await_frames())
        return began, ""

    def _delays(self, dequeued: Dequeued[Key, Reason]) -> bool:
        """Delay the key if it has triggered itself too often, and return True if so."""
        now, key = trio.current_time(), dequeued.key
        delay = self._self_triggers.delay(key, dequeued.reasons, dequeued.attempt, now)
        if delay is None:
            return False
        self._queue.back_off(key, delay.seconds)
        if not delay.quiet:
            id = self._id(key)
            self._report(SelfTriggered(self._definition.name, id, delay.writes, delay.runs, delay.seconds))
            text = f"triggers itself with its own writes: {', '.join(map(str, delay.writes))}"
            self._results.note(NotDone(id, "slowed", text, delay.runs, now, now + delay.seconds))
        return True

    async def watchdog(self) -> None:
        """Report long-running reconciles periodically, until canceled."""
        while True:
            await trio.sleep(_SLOW)
            now = trio.current_time()
            for key, began in self._started.items():
                if now - began >= _SLOW:
                    self._report(ReconcileSlow(self._definition.name, self._id(key), now - began))

    def _id(self, key: Key) -> ResourceId:
        return ResourceId(self._type, key[2], key[0], key[1])


def _innermost(task: trio.lowlevel.Task) -> trio.lowlevel.Task:
    """Return the first task that a task waits for, or the task itself: one that has opened a nursery only waits."""
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            return _innermost(child)
    return task
