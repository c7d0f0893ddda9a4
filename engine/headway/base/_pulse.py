"""A signal for which many tasks wait, cheaply."""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from typing import Any

import outcome
import trio

from headway.errors import HeadwayError


class _Woken(outcome.Outcome[None]):
    """The outcome that a beat passes to the tasks it wakes. Trio's own outcomes can be used only once."""

    def unwrap(self) -> None:
        """Return None. It can be called more than once."""

    def send(self, gen: Any) -> Any:
        """Send None to a generator."""
        return gen.send(None)

    async def asend(self, agen: Any) -> Any:
        """Send None to an async generator."""
        return await agen.asend(None)


_WOKEN = _Woken()


def _leave(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.SUCCEEDED


def _request_to_sleep() -> object:
    """Return what `wait_task_rescheduled` yields to Trio. It has no state, so all tasks can yield the same object."""
    sleeping = trio.lowlevel.wait_task_rescheduled(_leave)  # noqa: ASYNC105 - only what it yields is needed
    request: object = sleeping.send(None)
    sleeping.close()
    return request


_SLEEP = _request_to_sleep()


class Pulse:
    """A signal that wakes every task that waits for it now. A task that waits later is woken by the next beat.

    A cheaper `trio.lowlevel.ParkingLot`: every watcher, run and worker waits at one for each change.
    """

    __slots__ = ("_broken", "_waiting")

    def __init__(self) -> None:
        # The waiting tasks, and tasks that were canceled and have not run since. Invariant: a task has this pulse as
        # its `custom_sleep_data` exactly as long as it waits. Trio resets it when it wakes the task.
        self._waiting: dict[trio.lowlevel.Task, None] = {}
        self._broken: Callable[[], HeadwayError] | None = None

    @trio.lowlevel.enable_ki_protection
    def beat(self) -> None:
        """Wake all waiting tasks. Never blocks."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for task in waiting:
                if task.custom_sleep_data is self:
                    trio.lowlevel.reschedule(task, _WOKEN)

    @trio.lowlevel.enable_ki_protection
    def wake(self, count: int) -> int:
        """Wake at most ``count`` waiting tasks, and return how many. The last to come is the first to be woken."""
        woken = 0
        while woken < count and self._waiting:
            task, _ = self._waiting.popitem()
            if task.custom_sleep_data is self:
                trio.lowlevel.reschedule(task, _WOKEN)
                woken += 1
        return woken

    def stop(self, why: Callable[[], HeadwayError]) -> None:
        """Stop the signal. Every current and future `wait` raises the error that ``why`` returns."""
        self._broken = self._broken or why
        self.beat()

    # Every event of every watcher passes through here. `await wait_task_rescheduled(…)` would be two more coroutines
    # and an object for each of them.
    @trio.lowlevel.enable_ki_protection
    @types.coroutine
    def wait(self) -> Generator[Any, Any, None]:
        """Wait for the next beat."""
        if self._broken is not None:
            raise self._broken()
        task = trio.lowlevel.current_task()
        self._waiting[task] = None
        task.custom_sleep_data = self
        try:
            (yield _SLEEP).unwrap()
        except BaseException:
            # Something other than a beat has woken the task.
            self._waiting.pop(task, None)
            raise
