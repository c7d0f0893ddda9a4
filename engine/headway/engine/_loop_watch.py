"""A watchdog for a blocked event loop: a thread that reports the task that blocks Trio's loop, with its stack.

While a function waits without `await`, nothing else in the process runs: no other reconcile, no server, no renewal of a
lease. Only another thread can report that while it lasts. A task records the time a few times a second, and the thread
checks that time. `open_engine` starts both and joins the thread. Neither is started with a virtual clock.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import trio

from headway.base import ASYNCIO
from headway.engine._shutdown import stack_of
from headway.events import LoopBlocked, Report
from headway.reconcile import CONTROLLER, MAPPING, RECONCILING, trace_id_of
from headway.resource import Key

_QUIET = 10.0
"""The minimum time, in seconds, between the reports of two blocks."""
_LONGEST = 60.0
"""The longest time, in seconds, after which a lasting block is reported again."""
_JOIN = 1.0
_DEBUGGERS = frozenset({"bdb.py", "pdb.py", "pydevd.py", "debugpy"})
_UNSEEN = object()


class Judge:
    """The decision of when a late beat is a block to report. No I/O: times and the running task are arguments.

    Attributes:
        wait: the time, in seconds, until the next look.
        suppressed: the number of blocks that were not reported since the last report.
    """

    def __init__(self, limit: float, now: float, used: float) -> None:
        self.limit = limit
        self.wait = limit / 2
        self.suppressed = 0
        self._looked, self._used = now, used
        # The time since which the process has run without a suspension.
        self._since = now
        self._sample: object = _UNSEEN
        self._again = limit
        self._due = now
        # True if the current block was reported, or counted as suppressed.
        self._told = self._counted = False

    def look(self, now: float, used: float, beat: float, running: object) -> float | None:
        """Return the duration of the block, if it is to be reported, or None.

        Args:
            now: the current time.
            used: the processor time that the process has used.
            beat: the last known time of a turn of the loop.
            running: the running task, or None.
        """
        overslept, worked = now - self._looked - self.wait, used - self._used
        self._looked, self._used = now, used
        if overslept > self.limit / 2 and worked < overslept / 2:
            # The process was suspended, or the machine is overloaded: no thread ran. A function that holds the
            # interpreter lock delays this thread too, but it uses the processor.
            self._since, self._sample = now, _UNSEEN
        held = now - max(beat, self._since)
        if held < self.limit / 2:
            self._sample, self._again = _UNSEEN, self.limit
            self._told = self._counted = False
            self.wait = self.limit / 2 - max(held, 0.0) / 2
            return None
        sample, self._sample = self._sample, running
        if held < self.limit:
            self.wait = self.limit - held
            return None
        self.wait = self.limit
        # Without a running task, or with a different one than at the last look, the loop is slow but not blocked.
        if running is None or (sample is not _UNSEEN and sample is not running) or held < self._again:
            return None
        if now < self._due and not self._told:
            self.suppressed += not self._counted
            self._counted = True
            self._again = held + self._due - now
            return None
        self.suppressed -= self._counted
        self._told, self._counted = True, False
        self._again = held + min(held, _LONGEST)
        self._due = now + _QUIET
        return held


class LoopWatch:
    """A watchdog for the event loop of the task that creates it, until `end`.

    Args:
        nursery: the engine's nursery, which runs the beat of the loop.
        limit: the longest time, in seconds, that a task may block the loop; None disables the watchdog.
    """

    def __init__(self, nursery: trio.Nursery, report: Report, limit: float | None) -> None:
        self._report = report
        self._loop = threading.get_ident()
        self._root = trio.lowlevel.current_root_task()
        self._beat = time.perf_counter()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if limit is None or type(trio.lowlevel.current_clock()).__qualname__ != "SystemClock":
            return
        nursery.start_soon(self._beats, limit / 4, name="the beat of the loop")
        self._thread = threading.Thread(target=self._watch, args=(limit,), name="headway watchdog", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread. Idempotent."""
        self._ended.set()
        if self._thread is not None:
            # The wait is limited, because a report may be waiting for this very task.
            self._thread.join(_JOIN)

    async def _beats(self, seconds: float) -> NoReturn:
        while True:
            self._beat = time.perf_counter()
            await trio.sleep(seconds)

    def _watch(self, limit: float) -> None:
        judge = Judge(limit, time.perf_counter(), time.process_time())
        while not self._ended.wait(judge.wait):
            now = time.perf_counter()
            task = running_task(self._root) if now - self._beat >= limit / 2 else None
            # Read the key at once: C code that held the interpreter lock may have just returned, so the loop continues
            # meanwhile.
            key = None if task is None else _key_of(task)
            held = judge.look(now, time.process_time(), self._beat, task)
            if held is not None and task is not None:
                suppressed, judge.suppressed = judge.suppressed, 0
                try:
                    self._tell(task, key, held, suppressed)
                except Exception:  # noqa: BLE001  # a report may raise anything; the watch continues
                    traceback.print_exc()

    def _tell(self, task: trio.lowlevel.Task, key: Key | None, held: float, suppressed: int) -> None:
        stack = stack_of(task, self._loop)
        if any(os.path.basename(frame.filename) in _DEBUGGERS for frame in stack):
            # A debugger is in use.
            return
        controller = task.context.get(CONTROLLER, "")
        about = _reconcile_of(task, key)
        text = "".join(stack.format())
        if any(frame.name == "run_until_complete" for frame in stack):
            # A loop of asyncio's inside of a task of Trio's works, and nothing else does meanwhile.
            text += f"{ASYNCIO}\n"
        self._report(LoopBlocked(task.name, controller, key, text, round(held, 3), suppressed, *about))


def _key_of(task: trio.lowlevel.Task) -> Key | None:
    """Return the key that a task reconciles or maps now, or None."""
    at_work = task.context.get(RECONCILING) or task.context.get(MAPPING)
    return None if at_work is None else at_work.key


def _reconcile_of(task: trio.lowlevel.Task, key: Key | None) -> tuple[int, str]:
    """Return the attempt and the trace of the reconcile of a key, or (0, "") if the task no longer reconciles it."""
    reconciling = task.context.get(RECONCILING)
    # Read once, because the task may continue at the same time.
    dequeued = None if reconciling is None else reconciling.dequeued
    if dequeued is None or dequeued.key != key:
        return 0, ""
    return dequeued.attempt, trace_id_of(dequeued.reasons)


@contextmanager
def watching_loop(nursery: trio.Nursery, report: Report, limit: float | None) -> Iterator[None]:
    """Watch the loop while the block runs."""
    watch = LoopWatch(nursery, report, limit)
    try:
        yield
    finally:
        watch.end()


def running_task(root: trio.lowlevel.Task | None) -> trio.lowlevel.Task | None:
    """Return the running task, or None if the loop waits, or continues during this call. Callable from any thread."""
    with contextlib.suppress(RuntimeError):
        left = [] if root is None else [root]
        while left:
            task = left.pop()
            if getattr(task.coro, "cr_running", False):
                return task
            left += [child for nursery in list(task.child_nurseries) for child in list(nursery.child_tasks)]
    return None
