"""A worker, which dequeues a key and calls the reconciler with a deadline."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import Any

import trio

from headway.base import leaves, leaving, of_controller, only_error, ordinary
from headway.cache import READING, VersionedReads
from headway.controller import Definition, Reconciler
from headway.errors import ReconcileTimeout
from headway.events import Report
from headway.queue import Dequeued, WaitingQueue
from headway.reconcile import (
    RECONCILING,
    Find,
    Reason,
    Reconciling,
    Request,
    RequeueAfter,
    Runtime,
    SecretReads,
)
from headway.resource import LOOKING, Key, ResourceId, secret_types
from headway.run._at_work import AtWork
from headway.run._contexts import restore_context
from headway.run._invalid_result import invalid_result
from headway.run._outcomes import Outcomes
from headway.run._self_triggers import SelfTriggers

_EARLY = 0.001
"""The fraction of its deadline by which a reconcile may be canceled too early."""
_IN_A_ROW = 8
"""The number of reconciles that a worker may do between two checkpoints of its own, if they never wait."""


class Worker:
    """The workers of one run. Each of them calls `work`.

    Args:
        find: returns a cached resource, to note what each reconcile reads.
        noted: True if what is read is noted for the journal.

    Attributes:
        at_work: what the workers are reconciling now.
    """

    def __init__(
        self,
        definition: Definition,
        reconcile: Reconciler[Any],
        runtime: Runtime,
        queue: WaitingQueue[Key, Reason],
        outcomes: Outcomes,
        report: Report,
        self_triggers: SelfTriggers,
        *,
        find: Find,
        noted: bool,
    ) -> None:
        self._definition = definition
        self._reconcile = reconcile
        self._type = definition.manages.name
        self._runtime = runtime
        self._queue = queue
        self._outcomes = outcomes
        self._self_triggers = self_triggers
        self._find = find
        self._noted = noted
        # The types with secret fields, by name. Most controllers have none.
        self._secret = secret_types(definition.types)
        self.at_work = AtWork(definition, report)
        self._started = self.at_work.started

    async def work(self) -> None:
        """Reconcile keys until canceled. If a reconcile is canceled, its key stays in hand and therefore pending."""
        reconciling = Reconciling(type=self._type)
        RECONCILING.set(reconciling)
        LOOKING.set(self.at_work)
        reconciling.task = trio.lowlevel.current_task()
        if self._secret:
            READING.set(SecretReads(self._find, self._secret))
        self._note_versions(reconciling)
        clean, dequeued = copy_context(), await self._queue.dequeue()
        while dequeued is not None:
            dequeued = await self._work_on(dequeued, reconciling, clean)

    def _note_versions(self, reconciling: Reconciling) -> None:
        """Note the versions of what the worker reads, for a number of reconciles. Called in the task of the worker."""
        reads = reconciling.reads
        if not self._noted:
            return
        if isinstance(reads, VersionedReads):
            reads.renew()
            return

        versioned = VersionedReads(self._find, lambda: _read_into(reconciling, []))
        # Keep the earlier reads of the reconcile.
        versioned.extend(reads)
        _read_into(reconciling, versioned)

    async def _work_on(
        self, dequeued: Dequeued[Key, Reason] | None, reconciling: Reconciling, clean: Context
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
        own_writes, outcomes = self._self_triggers.writes, self._outcomes
        try:
            with trio.CancelScope() as scope:
                late, reconciling.scope = False, scope
                # The end of the last reconcile, if it has just ended: then the next one begins at the same time.
                ended: float | None = None
                while dequeued is not None and not late:
                    began = trio.current_time() if ended is None else ended
                    if not (own_writes and outcomes.delayed(dequeued, began)):
                        key = dequeued.key
                        # A call of the class would run a function of Python for every reconcile, as with `Request`.
                        id = tuple.__new__(ResourceId, (self._type, key[2], key[0], key[1], ""))
                        running = dequeued, id
                        if began + limit > due + limit * _EARLY:
                            scope.deadline = due = began + limit
                        reconciling.key, reconciling.dequeued = key, dequeued
                        reconciling.began = began
                        try:
                            result, error = await self._call(dequeued, id, reconciling, clean)
                        except BaseException as raised:
                            canceled = raised
                            raise
                        running = None
                        late = scope.cancel_called
                        if late and error is None:
                            # The reconciler has caught the cancellation, or has not reached a checkpoint since.
                            error = self._timeout(id)
                            self._note_versions(reconciling)
                        ended = outcomes.done(dequeued, id, began, result, error, reconciling, timed_out=late)
                    in_a_row += 1
                    dequeued = self._queue.dequeue_nowait(ended) if in_a_row % _IN_A_ROW else None
                    if dequeued is None:
                        ended = None
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
                timed_out = scope.cancel_called
                outcomes.broke_off(*running, began, only_error(failed), reconciling, timed_out=timed_out)
            raise leaving(raised) from None
        if running is not None:
            dequeued, id = running
            error = alongside or self._timeout(id, canceled)
            self._note_versions(reconciling)
            outcomes.done(dequeued, id, began, None, error, reconciling, timed_out=True)
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
        self, dequeued: Dequeued[Key, Reason], id: ResourceId, reconciling: Reconciling, clean: Context
    ) -> tuple[RequeueAfter | None, Exception | None]:
        """Call the reconciler. Return its result and its exception."""
        key = dequeued.key
        self._started[key] = reconciling
        secrets = READING.get() if self._secret else None
        if isinstance(secrets, SecretReads):
            secrets.forget()
        try:
            request: Request[Any] = tuple.__new__(Request, (id, dequeued.reasons, dequeued.attempt))
            result: Any = await self._reconcile(self._runtime, request)
        except BaseException as raised:
            # A user's function may raise anything; its key is retried. A nursery of the reconciler wraps exceptions in
            # a group. A PermanentFailure is recognized in a group as well.
            if isinstance(secrets, SecretReads):
                manages, own = self._secret.get(self._type), self._find(self._type, key)
                if manages is not None and own is not None:
                    secrets.keep(manages.view(own))
                secrets.redact(raised)
            error = ordinary(raised)
            if error is None:
                raise
            self._note_versions(reconciling)
            return None, error
        finally:
            del self._started[key]
            if _is_changed(clean):
                await restore_context(clean)
        if result is None or isinstance(result, RequeueAfter):
            return result, None
        self._note_versions(reconciling)
        return None, invalid_result(self._definition.full_name, result)


def _is_changed(clean: Context) -> bool:
    try:
        return copy_context() != clean
    except Exception:  # noqa: BLE001  # a value of the program may refuse to be compared with another
        return True


def _read_into(reconciling: Reconciling, reads: list[Any]) -> None:
    """Record the reads of a worker in this list. Called in the task of the worker."""
    reconciling.reads = reads
    noted = READING.get()
    if isinstance(noted, SecretReads):
        noted.into = reads
    else:
        READING.set(reads)
