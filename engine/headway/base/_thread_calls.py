"""Calls of blocking functions in Trio's worker threads, for work that costs less than `trio.to_thread.run_sync`."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Generic, TypeVar

import outcome
import trio

from headway.base._private_names import TRIO, check_private_names

R = TypeVar("R")


class _InProgress:
    """The calls of one run of Trio whose threads still work."""

    def __init__(self) -> None:
        self.count = 0
        self.waiting: trio.Event | None = None


_IN_PROGRESS: trio.lowlevel.RunVar[_InProgress] = trio.lowlevel.RunVar("headway.thread_calls")


def _in_progress() -> _InProgress:
    try:
        return _IN_PROGRESS.get()
    except LookupError:
        _IN_PROGRESS.set(calls := _InProgress())
        return calls


def thread_calls() -> int:
    """Return the number of calls whose threads work for this run. Trio does not count them as active threads."""
    return _in_progress().count


async def wait_thread_calls() -> None:
    """Wait until no thread works for a call of this run."""
    await trio.lowlevel.checkpoint()
    while (calls := _in_progress()).count:
        calls.waiting = calls.waiting or trio.Event()
        await calls.waiting.wait()


class ThreadCalls(Generic[R]):
    """Calls in a worker thread, one at a time. The owner closes it after the last call.

    `trio.to_thread.run_sync` costs more than a transaction of SQLite. Here a call has no limiter, context or scope of
    its own, and its thread wakes the task by a pipe. So the loop continues the task at once, instead of calling a
    function first that reschedules it.

    A call is neither canceled nor interrupted. A cancellation, or a KeyboardInterrupt, is delivered after it.
    """

    def __init__(self) -> None:
        _check_trio()
        self._ended, self._end = os.pipe()
        self._result: outcome.Outcome[R] | None = None
        self._calls = _in_progress()

    @trio.lowlevel.enable_ki_protection
    async def run(self, function: Callable[[], R]) -> R:
        """Call the function in a worker thread, and return what it returns or raise what it raises."""
        calls = self._calls
        calls.count += 1
        # From here on, Trio wakes this task when the thread has written to the pipe. The request that `waiting` yields
        # would also let Trio cancel it. Trio gets another one that cannot be canceled. The thread starts last: until
        # this task waits, it would take turns with the thread for Python's lock.
        waiting = trio.lowlevel.wait_readable(self._ended)  # noqa: ASYNC105  # awaited below, by another request
        waiting.send(None)
        try:
            try:
                trio.lowlevel.start_thread_soon(function, self._deliver)
            except BaseException:
                # There is no thread to be had. This raises the error that it gives to all tasks that wait.
                with suppress(trio.ClosedResourceError):
                    trio.lowlevel.notify_closing(self._ended)
                raise
            await trio.lowlevel.wait_task_rescheduled(_never)
        finally:
            waiting.close()
            calls.count -= 1
            if calls.waiting is not None and not calls.count:
                calls.waiting.set()
                calls.waiting = None
        os.read(self._ended, 1)
        result, self._result = self._result, None
        assert result is not None, "the thread has delivered it"
        return result.unwrap()

    def _deliver(self, result: outcome.Outcome[R]) -> None:
        self._result = result
        os.write(self._end, b"\0")

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._ended)
        os.close(self._end)


@cache
def _check_trio() -> None:
    check_private_names(TRIO)


def _never(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
