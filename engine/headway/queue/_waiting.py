"""The work queue for Trio: workers wait here for a key, for time to pass, and while the queue is held.

The rules of the queue are in `_machine.py`. This module decides when a worker sleeps and what wakes it. There are two
kinds of sleepers:

- Most workers simply sleep. That is cheap, and one is woken for each key that becomes ready.
- While a key is delayed, one worker is the *timekeeper*: it sleeps until the soonest delayed key is due. One timekeeper
  is enough, and spares the others the cost of a cancel scope. It is woken for a key only if no other worker sleeps. If
  it leaves while a key is still delayed, a sleeper is woken to replace it.

No wake-up is lost, because no key is handed to a sleeper: every worker looks for a key after each sleep. Whenever no
code of this file is running, it must be certain that a worker will look:

    no worker sleeps, or held, or closed, or
    (woken >= ready) and (nothing is delayed, or woken > 0, or the timekeeper's deadline <= next due)

Cancellation loses nothing: `dequeue` has its only checkpoints before it dequeues a key.
"""

import math
from collections.abc import Iterable
from typing import Generic

import trio

from headway.queue._machine import WorkQueue
from headway.queue._values import LIVE, Dequeued, K, KeyInQueue, Priority, QueueStatistics, R


class WaitingQueue(Generic[K, R]):
    """A `WorkQueue` on which Trio tasks can wait. It measures times with `trio.current_time()`.

    Args:
        machine: the queue to wrap. Afterwards, use it only through this object.
    """

    def __init__(self, machine: WorkQueue[K, R]) -> None:
        self._machine = machine
        self._holders: set[object] = set()
        # The number of tasks inside _wait, including woken ones, which shows whether there is a task to wake.
        self._waiting = 0
        # The number of woken tasks that have not run since. Invariant: 0 <= _woken <= _waiting.
        self._woken = 0
        self._sleepers = trio.lowlevel.ParkingLot()
        # Invariant: at most one task is parked in _timekeeper_seat. _timekeeper is its scope, or None.
        self._timekeeper_seat = trio.lowlevel.ParkingLot()
        self._timekeeper: trio.CancelScope | None = None

    def add(self, key: K, reason: R, *, priority: Priority = LIVE, due: float = -math.inf) -> None:
        """Enqueue a key at once, or at `due`, like `WorkQueue.add`."""
        self._machine.add(key, reason, trio.current_time(), priority=priority, due=due)
        self._wake()

    def add_all(self, keys: Iterable[K], reason: R, *, priority: Priority = LIVE) -> None:
        """Enqueue many keys at once for one reason, like `WorkQueue.add_all`."""
        self._machine.add_all(keys, reason, trio.current_time(), priority=priority)
        self._wake()

    def add_after(self, key: K, reason: R, delay: float, *, priority: Priority = LIVE) -> None:
        """Enqueue a key in `delay` seconds, like `WorkQueue.add_after`."""
        now = trio.current_time()
        self._machine.add_after(key, reason, now + delay, now, priority=priority)
        self._wake()

    async def dequeue(self) -> Dequeued[K, R] | None:
        """Wait until a key is ready, and dequeue it. Return None when the queue is closed.

        This is always a checkpoint. If it is canceled, no key was dequeued. While the queue is held, this waits even
        if keys are ready.
        """
        # A wait is a checkpoint. Another one before it would cost the end of every reconcile a turn of the loop.
        if self._machine.closed or self._machine.ready_count():
            await trio.lowlevel.checkpoint()
        else:
            await self._wait()
        while not self._machine.closed:
            dequeued = self.dequeue_nowait()
            if dequeued is not None:
                return dequeued
            await self._wait()
        return None

    def dequeue_nowait(self, now: float | None = None) -> Dequeued[K, R] | None:
        """Dequeue a key if one is ready, or return None. Not a checkpoint. ``now`` spares it a look at the clock.

        A queue that is held or closed has none.
        """
        if self._holders:
            return None
        dequeued = self._machine.dequeue(trio.current_time() if now is None else now)
        if dequeued is not None or self._machine.min_interval:
            # Several keys may have become due at once, and this task may have been the timekeeper. Keys that were ready
            # may now wait for the end of their interval.
            self._wake()
        return dequeued

    def hold(self, holder: object) -> None:
        """Hold all keys back until this holder releases the queue. A second call by one holder has no effect."""
        self._holders.add(holder)

    def release(self, holder: object) -> None:
        """Release the queue for a holder. Keys can be dequeued again once nobody else holds it. Idempotent."""
        self._holders.discard(holder)
        self._wake()

    def succeeded(self, key: K, now: float | None = None) -> None:
        """Report that the key in hand is done, like `WorkQueue.succeeded`. ``now`` spares it a look at the clock."""
        self._machine.succeeded(key, trio.current_time() if now is None else now)
        self._wake()

    def failed(self, key: K, reason: R) -> float:
        """Report that the key in hand has failed, and return its delay in seconds, like `WorkQueue.failed`."""
        delay = self._machine.failed(key, reason, trio.current_time())
        self._wake()
        return delay

    def requeue_after(self, key: K, delay: float, reason: R) -> None:
        """Report that the key in hand is to run again in `delay` seconds, like `WorkQueue.requeue_after`."""
        self._machine.requeue_after(key, delay, reason, trio.current_time())
        self._wake()

    dropped = succeeded

    def back_off(self, key: K, delay: float, now: float) -> None:
        """Report that the key in hand is to be delayed, like `WorkQueue.back_off`."""
        self._machine.back_off(key, delay, now)
        self._wake()

    def end_interval(self, key: K) -> None:
        """End the interval of a key, like `WorkQueue.end_interval`."""
        self._machine.end_interval(key)

    def close(self) -> None:
        """Close the queue: `dequeue` returns None to all current and later callers, and adds are ignored."""
        self._machine.close()
        self._woken += len(self._sleepers.unpark_all()) + len(self._timekeeper_seat.unpark_all())

    @property
    def held(self) -> bool:
        """True if keys are held back."""
        return bool(self._holders)

    @property
    def closed(self) -> bool:
        """True if the queue has been closed."""
        return self._machine.closed

    def is_idle(self) -> bool:
        """Return True if no key is ready, in hand or backing off after a failure."""
        self._promote()
        return self._machine.is_idle()

    def owed(self) -> list[K]:
        """Return the pending keys, which still have to be reconciled. See `WorkQueue.owed`."""
        self._promote()
        return self._machine.owed()

    def scheduled(self) -> dict[K, float]:
        """Return the keys that only wait for a requested delay, with their due times."""
        self._promote()
        return self._machine.scheduled()

    def find(self, key: K) -> KeyInQueue[R] | None:
        """Return what the queue knows of a key, or None if it is not in it."""
        self._promote()
        return self._machine.find(key)

    def oldest(self, before: float) -> list[tuple[float, K]]:
        """Return each key that became pending before a time, with the time when it did. This visits every key."""
        self._promote()
        return self._machine.oldest(before)

    def statistics(self) -> QueueStatistics:
        """Return the current statistics of the queue. This visits every ready key."""
        self._promote()
        return self._machine.statistics()

    def _promote(self) -> None:
        self._machine.promote(trio.current_time())
        self._wake()

    async def _wait(self) -> None:
        """Sleep until a key may be ready, as the timekeeper if one is needed."""
        self._waiting += 1
        try:
            # While no key may be dequeued, time does not matter: a timekeeper would wake up at its past deadline again
            # and again.
            due = None if self._holders else self._machine.next_due()
            if due is None or self._timekeeper is not None:
                await self._sleepers.park()
                self._woken -= 1
            else:
                await self._keep_time(due)
        except trio.Cancelled:
            # A timekeeper that was canceled is replaced by another task.
            self._wake()
            raise
        finally:
            self._waiting -= 1

    async def _keep_time(self, due: float) -> None:
        with trio.CancelScope(deadline=due) as scope:
            self._timekeeper = scope
            try:
                await self._timekeeper_seat.park()
                # Reached only if this task was woken and counted: after the deadline, park raises.
                self._woken -= 1
            finally:
                self._timekeeper = None

    def _wake(self) -> None:
        """Restore the condition in the module's docstring by waking as few tasks as possible."""
        if self._holders or self._woken == self._waiting:
            # Every task that waits has been woken, and will look.
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
            # Setting a deadline costs a microsecond even if it does not change.
            if keeper.deadline != deadline:
                keeper.deadline = deadline
        elif due is not None and not self._woken:
            self._wake_from(self._sleepers, 1)

    def _wake_from(self, lot: trio.lowlevel.ParkingLot, count: int) -> int:
        woken = len(lot.unpark(count=count))
        self._woken += woken
        return woken
