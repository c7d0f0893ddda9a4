"""Long work by turns: of all tasks that compute for long, one goes on in each turn of the loop."""

from __future__ import annotations

import trio
from trio.lowlevel import RunVar

_LOCK: RunVar[trio.Lock] = RunVar("headway long work")


async def give_way() -> None:
    """Let every other task run, and go on when it is this task's turn. This is a checkpoint.

    A task that computes for longer than some milliseconds calls this between its slices. With a plain checkpoint
    between them, a turn of the loop would hold a slice of each such task: a hundred callers that list a large type
    would make every other caller wait for a hundred slices, at each step of its call.
    """
    try:
        lock = _LOCK.get()
    except LookupError:
        lock = trio.Lock()
        _LOCK.set(lock)
    # It is fair, and hands itself to the next task in the next turn of the loop. A slice runs after its release, so
    # that a task which waits for something else in its slice holds up nobody.
    async with lock:
        pass
