"""Tasks that take keys from a queue and note them, and a queue that counts the looks for a key."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.queue import Backoff, Taken, WaitingQueue, WorkQueue


class Looks(WorkQueue[str, str]):
    """A work queue that counts how often a worker looked for a key."""

    def __init__(self) -> None:
        super().__init__(Backoff(base=1.0, maximum=60.0))
        self.looks = 0

    def take(self, now: float) -> Taken[str, str] | None:
        """Take a key, and count the look."""
        self.looks += 1
        return super().take(now)


class Workers:
    """Tasks that take keys and note when. They report success by themselves."""

    def __init__(self, queue: WaitingQueue[str, str]) -> None:
        self.queue = queue
        self.taken: list[tuple[str, float]] = []
        self.ended = 0

    async def work(self) -> None:
        """Take until the queue is closed."""
        while (taken := await self.queue.take()) is not None:
            self.taken.append((taken.key, trio.current_time()))
            self.queue.succeeded(taken.key)
        self.ended += 1


async def start(nursery: trio.Nursery, workers: Workers, count: int) -> None:
    """Start workers and wait until they sleep."""
    for _ in range(count):
        nursery.start_soon(workers.work)
    await wait_all_tasks_blocked()


async def take_key(queue: WaitingQueue[str, str]) -> str:
    """Take a key from a queue that isn't closed."""
    taken = await queue.take()
    assert taken is not None
    return taken.key


async def let_pass(clock: MockClock, seconds: float) -> None:
    """Let time pass on the test's own clock, which jumps to the next deadline when every task waits."""
    await trio.sleep_until(clock.current_time() + seconds)
