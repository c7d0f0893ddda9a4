"""A worker: takes a key, reconciles it, and says what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from headway.controller._definition import Definition
from headway.controller._request import Reason, Request, RequeueAfter
from headway.controller._runtime import Runtime
from headway.errors import HeadwayError, PermanentFailure
from headway.events import Reconciled, ReconcileSlow, Report, ignore
from headway.queue import Taken, WaitingQueue
from headway.resource import Key, ResourceId

_SLOW = 30.0
_RETRY = Reason("retry")
_REQUEUE = Reason("requeue")


class ReconcileTimeout(HeadwayError):
    """A reconcile took longer than its controller's deadline and was cancelled."""


class NonsenseResult(HeadwayError, TypeError):
    """A reconciler returned something that is no result."""


class Worker:
    """What the workers of one run do; each of them calls `work`."""

    def __init__(
        self,
        definition: Definition,
        runtime: Runtime,
        queue: WaitingQueue[Key, Reason],
        report: Report,
        on_done: Callable[[], None],
    ) -> None:
        self._definition = definition
        self._type = definition.manages.name
        self._runtime = runtime
        self._queue = queue
        self._report = report
        self._on_done = on_done
        self._started: dict[Key, float] = {}

    async def work(self) -> None:
        """Reconcile key after key until cancelled. A cancelled reconcile's key stays in hand, and so is still owed."""
        queue = self._queue
        while (taken := await queue.take()) is not None:
            await self._reconcile(taken)
            self._on_done()

    async def _reconcile(self, taken: Taken[Key, Reason]) -> None:
        key = taken.key
        id = ResourceId(self._type, key[2], key[0], key[1])
        error: Exception | None = None
        result: Any = None
        began = self._started[key] = trio.current_time()
        try:
            with trio.CancelScope(deadline=began + self._definition.deadline) as scope:
                result = await self._definition.reconcile(self._runtime, Request(id, taken.reasons, taken.attempt))
        except Exception as raised:  # noqa: BLE001  # a user's function may raise anything; its key is retried
            error = raised
        finally:
            del self._started[key]
        if scope.cancelled_caught and error is None:
            error = ReconcileTimeout(f"{id}: the reconcile took longer than {self._definition.deadline} s")
        if error is None and result is not None and not isinstance(result, RequeueAfter):
            error = NonsenseResult(
                f"{self._definition.name} returned {result!r}: return None, or headway.requeue_after(seconds)"
            )
        outcome, retry_after = self._settle(key, result, error)
        if self._report is not ignore:
            seconds = trio.current_time() - began
            name = self._definition.name
            self._report(Reconciled(name, id, outcome, seconds, error, retry_after, taken.reasons))

    def _settle(self, key: Key, result: RequeueAfter | None, error: Exception | None) -> tuple[str, float | None]:
        queue = self._queue
        if error is None:
            if result is None:
                queue.succeeded(key)
                return "done", None
            queue.requeue_after(key, result.seconds, _REQUEUE)
            return "requeue", result.seconds
        if isinstance(error, PermanentFailure):
            queue.dropped(key)
            return "permanent", None
        return "failed", queue.failed(key, _RETRY)

    async def watchdog(self) -> None:
        """Name the reconciles that are running for long, again and again, for ever."""
        while True:
            await trio.sleep(_SLOW)
            now = trio.current_time()
            for key, began in self._started.items():
                if now - began >= _SLOW:
                    id = ResourceId(self._type, key[2], key[0], key[1])
                    self._report(ReconcileSlow(self._definition.name, id, now - began))
