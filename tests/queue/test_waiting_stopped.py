"""Workers that are held, canceled or closed, and whether the queue is idle."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.queue import BACKLOG, NotInHandError, QueueStatistics, WaitingQueue
from tests.queue.workers import Looks, Workers, dequeue_key, let_pass, start

# ---- the hold


async def test_no_key_is_dequeued_while_held(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """Ready and due keys wait for the release, and are then dequeued at once."""
    queue.hold("write")
    queue.add("ready", "change")
    queue.add_after("due", "later", 2.0)
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 2)
        await let_pass(autojump_clock, 10)
        assert queue.held
        assert workers.dequeued == []
        queue.release("write")
        await wait_all_tasks_blocked()
        assert sorted(workers.dequeued) == [("due", 10.0), ("ready", 10.0)]
        queue.close()


async def test_queue_is_held_until_its_last_holder_releases_it(queue: WaitingQueue[str, str], workers: Workers) -> None:
    """A holder that holds it twice releases it once."""
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 1)
        for first, second in (("write", "operator"), ("operator", "write")):
            workers.dequeued.clear()
            for holder in ("write", "operator", "write"):
                queue.hold(holder)
            queue.add("a", "change")
            queue.release(first)
            await wait_all_tasks_blocked()
            assert workers.dequeued == []
            queue.release(second)
            await wait_all_tasks_blocked()
            assert [key for key, _ in workers.dequeued] == ["a"]
        queue.close()


async def test_hold_stops_a_worker_that_was_woken_but_has_not_run(
    queue: WaitingQueue[str, str], workers: Workers
) -> None:
    """The queue is held between the add and the worker's turn: the key stays until the release."""
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 1)
        queue.add("a", "change")
        queue.hold("write")
        await wait_all_tasks_blocked()
        assert workers.dequeued == []
        queue.release("write")
        await wait_all_tasks_blocked()
        assert [key for key, _ in workers.dequeued] == ["a"]
        queue.close()


async def test_hold_past_a_due_time_does_not_poll(
    machine: Looks, queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """No worker looks or spins during the hold, and due times are kept again after the release."""
    queue.add_after("during", "later", 2.0)
    queue.add_after("after", "later", 20.0)
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 1)
        machine.looks = 0
        queue.hold("write")
        await let_pass(autojump_clock, 10)
        assert machine.looks == 0
        queue.release("write")
        await let_pass(autojump_clock, 30)
        assert workers.dequeued == [("during", 10.0), ("after", 20.0)]
        queue.close()


# ---- cancellation


async def test_canceled_dequeue_removes_no_key(queue: WaitingQueue[str, str]) -> None:
    """A dequeue canceled before it began leaves a ready key in the queue."""
    queue.add("a", "change")
    with trio.CancelScope() as scope:
        scope.cancel()
        await queue.dequeue()
    assert scope.cancelled_caught
    assert queue.statistics().in_hand == 0
    assert await dequeue_key(queue) == "a"


async def test_key_added_while_its_only_sleeper_is_canceled_is_not_lost(
    queue: WaitingQueue[str, str], workers: Workers
) -> None:
    """The wake-up doesn't go to a worker that is on its way out."""
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def cancelled_worker() -> None:
            with scope:
                await queue.dequeue()

        nursery.start_soon(cancelled_worker)
        await wait_all_tasks_blocked()
        await start(nursery, workers, 1)
        scope.cancel()
        queue.add("a", "change")
        await wait_all_tasks_blocked()
        assert scope.cancelled_caught
        assert [key for key, _ in workers.dequeued] == ["a"]
        queue.close()


async def test_worker_canceled_after_its_wake_up_has_the_key_in_hand(
    queue: WaitingQueue[str, str],
) -> None:
    """Woken and canceled in one step, it still returns the key rather than losing it."""
    got: list[str] = []
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def work() -> None:
            with scope:
                got.append(await dequeue_key(queue))

        nursery.start_soon(work)
        await wait_all_tasks_blocked()
        queue.add("a", "change")
        scope.cancel()
    assert got == ["a"]
    assert queue.owed() == ["a"]


async def test_canceled_timekeeper_is_replaced(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """The delayed key is dequeued on time by a worker that had no deadline before."""
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def cancelled_worker() -> None:
            with scope:
                await queue.dequeue()

        queue.add_after("a", "later", 10.0)
        nursery.start_soon(cancelled_worker)
        await wait_all_tasks_blocked()
        await start(nursery, workers, 2)
        await let_pass(autojump_clock, 1)
        scope.cancel()
        await let_pass(autojump_clock, 20)
        assert workers.dequeued == [("a", 10.0)]
        queue.close()


# ---- idleness and the end


async def test_scheduled_key_that_has_come_due_is_pending(
    queue: WaitingQueue[str, str], autojump_clock: MockClock
) -> None:
    """A delayed key is pending as soon as it is due, even before a worker dequeues."""
    queue.add_after("a", "later", 1.0)
    assert queue.is_idle()
    await let_pass(autojump_clock, 2)
    assert not queue.is_idle()
    assert queue.owed() == ["a"]


async def test_close_ends_every_waiting_dequeue_at_once(queue: WaitingQueue[str, str], workers: Workers) -> None:
    """Sleepers, the timekeeper, and later callers get None, with keys still in the queue."""
    queue.hold("write")
    for key in "abc":
        queue.add(key, "change")
    queue.add_after("d", "later", 10.0)
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 3)
        queue.close()
        await wait_all_tasks_blocked()
        assert workers.ended == 3
    queue.release("write")
    assert queue.closed
    assert await queue.dequeue() is None
    assert workers.dequeued == []
    assert queue.owed() == ["a", "b", "c"]


async def test_close_ends_a_timekeeper(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """It doesn't wait for a due time that no longer matters."""
    queue.add_after("a", "later", 10.0)
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 2)
        queue.close()
    assert workers.ended == 2
    assert autojump_clock.current_time() == 0.0


async def test_every_key_added_under_load_is_dequeued_and_never_twice_at_once(
    queue: WaitingQueue[str, str], autojump_clock: MockClock
) -> None:
    """Five workers, fifty keys added repeatedly, failures and requeues between: no key is left over."""
    in_hand: set[str] = set()
    runs: dict[str, int] = {}

    async def work() -> None:
        while (dequeued := await queue.dequeue()) is not None:
            key = dequeued.key
            assert key not in in_hand
            in_hand.add(key)
            await let_pass(autojump_clock, 0.01 * (len(runs) % 3))
            in_hand.remove(key)
            runs[key] = runs.get(key, 0) + 1
            if runs[key] % 4 == 1:
                queue.failed(key, "error")
            elif runs[key] % 4 == 2:
                queue.requeue_after(key, 0.5, "poll")
            elif runs[key] % 4 == 3:
                queue.dropped(key)
            else:
                queue.succeeded(key)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(work)
        for number in range(200):
            queue.add(f"key{number % 50}", "change", priority=BACKLOG if number % 3 else 0)
            await let_pass(autojump_clock, 0.003)
        while not queue.is_idle():
            await let_pass(autojump_clock, 0.01)
        assert len(runs) == 50
        assert min(runs.values()) >= 2
        assert not in_hand
        queue.close()


async def test_errors_of_the_machine_propagate(queue: WaitingQueue[str, str]) -> None:
    """A report of a key that isn't in hand is refused as in the machine, and changes nothing."""
    with pytest.raises(NotInHandError):
        queue.succeeded("a")
    with pytest.raises(ValueError, match="due"):
        queue.add_after("a", "later", float("nan"))
    assert queue.statistics() == QueueStatistics(0, 0, 0, 0, 0, None, 0, 0)
