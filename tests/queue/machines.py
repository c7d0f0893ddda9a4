"""The pure queue, for tests that set the time."""

from headway.queue import Backoff, Taken, WorkQueue

Queue = WorkQueue[str, str]


def make(*, live_per_backlog: int = 8) -> Queue:
    """Return a queue that backs off for 1 s after a first failure, and for at most 60 s."""
    return WorkQueue(Backoff(base=1.0, maximum=60.0), live_per_backlog=live_per_backlog)


def take(queue: Queue, now: float) -> Taken[str, str]:
    """Take a key. Fail if none is ready."""
    taken = queue.take(now)
    assert taken is not None
    return taken


def drain(queue: Queue, now: float) -> list[str]:
    """Take and finish keys until none is ready."""
    keys = []
    while (taken := queue.take(now)) is not None:
        keys.append(taken.key)
        queue.succeeded(taken.key, now)
    return keys


def fail(queue: Queue, key: str, now: float, times: int = 1) -> float:
    """Fail the key in hand repeatedly, waiting out each back-off; return the last one."""
    for _ in range(times - 1):
        now += queue.failed(key, "error", now)
        take(queue, now)
    return queue.failed(key, "error", now)
