"""The governor of a controller's writes: it lets them through at the controller's rate, in the order of their calls.

It belongs to the controller in this process, and not to a run. A controller whose runs end and begin again gets no
further burst from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from headway.base import BoundedReport, Bucket
from headway.controller import WriteLimit
from headway.events import Report, WritesHeld
from headway.reconcile import RECONCILING, Reconciling

_REPORTED = 10.0
"""The seconds between two reports while writes wait."""


@dataclass(frozen=True, slots=True)
class Governed:
    """The state of a controller's governor.

    Attributes:
        limit: the controller's limit.
        waiting: the number of writes that wait for their turn.
        seconds: how long writes have been waiting without a pause; 0 if none waits.
        held: the number of writes that have waited so far, and ``held_seconds`` how long they did in all.
    """

    limit: WriteLimit
    waiting: int = 0
    seconds: float = 0.0
    held: int = 0
    held_seconds: float = 0.0

    @property
    def notice(self) -> str:
        """The held writes, as a sentence without its subject, or an empty text."""
        if not self.waiting:
            return ""
        writes = "1 write" if self.waiting == 1 else f"{self.waiting} writes"
        return f"holds back {writes}, because its write_limit is {self.limit}"


class Governor:
    """The governor of one controller in one process."""

    def __init__(self, controller: str, limit: WriteLimit, report: Report) -> None:
        self._controller = controller
        self._limit = limit
        self._report = BoundedReport(report, _REPORTED)
        self._bucket = Bucket(limit.burst, limit.per_second, 0.0)
        # Writes go through in the order of their calls, so that none waits for ever.
        self._turn = trio.StrictFIFOLock()
        self._waiting = self._held = 0
        self._since = self._held_seconds = 0.0

    async def wait(self) -> None:
        """Wait until the controller may make its next write. A canceled wait takes nothing from the others."""
        now = trio.current_time()
        if self._waiting or self._bucket.wait(now):
            with self._holding(now):
                await self._wait_for_turn()
        else:
            self._bucket.charge(now)

    async def _wait_for_turn(self) -> None:
        async with self._turn:
            # Only the holder of the lock spends while writes wait.
            await trio.sleep(self._bucket.wait(trio.current_time()))
            self._bucket.charge(trio.current_time())

    @contextmanager
    def _holding(self, now: float) -> Iterator[None]:
        """Count a write that waits while the block runs, and stop the clock of the reconcile that makes it."""
        if not self._waiting:
            self._since = now
        self._waiting += 1
        self._held += 1
        self._report(WritesHeld, controller=self._controller, limit=str(self._limit), waiting=self._waiting)
        reconciling = _reconciling()
        if reconciling is not None:
            reconciling.stop_clock(now)
        try:
            yield
        finally:
            ended = trio.current_time()
            if reconciling is not None:
                reconciling.start_clock(ended)
            self._waiting -= 1
            self._held_seconds += ended - now

    def status(self) -> Governed:
        """Return the state of the governor. Once nothing waits, this needs no Trio."""
        seconds = trio.current_time() - self._since if self._waiting else 0.0
        return Governed(self._limit, self._waiting, seconds, self._held, self._held_seconds)


def _reconciling() -> Reconciling | None:
    """Return the reconcile whose deadline applies to this task; None for a task that it has started elsewhere."""
    reconciling = RECONCILING.get()
    if reconciling is None or reconciling.task is None:
        return None
    task = trio.lowlevel.current_task()
    while task is not reconciling.task:
        if task.parent_nursery is None:
            return None
        task = task.parent_nursery.parent_task
    return reconciling
