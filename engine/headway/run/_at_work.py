"""What the workers of a run are reconciling now, for the status, for `why`, and for the reports of slow reconciles."""

from __future__ import annotations

import trio

from headway.base import stack_text
from headway.controller import Definition
from headway.events import ReconcileSlow, Report
from headway.reconcile import Reconciling, trace_id_of
from headway.resource import Key, ResourceId

_SLOW = 30.0


class AtWork:
    """The keys that are being reconciled.

    Attributes:
        started: when the reconcile of each of these keys began, on Trio's clock.
        tasks: the tasks of the workers. Invariant: the `Reconciling` of a task has the key that the task works on.
    """

    def __init__(self, definition: Definition, report: Report) -> None:
        self._definition = definition
        self._report = report
        self.started: dict[Key, float] = {}
        self.tasks: dict[trio.lowlevel.Task, Reconciling] = {}

    def running(self) -> tuple[float, ...]:
        """Return the duration so far, in seconds, of each running reconcile."""
        now = trio.current_time()
        return tuple(now - began for began in self.started.values())

    def busy(self) -> tuple[Key, float] | None:
        """Return the key that has been reconciled for longest, and since when, if no worker is free; else None."""
        if len(self.started) < self._definition.concurrency:
            return None
        return min(self.started.items(), key=lambda each: each[1])

    def stack(self, key: Key) -> tuple[float, str] | None:
        """Return since when a key is being reconciled, and the program's own frames where it waits, or None."""
        began = self.started.get(key)
        if began is None:
            return None
        for task, reconciling in self.tasks.items():
            if reconciling.key == key:
                return began, stack_text(_innermost(task).iter_await_frames())
        return began, ""

    async def watchdog(self) -> None:
        """Report long-running reconciles periodically, until canceled."""
        while True:
            await trio.sleep(_SLOW)
            now = trio.current_time()
            for reconciling in self.tasks.values():
                key, dequeued = reconciling.key, reconciling.dequeued
                began = now if key is None else self.started.get(key, now)
                if key is not None and dequeued is not None and now - began >= _SLOW:
                    id = ResourceId(self._definition.manages.name, key[2], key[0], key[1])
                    about = (dequeued.attempt, trace_id_of(dequeued.reasons))
                    self._report(ReconcileSlow(self._definition.full_name, id, now - began, *about))


def _innermost(task: trio.lowlevel.Task) -> trio.lowlevel.Task:
    """Return the first task that a task waits for, or the task itself: one that has opened a nursery only waits."""
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            return _innermost(child)
    return task
