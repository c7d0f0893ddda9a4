"""The pure queue, for tests that set the time."""

from headway.queue import Backoff, Dequeued, WorkQueue

Queue = WorkQueue[str, str]


def make(*, live_per_backlog: int = 8) -> Queue:
    """Return a queue that backs off for 1 s after a first failure, and for at most 60 s."""
    return WorkQueue(Backoff(base=1.0, maximum=60.0), live_per_backlog=live_per_backlog)


def dequeue(queue: Queue, now: float) -> Dequeued[str, str]:
    """Dequeue a key. Fail if none is ready."""
    dequeued = queue.dequeue(now)
    assert dequeued is not None
    return dequeued


def drain(queue: Queue, now: float) -> list[str]:
    """Dequeue and finish keys until none is ready."""
    keys = []
    while (dequeued := queue.dequeue(now)) is not None:
        keys.append(dequeued.key)
        queue.succeeded(dequeued.key, now)
    return keys


def fail(queue: Queue, key: str, now: float, times: int = 1) -> float:
    """Fail the key in hand repeatedly, waiting out each back-off; return the last one."""
    for _ in range(times - 1):
        now += queue.failed(key, "error", now)
        dequeue(queue, now)
    return queue.failed(key, "error", now)
