"""What the queue says of one key: its state, and since when it has been pending, through all failures."""

from __future__ import annotations

import pytest

from headway.queue import Backoff, WorkQueue


def test_unknown_key_is_not_found() -> None:
    assert WorkQueue[str, str]().find("a") is None


def test_key_is_pending_since_it_was_added_through_all_failures() -> None:
    """Neither a failure nor a further change makes the work younger."""
    queue = WorkQueue[str, str](Backoff(base=1.0))
    queue.add("a", "first", 10.0)
    for now in (11.0, 20.0):
        dequeued = queue.dequeue(now)
        assert dequeued is not None
        queue.failed("a", "retry", now)
    found = queue.find("a")
    assert found is not None
    assert (found.state, found.since, found.due, found.attempt) == ("backing off", 10.0, 22.0, 3)
    queue.add("a", "second", 21.0)
    found = queue.find("a")
    assert found is not None
    assert (found.state, found.since, found.reasons) == ("ready", 10.0, ("first", "retry", "second"))


def test_change_during_a_successful_reconcile_is_new_work() -> None:
    queue = WorkQueue[str, str]()
    queue.add("a", "first", 10.0)
    queue.dequeue(11.0)
    queue.add("a", "second", 12.0)
    found = queue.find("a")
    assert found is not None
    assert (found.state, found.reasons, found.following) == ("in hand", ("first",), ("second",))
    queue.succeeded("a", 13.0)
    found = queue.find("a")
    assert found is not None
    assert found.since == 12.0


def test_scheduled_key_is_pending_only_from_its_due_time_on() -> None:
    """A change before that makes it pending at once."""
    queue = WorkQueue[str, str]()
    for key in ("due", "changed"):
        queue.add_after(key, "later", 50.0, 10.0)
    found = queue.find("due")
    assert found is not None
    assert (found.state, found.since, found.due) == ("scheduled", 50.0, 50.0)
    assert queue.oldest(1000.0) == []
    queue.add("changed", "now", 20.0)
    queue.promote(60.0)
    assert sorted(queue.oldest(1000.0)) == [(20.0, "changed"), (50.0, "due")]


def test_requeued_key_is_pending_from_its_due_time_on() -> None:
    queue = WorkQueue[str, str]()
    queue.add("a", "first", 10.0)
    queue.dequeue(11.0)
    queue.requeue_after("a", 5.0, "requeue", 12.0)
    queue.promote(30.0)
    assert queue.oldest(1000.0) == [(17.0, "a")]


def test_oldest_leaves_out_what_is_younger() -> None:
    queue = WorkQueue[str, str]()
    queue.add("old", "first", 10.0)
    queue.add("new", "first", 20.0)
    assert queue.oldest(15.0) == queue.oldest(20.0) == [(10.0, "old")]


@pytest.mark.parametrize("in_hand", [False, True])
def test_key_whose_delay_was_shortened_is_pending_from_the_earlier_time_on(in_hand: bool) -> None:
    queue = WorkQueue[str, str]()
    if in_hand:
        queue.add("a", "first", 10.0)
        queue.dequeue(10.0)
    for due in (50.0, 20.0):
        queue.add_after("a", "later", due, 10.0)
    if in_hand:
        queue.succeeded("a", 30.0)
    queue.promote(30.0)
    assert queue.oldest(1000.0) == [(20.0, "a")]


def test_change_beside_a_requeue_in_hand_is_pending_from_the_change_on() -> None:
    """And not since the time for which the requeue was asked."""
    queue = WorkQueue[str, str]()
    queue.add("a", "first", 10.0)
    queue.dequeue(10.0)
    queue.add_after("a", "requeue", 100.0, 11.0)
    queue.add("a", "change", 12.0)
    queue.succeeded("a", 13.0)
    assert queue.oldest(1000.0) == [(12.0, "a")]
