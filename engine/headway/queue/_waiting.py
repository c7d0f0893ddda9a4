"""The work queue with Trio around it: workers wait here for a key, for time to pass, and for the hold to end.

The rules of the queue are in `_machine.py`; this adds when a worker sleeps and who wakes it. Two kinds of
sleepers:

- Most workers just sleep. Cheap, and woken one for each key that becomes ready.
- While a key is delayed, one of them is the *timekeeper*: it sleeps with a deadline, the time at which the soonest
  delayed key is due. One clock is enough for all, and the others are spared the cost of a cancel scope. It is
  woken for a key only when nobody else sleeps; when it leaves and time still matters, one sleeper is woken to
  follow it.

No wake-up is lost, because nothing is handed to a sleeper: it is told to look, and looks again after every
sleep. What has to hold, whenever no code of this file is running, is that somebody will look:

    nobody sleeps, or held, or closed, or
    (woken >= ready) and (nothing is delayed, or woken > 0, or the timekeeper's deadline <= next due)

Nothing is lost to cancellation: `take` has its only checkpoints before it takes.
"""

import math
from collections.abc import Iterable
from typing import Generic

import trio

from headway.queue._entry import LIVE, K, Priority, QueueStatistics, R, Taken
from headway.queue._machine import WorkQueue


class WaitingQueue(Generic[K, R]):
    """A `WorkQueue` for the tasks of one Trio run. Times are in seconds of `trio.current_time()`.

    Args:
        machine: the queue to keep; nobody else may call it from now on.
    """

    def __init__(self, machine: WorkQueue[K, R]) -> None:
        self._machine = machine
        self._held = False
        # The tasks inside _wait, the woken included: whether there is anybody to wake at all.
        self._waiting = 0
        # Invariant: 0 <= _woken <= _waiting: the tasks that were told to look and haven't run since.
        self._woken = 0
        self._sleepers = trio.lowlevel.ParkingLot()
        # Invariant: at most one task is parked in _timekeeper_seat; _timekeeper is its scope, or None.
        self._timekeeper_seat = trio.lowlevel.ParkingLot()
        self._timekeeper: trio.CancelScope | None = None
        self._waiting_for_idle = trio.lowlevel.ParkingLot()

    # ---- in

    def add(self, key: K, reason: R, *, priority: Priority = LIVE) -> None:
        """Queue a key at once; see `WorkQueue.add`.

        Raises:
            ValueError: `priority` is neither LIVE nor BACKLOG.
        """
        self._machine.add(key, reason, trio.current_time(), priority=priority)
        if self._waiting:
            self._wake()

    def add_all(self, keys: Iterable[K], reason: R, *, priority: Priority = LIVE) -> None:
        """Queue many keys at once for one reason; see `WorkQueue.add_all`.

        Raises:
            ValueError: `priority` is neither LIVE nor BACKLOG.
        """
        self._machine.add_all(keys, reason, trio.current_time(), priority=priority)
        self._wake()

    def add_after(self, key: K, reason: R, delay: float, *, priority: Priority = LIVE) -> None:
        """Queue a key in `delay` seconds; see `WorkQueue.add_after`.

        Raises:
            ValueError: `delay` isn't finite, or `priority` is neither LIVE nor BACKLOG.
        """
        now = trio.current_time()
        self._machine.add_after(key, reason, now + delay, now, priority=priority)
        self._wake()

    # ---- out

    async def take(self) -> Taken[K, R] | None:
        """Wait until a key can be taken, and take it; None when the queue is closed.

        A checkpoint, whether it waits or not. Cancelled, it has taken nothing. While the queue is held this
        waits although keys are ready.
        """
        await trio.lowlevel.checkpoint()
        while not self._machine.closed:
            taken = self.take_nowait()
            if taken is not None:
                return taken
            await self._wait()
        return None

    def take_nowait(self) -> Taken[K, R] | None:
        """Take a key if one is ready, and the queue neither held nor closed; else None. No checkpoint."""
        if self._held:
            return None
        taken = self._machine.take(trio.current_time())
        if taken is not None and self._waiting:
            # More than one key may have come due with this one, and this may have been the timekeeper.
            self._wake()
        return taken

    def hold(self) -> None:
        """Hold every key back, until `release`. A switch, not a counter: the second call changes nothing."""
        self._held = True

    def release(self) -> None:
        """Let keys be taken again."""
        self._held = False
        self._wake()

    # ---- back

    def succeeded(self, key: K) -> None:
        """Report that the key in hand is done; see `WorkQueue.succeeded`.

        Raises:
            NotInHandError: the key isn't in hand.
        """
        self._machine.succeeded(key, trio.current_time())
        self._reported_back()

    def failed(self, key: K, reason: R) -> float:
        """Report that the key in hand has failed, and return the seconds until it is ready; see
        `WorkQueue.failed`.

        Raises:
            NotInHandError: the key isn't in hand.
        """
        delay = self._machine.failed(key, reason, trio.current_time())
        self._reported_back()
        return delay

    def requeue_after(self, key: K, delay: float, reason: R) -> None:
        """Report that the key in hand wants to run again in `delay` seconds; see `WorkQueue.requeue_after`.

        Raises:
            NotInHandError: the key isn't in hand.
            ValueError: `delay` isn't finite.
        """
        self._machine.requeue_after(key, delay, reason, trio.current_time())
        self._reported_back()

    def dropped(self, key: K) -> None:
        """Report that the key in hand was given up for good; see `WorkQueue.dropped`.

        Raises:
            NotInHandError: the key isn't in hand.
        """
        self._machine.dropped(key, trio.current_time())
        self._reported_back()

    def rest(self, key: K, delay: float) -> None:
        """Report that the key in hand is to rest; see `WorkQueue.rest`.

        Raises:
            NotInHandError: the key isn't in hand.
            ValueError: `delay` isn't finite.
        """
        self._machine.rest(key, delay, trio.current_time())
        self._reported_back()

    def close(self) -> None:
        """Stop: whoever waits in `take`, now or later, gets None; adds are ignored. See `WorkQueue.close`."""
        self._machine.close()
        self._woken += len(self._sleepers.unpark_all()) + len(self._timekeeper_seat.unpark_all())
        self._waiting_for_idle.unpark_all()

    # ---- seen from outside

    @property
    def held(self) -> bool:
        """Whether keys are held back."""
        return self._held

    @property
    def closed(self) -> bool:
        """Whether the queue has been closed."""
        return self._machine.closed

    async def wait_idle(self) -> None:
        """Wait until nothing is ready, in hand or resting after a failure. A checkpoint in any case.

        What is scheduled for later doesn't count. The queue is idle at the moment in which this returns.

        Raises:
            trio.ClosedResourceError: the queue was closed while it owed something, so nobody will do it.
        """
        await trio.lowlevel.checkpoint()
        while not self.is_idle():
            if self._machine.closed:
                raise trio.ClosedResourceError("the queue was closed while it still owed keys: see owed()")
            await self._waiting_for_idle.park()

    def is_idle(self) -> bool:
        """Whether nothing is ready, in hand or resting after a failure."""
        self._promote()
        return self._machine.is_idle()

    def owed(self) -> list[K]:
        """Return the keys whose last change has not been acted on; see `WorkQueue.owed`."""
        self._promote()
        return self._machine.owed()

    def scheduled(self) -> dict[K, float]:
        """Return the keys that only wait for a delay that was asked for, and when each is due."""
        self._promote()
        return self._machine.scheduled()

    def statistics(self) -> QueueStatistics:
        """Count the queue as it is now. This looks at every ready key."""
        self._promote()
        return self._machine.statistics()

    # ---- within

    def _promote(self) -> None:
        self._machine.promote(trio.current_time())
        self._wake()

    def _reported_back(self) -> None:
        if self._waiting:
            self._wake()
        if self._waiting_for_idle and self._machine.is_idle():
            self._waiting_for_idle.unpark_all()

    async def _wait(self) -> None:
        """Sleep until there may be something to take, as the timekeeper if one is needed."""
        self._waiting += 1
        try:
            # Held, no time matters: a timekeeper would find its deadline past and nothing to take, for ever.
            due = None if self._held else self._machine.next_due()
            if due is None or self._timekeeper is not None:
                await self._sleepers.park()
                self._woken -= 1
            else:
                await self._keep_time(due)
        except trio.Cancelled:
            # A timekeeper that was cancelled leaves the time to another.
            self._wake()
            raise
        finally:
            self._waiting -= 1

    async def _keep_time(self, due: float) -> None:
        with trio.CancelScope(deadline=due) as scope:
            self._timekeeper = scope
            try:
                await self._timekeeper_seat.park()
                # Reached only if somebody woke and counted this task: past the deadline, park raises.
                self._woken -= 1
            finally:
                self._timekeeper = None

    def _wake(self) -> None:
        """Make true what the module's docstring says has to hold, by waking as few as will do."""
        if self._held:
            return
        missing = self._machine.ready_count() - self._woken
        if missing > 0 and self._sleepers:
            missing -= self._wake_from(self._sleepers, missing)
        if missing > 0:
            self._wake_from(self._timekeeper_seat, missing)
        due = self._machine.next_due()
        keeper = self._timekeeper
        if keeper is not None:
            deadline = math.inf if due is None else due
            # Setting a deadline costs a microsecond though it be the same.
            if keeper.deadline != deadline:
                keeper.deadline = deadline
        elif due is not None and not self._woken:
            self._wake_from(self._sleepers, 1)

    def _wake_from(self, lot: trio.lowlevel.ParkingLot, count: int) -> int:
        woken = len(lot.unpark(count=count))
        self._woken += woken
        return woken
