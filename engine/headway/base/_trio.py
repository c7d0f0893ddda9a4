"""A check that the caller runs on Trio, and turns for long computations in its event loop."""

from __future__ import annotations

import trio
from trio.lowlevel import RunVar

from headway.errors import NotOnTrio


def check_trio(what: str) -> None:
    """Raise NotOnTrio unless the caller is a Trio task. Under asyncio the first wait would fail obscurely."""
    if not trio.lowlevel.in_trio_task():
        raise not_on_trio(what)


def not_on_trio(what: str) -> NotOnTrio:
    """Return the error for a caller that is not a Trio task."""
    return NotOnTrio(
        f"{what} needs Trio, but Trio is not running: start the program with trio.run(main) instead of "
        "asyncio.run(main()). If a program must stay on asyncio, run Trio alongside it, as shown in "
        "docs/guides/asyncio.md"
    )


_LOCK: RunVar[trio.Lock] = RunVar("headway long work")


async def give_way() -> None:
    """Let every other task run, and continue when it is this task's turn. This is a checkpoint.

    A task that computes for more than some milliseconds calls this between its slices. With a plain checkpoint, each
    turn of the loop would run a slice of every such task: a hundred callers that list a large type would make every
    other caller wait for a hundred slices at each step of its call.
    """
    try:
        lock = _LOCK.get()
    except LookupError:
        lock = trio.Lock()
        _LOCK.set(lock)
    # The lock is fair: it passes to the next task in the next turn of the loop. A slice runs after the release, so a
    # task that waits for something else during its slice delays no other task.
    async with lock:
        pass
