"""Checks that the caller runs on Trio and in the right run of it, and turns for long computations in its event loop."""

from __future__ import annotations

import threading

import trio
from trio.lowlevel import RunVar, TrioToken

from headway.base._turns import CallerTurns
from headway.errors import NotOnTrio, WrongTrioRun


def current_run() -> TrioToken | None:
    """Return the token of the run of Trio to which the caller's task belongs, or None outside of a task."""
    return trio.lowlevel.current_trio_token() if trio.lowlevel.in_trio_task() else None


def is_within(task: trio.lowlevel.Task | None) -> bool:
    """Return True if the current task is this one, or a task in a nursery that it, or such a task, has opened."""
    inside = task is not None and trio.lowlevel.in_trio_task()
    current: trio.lowlevel.Task | None = trio.lowlevel.current_task() if inside else None
    while current is not None and current is not task:
        nursery = current.parent_nursery
        current = None if nursery is None else nursery.parent_task
    return current is not None


def check_trio(what: str, home: TrioToken | None = None) -> None:
    """Raise an error unless the caller is a task of the run ``home`` of Trio, or of any run if it is None.

    Under asyncio the first wait would fail obscurely. A task of another run would wait for ever, and could not wake
    the tasks that wait for what it does.

    Raises:
        NotOnTrio: the caller is not a Trio task.
        WrongTrioRun: the caller is a task of another run.
    """
    if not trio.lowlevel.in_trio_task():
        raise NotOnTrio(
            f"{what} needs Trio, but Trio is not running: start the program with trio.run(main) instead of "
            "asyncio.run(main()). If a program must stay on asyncio, run Trio alongside it, as shown in "
            "docs/guides/asyncio.md"
        )
    if home is not None and trio.lowlevel.current_trio_token() is not home:
        raise WrongTrioRun(
            f"{what} was called in another trio.run than the one that opened it. From another thread, call it in its "
            "own run: trio.from_thread.run(client.apply, resource, trio_token=token), where the run that opened it "
            "has set token = trio.lowlevel.current_trio_token()"
        )


class OneRun:
    """The run of Trio in which an object is open. The object may be open several times, but not in two runs at once.

    A run that has ended holds nothing, even if it crashed and could not close the object.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        # The runs are in different threads.
        self._lock = threading.Lock()
        self._home: TrioToken | None = None
        self._openings = 0

    def enter(self) -> None:
        """Note that the object is opened once more, in this run. Raises WrongTrioRun if it is open in another."""
        here = trio.lowlevel.current_trio_token()
        with self._lock:
            if self._home is not here:
                if self._openings and self._home is not None and not _is_over(self._home):
                    raise WrongTrioRun(
                        f"{self._what} is open in another trio.run, which would never see what this one writes: give "
                        "each run a store of its own, or call the client of that run from this thread with "
                        "trio.from_thread.run(client.apply, resource, trio_token=token), where that run has set "
                        "token = trio.lowlevel.current_trio_token()"
                    )
                self._home, self._openings = here, 0
            self._openings += 1

    def leave(self) -> None:
        """Note that the object is closed once in this run."""
        here = current_run()
        with self._lock:
            # The openings of a crashed run are forgotten, and the garbage collector may still close them.
            if here is self._home:
                self._openings = max(self._openings - 1, 0)


def _is_over(run: TrioToken) -> bool:
    try:
        run.run_sync_soon(int)  # which does nothing
    except trio.RunFinishedError:
        return True
    return False


_TURNS: RunVar[CallerTurns] = RunVar("headway long work")


async def give_way() -> None:
    """Let every other task run, and continue when it is this task's turn. This is a checkpoint.

    A task that computes for more than some milliseconds calls this between its slices. With a plain checkpoint, each
    turn of the loop would run a slice of every such task: a hundred callers that list a large type would make every
    other caller wait for a hundred slices at each step of its call. Callers take turns, so a caller with one such task
    waits for one slice of each other caller.
    """
    try:
        turns = _TURNS.get()
    except LookupError:
        turns = CallerTurns(1)
        _TURNS.set(turns)
    # It passes to the next task in the next turn of the loop. A slice runs afterwards, so a task that waits for
    # something else during its slice delays no other task.
    async with turns:
        pass
