"""The watchdog of an engine's shutdown: tasks that do not end in time are reported, or the process is ended (C10).

Trio ends every task that reaches a checkpoint and lets Cancelled through. A task that shields itself, swallows
Cancelled or never reaches a checkpoint cannot be ended from within the process, and the last of these also blocks
Trio's loop. A thread therefore watches the shutdown from its beginning to its end, as for a blocked loop
(`_loop_watch.py`). A task can also hold the interpreter lock, as a regular expression can. Then no Python thread can
run. If the process is to be ended, `faulthandler` does that even then.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

import trio

import headway.errors
from headway.base import say
from headway.events import Report, ShutdownBlocked

STATUS = 70
"""The exit status of a process that was ended because its engine did not end."""
_LAST_RESORT = 5.0
"""The seconds after which a process ends whose watch did not run. On a busy machine, it takes more than one second."""
_JOIN = 1.0
_STDERR = 2
# A block that is a context manager of ours has a frame of contextlib too.
_OURS = (
    *(os.path.dirname(module.__file__ or "") + os.sep for module in (headway.errors, trio)),
    contextlib.__file__,
)


class ShutdownWatch:
    """A watchdog for the tasks of a nursery, from `begin` to `end`.

    Args:
        bound: the interval, in seconds since `begin`, of the reports of tasks that are still running.
        hard_exit: the process exits with STATUS this many seconds after `begin`; None for never.
    """

    def __init__(self, nursery: trio.Nursery, report: Report, *, bound: float, hard_exit: float | None) -> None:
        self._nursery = nursery
        self._report = report
        self._bound = bound if hard_exit is None else min(bound, hard_exit)
        self._hard_exit = hard_exit
        self._ended = threading.Event()
        self._loop = threading.get_ident()
        self._thread: threading.Thread | None = None
        self._begun = False

    def begin(self) -> None:
        """Start the watch, because the engine begins to shut down. Idempotent.

        If the system has no thread for it, that is said on standard error, and the shutdown goes on.
        """
        if self._begun:
            return
        self._begun = True
        thread = threading.Thread(target=self._watch, name="headway shutdown", daemon=True)
        try:
            thread.start()
            self._thread = thread
            if self._hard_exit is not None:
                faulthandler.dump_traceback_later(self._hard_exit + _LAST_RESORT, exit=True, file=_STDERR)
        except RuntimeError as error:
            # Raised in a signal handler, it would end the process before its leases are released.
            say(f"nothing ends this process if its shutdown hangs: {error}\n")

    def end(self) -> None:
        """End the watch, because the engine has ended. Idempotent."""
        self._ended.set()
        if self._thread is not None:
            # The wait is limited, because a report may be waiting for this very task.
            self._thread.join(_JOIN)
            if self._hard_exit is not None:
                faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        waited = 0.0
        while not self._ended.wait(self._next(waited) - waited):
            waited = self._next(waited)
            last = self._hard_exit is not None and waited >= self._hard_exit
            try:
                self._tell(waited, last)
            except Exception:  # noqa: BLE001  # a report may raise anything; the watch continues
                say(traceback.format_exc())
            if last and not self._ended.is_set():
                os._exit(STATUS)

    def _tell(self, waited: float, last: bool) -> None:
        for name, stack in culprits(self._nursery, self._loop):
            if last:
                # The report may no longer be handled.
                say(f"{name} has not ended within {waited} s of the start of the shutdown:\n{stack}")
            self._report(ShutdownBlocked(name, stack, waited))

    def _next(self, waited: float) -> float:
        due = waited + self._bound
        return due if self._hard_exit is None or waited >= self._hard_exit else min(due, self._hard_exit)


def culprits(nursery: trio.Nursery, loop: int) -> list[tuple[str, str]]:
    """Return the name and the stack of every task in a nursery that waits for no other of its tasks. From any thread.

    Nurseries that the nursery's own task has opened within it are included. If they are all empty, that task is
    returned. If some tasks are in code outside of Headway and Trio, only those are returned, since the others wait for
    them. ``loop`` is the thread that Trio runs in.
    """
    for _ in range(10):
        try:
            found = [(task.name, stack_of(task, loop)) for task in _tasks(nursery)]
        except RuntimeError:
            # Trio has changed a set of tasks in the meantime.
            continue
        ours = (*_OURS, *_loaded("trio_asyncio"))
        theirs = [each for each in found if any(not frame.filename.startswith(ours) for frame in each[1])]
        return [(name, "".join(stack.format())) for name, stack in theirs or found]
    return [("a task", "unknown: the tasks changed while they were being inspected\n")]


def _loaded(module: str) -> tuple[str, ...]:
    """Return the directory of a module, if it has been imported."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return () if file is None else (os.path.dirname(file) + os.sep,)


def _tasks(nursery: trio.Nursery) -> list[trio.lowlevel.Task]:
    opened = list(nursery.parent_task.child_nurseries)
    within = opened[opened.index(nursery) :] if nursery in opened else []
    return [task for each in within for task in _innermost(each)] or [nursery.parent_task]


def _innermost(nursery: trio.Nursery) -> Iterator[trio.lowlevel.Task]:
    for task in nursery.child_tasks:
        within = [inner for each in task.child_nurseries for inner in _innermost(each)]
        yield from within or [task]


def stack_of(task: trio.lowlevel.Task, loop: int) -> traceback.StackSummary:
    """Return the stack where a task waits or, if it is running, the stack of its thread."""
    running: FrameType | None = sys._current_frames().get(loop) if getattr(task.coro, "cr_running", False) else None
    if running is None:
        return traceback.StackSummary.extract(task.iter_await_frames())
    summary = traceback.extract_stack(running)
    entered = getattr(getattr(task.coro, "cr_code", None), "co_name", None)
    for index, frame in enumerate(summary):
        if frame.name == entered:
            # The frames before it belong to Trio's loop, and to the program that started it.
            return traceback.StackSummary.from_list(summary[index:])
    return summary
