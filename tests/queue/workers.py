"""Tasks that dequeue keys from a queue and note them, and a queue that counts the looks for a key."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.queue import Backoff, Dequeued, WaitingQueue, WorkQueue


class Looks(WorkQueue[str, str]):
    """A work queue that counts how often a worker looked for a key."""

    def __init__(self) -> None:
        super().__init__(Backoff(base=1.0, maximum=60.0))
        self.looks = 0

    def dequeue(self, now: float) -> Dequeued[str, str] | None:
        """Dequeue a key, and count the look."""
        self.looks += 1
        return super().dequeue(now)


class Workers:
    """Tasks that dequeue keys and note when. They report success by themselves."""

    def __init__(self, queue: WaitingQueue[str, str]) -> None:
        self.queue = queue
        self.dequeued: list[tuple[str, float]] = []
        self.ended = 0

    async def work(self) -> None:
        """Dequeue until the queue is closed."""
        while (dequeued := await self.queue.dequeue()) is not None:
            self.dequeued.append((dequeued.key, trio.current_time()))
            self.queue.succeeded(dequeued.key)
        self.ended += 1


async def start(nursery: trio.Nursery, workers: Workers, count: int) -> None:
    """Start workers and wait until they sleep."""
    for _ in range(count):
        nursery.start_soon(workers.work)
    await wait_all_tasks_blocked()


async def dequeue_key(queue: WaitingQueue[str, str]) -> str:
    """Dequeue a key from a queue that isn't closed."""
    dequeued = await queue.dequeue()
    assert dequeued is not None
    return dequeued.key


async def let_pass(clock: MockClock, seconds: float) -> None:
    """Let time pass on the test's own clock, which jumps to the next deadline when every task waits."""
    await trio.sleep_until(clock.current_time() + seconds)
