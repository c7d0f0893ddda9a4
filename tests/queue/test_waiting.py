"""Workers at the queue: which of them sleep, which are woken, and when. No test sleeps for real."""

import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from headway.queue import WaitingQueue
from tests.queue.workers import Looks, Workers, dequeue_key, let_pass, start

# ---- waking


async def test_dequeue_is_a_checkpoint_even_if_a_key_is_ready(queue: WaitingQueue[str, str]) -> None:
    """A worker that always finds a key lets the other tasks run."""
    queue.add("a", "change")
    with assert_checkpoints():
        assert await dequeue_key(queue) == "a"


async def test_dequeue_waits_until_a_key_is_added(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """A sleeping worker gets the key at the moment of the add."""
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 1)
        await let_pass(autojump_clock, 5)
        queue.add("a", "change")
        await wait_all_tasks_blocked()
        assert workers.dequeued == [("a", 5.0)]
        queue.close()


async def test_each_key_wakes_exactly_one_worker(
    machine: Looks, queue: WaitingQueue[str, str], workers: Workers
) -> None:
    """With eight sleepers, two keys wake two: each looks and takes. The first looks again, as a key is still there."""
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 8)
        machine.looks = 0
        queue.add("a", "change")
        queue.add("a", "again")
        queue.add("b", "change")
        await wait_all_tasks_blocked()
        assert sorted(key for key, _ in workers.dequeued) == ["a", "b"]
        assert machine.looks == 3
        queue.close()


async def test_keys_added_together_are_all_in_hand_together(queue: WaitingQueue[str, str]) -> None:
    """The number of running workers equals the number of keys, though all adds came in one step."""
    in_hand: list[str] = []

    async def work() -> None:
        in_hand.append(await dequeue_key(queue))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(work)
        await wait_all_tasks_blocked()
        for key in "abcd":
            queue.add(key, "change")
    assert sorted(in_hand) == ["a", "b", "c", "d"]


async def test_key_dequeued_by_a_newcomer_loses_no_wake_up(queue: WaitingQueue[str, str], workers: Workers) -> None:
    """The woken worker finds nothing and sleeps again, and the next add wakes it again."""
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 1)
        queue.add("a", "change")
        assert queue._machine.dequeue(trio.current_time()) is not None
        await wait_all_tasks_blocked()
        assert workers.dequeued == []
        queue.add("b", "change")
        await wait_all_tasks_blocked()
        assert [key for key, _ in workers.dequeued] == ["b"]
        queue.succeeded("a")
        queue.close()


async def test_dirty_key_wakes_a_sleeper_when_reported_back(queue: WaitingQueue[str, str], workers: Workers) -> None:
    """The add while it was in hand wakes no worker; the report does."""
    queue.add("a", "one")
    await dequeue_key(queue)
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 2)
        queue.add("a", "two")
        await wait_all_tasks_blocked()
        assert workers.dequeued == []
        queue.succeeded("a")
        await wait_all_tasks_blocked()
        assert [key for key, _ in workers.dequeued] == ["a"]
        queue.close()


# ---- time


async def test_delayed_key_is_dequeued_when_due(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """This holds also for workers that fell asleep before the delayed add."""
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 3)
        queue.add_after("late", "later", 9.0)
        queue.add_after("early", "later", 4.0)
        await let_pass(autojump_clock, 20)
        assert workers.dequeued == [("early", 4.0), ("late", 9.0)]
        queue.close()


async def test_sooner_delay_moves_the_alarm_forward(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """The sleeper with the deadline is woken when a key with a sooner due time is added."""
    queue.add_after("late", "later", 100.0)
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 1)
        queue.add_after("early", "later", 1.0)
        await let_pass(autojump_clock, 200)
        assert workers.dequeued == [("early", 1.0), ("late", 100.0)]
        queue.close()


async def test_waiting_for_a_due_time_does_not_poll(
    machine: Looks, queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """Four workers and a key due in an hour look only a few times, not once a tick or once each."""
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 4)
        machine.looks = 0
        queue.add_after("a", "later", 3600.0)
        await let_pass(autojump_clock, 3600.5)
        assert workers.dequeued == [("a", 3600.0)]
        # One worker becomes the timekeeper, looks, and dequeues the key when it is due.
        assert machine.looks == 2
        queue.close()


async def test_keys_due_together_are_in_hand_together(queue: WaitingQueue[str, str], autojump_clock: MockClock) -> None:
    """The timekeeper takes one of them and wakes other workers for the rest."""
    in_hand: list[tuple[str, float]] = []

    async def work() -> None:
        in_hand.append((await dequeue_key(queue), autojump_clock.current_time()))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(work)
        await wait_all_tasks_blocked()
        for key in "abc":
            queue.add_after(key, "later", 2.0)
    assert sorted(in_hand) == [("a", 2.0), ("b", 2.0), ("c", 2.0)]


async def test_timekeeper_that_dequeues_a_key_is_replaced(
    queue: WaitingQueue[str, str], autojump_clock: MockClock
) -> None:
    """While the first is busy with one due key, a second waits for the next."""
    dequeued: list[tuple[str, float]] = []

    async def work_for_an_hour() -> None:
        while (one := await queue.dequeue()) is not None:
            dequeued.append((one.key, trio.current_time()))
            await let_pass(autojump_clock, 3600)
            queue.succeeded(one.key)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(work_for_an_hour)
        await wait_all_tasks_blocked()
        for number in range(1, 4):
            queue.add_after(f"key{number}", "later", float(number))
        await let_pass(autojump_clock, 10)
        assert dequeued == [("key1", 1.0), ("key2", 2.0), ("key3", 3.0)]
        queue.close()


async def test_failed_key_is_retried_after_its_back_off(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """Another worker that was asleep takes it when the back-off is over."""
    queue.add("a", "change")
    await dequeue_key(queue)
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 2)
        assert queue.failed("a", "error") == 1.0
        await let_pass(autojump_clock, 5)
        assert workers.dequeued == [("a", 1.0)]
        queue.close()


async def test_change_during_a_back_off_is_dequeued_at_once(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """The timekeeper is woken for it though its deadline is far off, and the retry never fires."""
    queue.add("a", "change")
    await dequeue_key(queue)
    queue.failed("a", "error")
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 1)
        await let_pass(autojump_clock, 0.25)
        queue.add("a", "mend")
        await let_pass(autojump_clock, 5)
        assert workers.dequeued == [("a", 0.25)]
        queue.close()


async def test_requeued_key_is_dequeued_after_its_delay(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """The delay counts from the report."""
    queue.add("a", "change")
    await dequeue_key(queue)
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 1)
        await let_pass(autojump_clock, 1)
        queue.requeue_after("a", 30.0, "poll")
        await let_pass(autojump_clock, 60)
        assert workers.dequeued == [("a", 31.0)]
        queue.close()


async def test_key_that_changed_while_in_hand_is_dequeued_after_it_was_dropped(
    queue: WaitingQueue[str, str], workers: Workers, autojump_clock: MockClock
) -> None:
    """A worker that was asleep takes it at the moment of the report."""
    queue.add("a", "change")
    await dequeue_key(queue)
    queue.add("a", "mend")
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 1)
        await let_pass(autojump_clock, 1)
        queue.dropped("a")
        await wait_all_tasks_blocked()
        assert workers.dequeued == [("a", 1.0)]
        queue.close()
