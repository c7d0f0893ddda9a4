"""The minimum interval of a key: what is added within it is kept, merged, and handled at its end."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from headway.queue import Backoff, WaitingQueue, WorkQueue
from tests.queue.machines import dequeue
from tests.queue.workers import Workers, let_pass, start


def paced(interval: float = 10.0) -> WorkQueue[str, str]:
    return WorkQueue(Backoff(base=1.0), min_interval=interval)


def test_c6_adds_within_the_interval_are_one_run_at_its_end() -> None:
    """They are pending all the time, whether they come while the key is in hand or afterwards."""
    queue = paced()
    queue.add("a", "first", 0.0)
    dequeue(queue, 1.0)
    queue.add("a", "in hand", 2.0)
    queue.succeeded("a", 3.0)
    assert queue.dequeue(3.0) is None
    for number in range(20):
        queue.add("a", f"change {number}", 4.0)
        assert queue.owed() == ["a"]
        assert not queue.is_idle()
        assert queue.dequeue(4.0) is None
    assert queue.next_due() == 11.0
    assert queue.dequeue(10.9) is None
    found = dequeue(queue, 11.0)
    assert (found.reasons[0], found.reasons[-1], len(found.reasons) + found.omitted) == ("in hand", "change 19", 21)
    queue.succeeded("a", 12.0)
    assert queue.is_idle()


def test_key_that_was_not_dequeued_within_the_interval_is_ready_at_once() -> None:
    """Other keys do not wait for it, either."""
    queue = paced()
    queue.add("a", "first", 0.0)
    dequeue(queue, 0.0)
    queue.succeeded("a", 0.0)
    queue.add_all(["a", "b"], "second", 5.0)
    assert dequeue(queue, 5.0).key == "b"
    assert queue.dequeue(5.0) is None
    queue.add("c", "third", 30.0)
    assert [dequeue(queue, 30.0).key, dequeue(queue, 30.0).key] == ["c", "a"]


def test_failure_and_requeue_wait_for_the_end_of_the_interval() -> None:
    """A back-off that is longer lasts longer, and a change ends it, but not the interval."""
    queue = paced(1.5)
    queue.add("a", "first", 0.0)
    dequeue(queue, 0.0)
    assert queue.failed("a", "error", 0.0) == 1.5
    dequeue(queue, 1.5)
    queue.add("a", "in hand", 1.6)
    assert queue.failed("a", "error", 2.0) == 1.0
    dequeue(queue, 3.0)
    assert queue.failed("a", "error", 3.0) == 4.0
    queue.add("a", "change", 3.5)
    assert queue.next_due() == 4.5
    dequeue(queue, 4.5)
    queue.requeue_after("a", 0.5, "requeue", 4.5)
    assert queue.scheduled() == {"a": 5.0}
    assert queue.dequeue(5.0) is None
    assert queue.owed() == ["a"]
    dequeue(queue, 6.0)


def test_change_after_a_requeue_in_the_same_run_ends_the_back_off_of_its_failure() -> None:
    queue = paced(1.5)
    queue.add("a", "first", 0.0)
    dequeue(queue, 0.0)
    queue.add_after("a", "requeue", 1.75, 0.0)
    queue.add("a", "change", 0.5)
    assert queue.failed("a", "error", 1.0) == 0.5
    assert queue.next_due() == 1.5


def test_failure_after_the_interval_never_waits_for_less_than_no_time() -> None:
    """A requeue became due meanwhile, before the interval ended, and nothing has looked at the intervals since."""
    queue = paced(1.0)
    queue.add("a", "first", 0.0)
    dequeue(queue, 0.0)
    queue.add_after("a", "requeue", 0.25, 0.0)
    assert queue.failed("a", "error", 1.25) == 0.0
    assert dequeue(queue, 1.25).reasons == ("first", "error", "requeue")


def test_paced_key_says_when_it_is_due_and_is_old_only_from_then_on() -> None:
    """A key that fails is as old as its first failure, since it is not the interval that keeps it from ending."""
    queue = paced()
    queue.add("a", "first", 0.0)
    dequeue(queue, 0.0)
    queue.succeeded("a", 0.0)
    queue.add("a", "second", 1.0)
    assert queue.dequeue(1.0) is None
    found = queue.find("a")
    assert found is not None
    assert (found.state, found.since, found.due) == ("paced", 1.0, 10.0)
    assert queue.oldest(9.0) == []
    dequeue(queue, 10.5)
    assert queue.oldest(9.0) == []
    assert queue.oldest(11.0) == [(10.0, "a")]
    queue.failed("a", "error", 10.6)
    found = queue.find("a")
    assert found is not None
    assert found.state == "backing off"
    assert queue.oldest(10.5) == [(10.0, "a")]


def test_paced_key_that_waits_behind_another_is_old_from_the_end_of_its_interval() -> None:
    """The dequeue of the other one forgets the interval."""
    queue = paced()
    for key in ("b", "a"):
        queue.add(key, "first", 0.0)
        dequeue(queue, 0.0)
        queue.succeeded(key, 0.0)
    queue.add_all(["b", "a"], "second", 1.0)
    assert queue.dequeue(1.0) is None
    assert dequeue(queue, 10.0).key == "b"
    assert queue.oldest(9.0) == []
    assert sorted(queue.oldest(11.0)) == [(10.0, "a"), (10.0, "b")]


def test_end_of_an_interval_by_hand_makes_the_next_add_ready() -> None:
    queue = paced()
    queue.add("a", "first", 0.0)
    dequeue(queue, 0.0)
    queue.succeeded("a", 0.0)
    queue.add("a", "second", 1.0)
    assert queue.dequeue(1.0) is None
    queue.end_interval("a")
    queue.add("a", "operator", 2.0)
    assert dequeue(queue, 2.0).reasons == ("second", "operator")


def test_intervals_that_have_ended_take_no_memory() -> None:
    """Only the keys that were dequeued within the last interval are known."""
    queue = paced(1.0)
    for number in range(1000):
        queue.add(str(number), "change", float(number))
        dequeue(queue, float(number))
        queue.succeeded(str(number), float(number))
    assert len(queue._not_before) <= 2


async def test_worker_wakes_at_the_end_of_the_interval(autojump_clock: MockClock) -> None:
    """Even if another worker already waits for the time of a key that is due later."""
    queue = WaitingQueue(paced())
    workers = Workers(queue)
    async with trio.open_nursery() as nursery:
        await start(nursery, workers, 3)
        queue.add("a", "first")
        queue.add_after("later", "timer", 50.0)
        await let_pass(autojump_clock, 1)
        queue.add("a", "second")
        await let_pass(autojump_clock, 4)
        queue.add("a", "third")
        await let_pass(autojump_clock, 20)
        assert workers.dequeued == [("a", 0.0), ("a", 10.0)]
        await let_pass(autojump_clock, 40)
        assert workers.dequeued[2:] == [("later", 50.0)]
        queue.close()


def test_only_the_wait_for_an_interval_moves_the_time_since_when_a_key_is_pending() -> None:
    """A key that is delayed for another reason, or has failed, has been pending since it was added."""
    queue = paced()
    queue.add("delayed", "status", 0.0, due=3.0)
    queue.add("failed", "change", 0.0)
    dequeue(queue, 0.0)
    assert queue.failed("failed", "error", 0.0) == 10.0
    queue.promote(12.0)
    assert sorted(queue.oldest(20.0)) == [(0.0, "delayed"), (0.0, "failed")]


def test_key_that_was_not_worked_on_begins_no_interval() -> None:
    queue = paced()
    queue.add("a", "first", 0.0)
    dequeue(queue, 0.0)
    queue.back_off("a", 5.0, 0.0)
    queue.add("a", "change", 1.0)
    assert dequeue(queue, 1.0).key == "a"


def test_key_that_begins_when_its_interval_ends_keeps_no_other_in_memory() -> None:
    """The intervals are kept in the order of their ends."""
    queue = paced()
    for name, now in (("a", 0.0), ("b", 5.0), ("a", 10.0), ("c", 15.0)):
        queue.add(name, "change", now)
        dequeue(queue, now)
        queue.succeeded(name, now)
    assert [*queue._not_before] == ["a", "c"]


def test_change_of_a_key_that_is_scheduled_for_the_end_of_its_interval_is_owed() -> None:
    """The time stays, but who waits until nothing is owed waits for it now."""
    queue = paced(10.0)
    queue.add("a", "first", 0.0)
    dequeue(queue, 0.0)
    queue.add_after("a", "requeue", 10.0, 0.5)
    queue.succeeded("a", 1.0)
    assert queue.scheduled() == {"a": 10.0}
    assert queue.is_idle()
    queue.add("a", "change", 2.0)
    assert queue.owed() == ["a"]
    assert queue.next_due() == 10.0
