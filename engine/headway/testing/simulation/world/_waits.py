"""The times that a program waits for by its own clock: requeues, timers and delays in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import trio

from headway.testing.simulation.world._process import PROCESS, Process
from headway.testing.simulation.world._tasks import all_tasks
from headway.testing.simulation.world._traced_app import RECONCILE

LONGEST = 7200.0
"""The number of seconds for which a run goes on at most, because the program has something to do then."""


def longest_wait(processes: Iterable[Process]) -> float:
    """Return the seconds until the last thing that the program waits for, apart from what is too far away.

    A requeue or a timer waits in a queue. A daemon, a source and a delay in memory wait in a task of the program.
    """
    return max(_waits(processes), default=0.0)


def next_wait(processes: Iterable[Process]) -> float:
    """Return the seconds until the next thing that the program waits for, or 0 if there is nothing."""
    return min(_waits(processes), default=0.0)


def _waits(processes: Iterable[Process]) -> list[float]:
    alive = {each for each in processes if each.life}
    now = trio.current_time()
    due = [*_of_tasks(alive), *(due for process in alive for due in process.due())]
    return [each - now for each in due if 0 < each - now <= LONGEST]


def _of_tasks(alive: set[Process]) -> Iterator[float]:
    for task in all_tasks():
        process = task.context.get(PROCESS)
        if task.context.get(RECONCILE) is not None and process is not None and process in alive:
            # Trio has no public way to ask another task for its deadline. The innermost scope belongs to a sleep.
            # Scopes around it may be Headway's, such as the scope of a lease.
            yield task._cancel_status._scope.deadline
