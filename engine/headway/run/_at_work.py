"""What the workers of a run are reconciling now: for the status, `why`, reports of slow ones, and looks at statuses."""

from __future__ import annotations

import trio

from headway.base import stack_text
from headway.controller import Definition
from headway.events import ReconcileSlow, Report
from headway.reconcile import Reconciling, trace_id_of
from headway.resource import Key, Kind, ResourceId, Stored

_SLOW = 30.0


class AtWork:
    """The keys that are being reconciled.

    It receives the looks at all that the workers read. A resource may be kept, or passed to a task or a thread that
    none of them has started, so a look counts for whatever reconcile of the resource is in progress then.

    Attributes:
        started: the reconciles by their keys. Invariant: the `Reconciling` has the key that its task works on.
    """

    def __init__(self, definition: Definition, report: Report) -> None:
        self._definition = definition
        self._report = report
        self.started: dict[Key, Reconciling] = {}
        self._kind = definition.manages.kind

    def look(self, at: Stored) -> None:
        """Note that the status or the version of a resource has been read, or all of it."""
        id = at.id
        if (reconciling := self.started.get(id.key)) is not None and id.type.unversioned == self._kind:
            reconciling.own().looked = True

    def look_at_all(self, kind: Kind) -> None:
        """Note that something has been read that the statuses of all resources of a kind determine."""
        if kind == self._kind:
            for reconciling in tuple(self.started.values()):
                reconciling.own().looked = True

    def running(self) -> tuple[float, ...]:
        """Return the duration so far, in seconds, of each running reconcile."""
        now = trio.current_time()
        return tuple(now - each.began for each in self.started.values())

    def busy(self) -> tuple[Key, float] | None:
        """Return the key that has been reconciled for longest, and since when, if no worker is free; else None."""
        if len(self.started) < self._definition.concurrency:
            return None
        return min(((key, each.began) for key, each in self.started.items()), key=lambda each: each[1])

    def stack(self, key: Key) -> tuple[float, str] | None:
        """Return since when a key is being reconciled, and the program's own frames where it waits, or None."""
        if (reconciling := self.started.get(key)) is None:
            return None
        return reconciling.began, stack_text(_innermost(reconciling.task).iter_await_frames())

    async def watchdog(self) -> None:
        """Report long-running reconciles periodically, until canceled."""
        while True:
            await trio.sleep(_SLOW)
            now = trio.current_time()
            for key, reconciling in self.started.items():
                dequeued, took = reconciling.dequeued, now - reconciling.began
                if dequeued is not None and took >= _SLOW:
                    id = ResourceId(self._definition.manages.name, key[2], key[0], key[1])
                    about = (dequeued.attempt, trace_id_of(dequeued.reasons))
                    self._report(ReconcileSlow(self._definition.full_name, id, took, *about))


def _innermost(task: trio.lowlevel.Task) -> trio.lowlevel.Task:
    """Return the first task that a task waits for, or the task itself: one that has opened a nursery only waits."""
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            return _innermost(child)
    return task
