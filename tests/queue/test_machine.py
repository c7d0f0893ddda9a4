"""The work queue's rules for its input and for the order of its output, with times set by the tests."""

import pytest

from headway.queue import BACKLOG, Dequeued, QueueStatistics
from tests.queue.machines import dequeue, drain, make

# ---- merging


def test_keys_are_dequeued_in_order_of_their_first_add() -> None:
    """Adding a key again neither moves it back nor dequeues it twice."""
    queue = make()
    for key in "abca":
        queue.add(key, "change", 0.0)
    assert drain(queue, 0.0) == ["a", "b", "c"]


def test_dequeued_key_carries_reasons_time_and_attempt() -> None:
    """The reasons are in order of their adds, and the time is the time of the first add."""
    queue = make()
    queue.add("a", "first", 1.0)
    queue.add("a", "second", 2.0)
    assert dequeue(queue, 3.0) == Dequeued("a", ("first", "second"), 0, 1.0, 1)


def test_first_three_and_last_five_reasons_are_kept() -> None:
    """The others are counted, so that a stream of changes takes bounded memory."""
    queue = make()
    for number in range(20):
        queue.add("a", str(number), 0.0)
    dequeued = dequeue(queue, 0.0)
    assert dequeued.reasons == ("0", "1", "2", "15", "16", "17", "18", "19")
    assert dequeued.omitted == 12


def test_key_in_hand_is_not_dequeued_again() -> None:
    """An add while the key is in hand waits until the key is reported back."""
    queue = make()
    queue.add("a", "one", 0.0)
    dequeue(queue, 0.0)
    queue.add("a", "two", 1.0)
    assert queue.dequeue(1.0) is None


def test_dirty_key_comes_back_once_at_the_end_of_the_line() -> None:
    """Any number of adds while the key is in hand cause one more run."""
    queue = make()
    queue.add("a", "one", 0.0)
    dequeue(queue, 0.0)
    queue.add("b", "other", 1.0)
    queue.add("a", "two", 2.0)
    queue.add("a", "three", 3.0)
    queue.succeeded("a", 4.0)
    assert dequeue(queue, 4.0).key == "b"
    assert dequeue(queue, 4.0) == Dequeued("a", ("two", "three"), 0, 2.0, 1)
    queue.succeeded("a", 5.0)
    assert queue.dequeue(5.0) is None


# ---- delays


def test_delayed_add_is_ready_exactly_when_due() -> None:
    """The wait that is reported with the key begins at its due time."""
    queue = make()
    queue.add_after("a", "later", 10.0, 0.0)
    assert queue.dequeue(9.999) is None
    assert queue.next_due() == 10.0
    assert dequeue(queue, 12.0).queued_at == 10.0


@pytest.mark.parametrize("dues", [(10.0, 5.0), (5.0, 10.0)])
def test_earliest_of_several_delays_counts(dues: tuple[float, float]) -> None:
    """The key runs once, at the earliest time, whichever delay was added first."""
    queue = make()
    for due in dues:
        queue.add_after("a", "later", due, 0.0)
    assert queue.next_due() == 5.0
    assert drain(queue, 5.0) == ["a"]
    assert drain(queue, 20.0) == []


def test_direct_add_cancels_a_delay() -> None:
    """The key is ready at once, and its canceled due time has no effect."""
    queue = make()
    queue.add_after("a", "later", 10.0, 0.0)
    queue.add("a", "now", 1.0)
    assert dequeue(queue, 1.0) == Dequeued("a", ("later", "now"), 0, 1.0, 1)
    queue.succeeded("a", 2.0)
    assert queue.next_due() is None
    assert queue.dequeue(10.0) is None


def test_delay_in_the_past_is_a_direct_add() -> None:
    """A due time at or before now enqueues the key at once."""
    queue = make()
    queue.add_after("a", "now", 5.0, 5.0)
    assert queue.next_due() is None
    assert drain(queue, 5.0) == ["a"]


@pytest.mark.parametrize("dues", [(10.0, 8.0), (8.0, 10.0)])
def test_delayed_add_of_a_key_in_hand_waits_for_report_and_due_time(dues: tuple[float, float]) -> None:
    """Once reported back, the key is delayed until the earliest due time."""
    queue = make()
    queue.add("a", "now", 0.0)
    dequeue(queue, 0.0)
    for due in dues:
        queue.add_after("a", "later", due, 0.0)
    queue.succeeded("a", 1.0)
    assert queue.scheduled() == {"a": 8.0}
    assert queue.owed() == []


# ---- priorities


def test_live_keys_are_dequeued_before_the_backlog() -> None:
    """A key that has just changed doesn't wait for the keys of the start."""
    queue = make()
    queue.add("old", "start", 0.0, priority=BACKLOG)
    queue.add("new", "change", 1.0)
    assert drain(queue, 1.0) == ["new", "old"]


def test_one_backlog_key_is_dequeued_after_eight_live_keys() -> None:
    """The backlog gets one turn in nine, however many live keys are ready."""
    queue = make()
    for number in range(3):
        queue.add(f"old{number}", "start", 0.0, priority=BACKLOG)
    for number in range(20):
        queue.add(f"new{number}", "change", 0.0)
    order = drain(queue, 0.0)
    assert [order.index(f"old{number}") for number in range(3)] == [8, 17, 22]


def test_live_change_raises_a_backlog_key() -> None:
    """Merged adds dequeue the better priority."""
    queue = make()
    queue.add("other", "start", 0.0, priority=BACKLOG)
    queue.add("a", "start", 0.0, priority=BACKLOG)
    queue.add("a", "change", 1.0)
    queue.add("a", "start", 2.0, priority=BACKLOG)
    assert drain(queue, 2.0) == ["a", "other"]


def test_failed_backlog_key_stays_backlog() -> None:
    """A retry doesn't overtake live keys."""
    queue = make()
    queue.add("old", "start", 0.0, priority=BACKLOG)
    dequeue(queue, 0.0)
    assert queue.failed("old", "error", 0.0) == 1.0
    queue.promote(1.0)
    queue.add("new", "change", 1.0)
    assert drain(queue, 1.0) == ["new", "old"]


# ---- seen from outside


def test_pending_keys_exclude_only_scheduled_ones() -> None:
    """Ready, in-hand and failed keys are pending; requeued and delayed ones are scheduled."""
    queue = make()
    for key in ("failed", "requeued", "hand", "ready"):
        queue.add(key, "change", 0.0)
    for _ in range(3):
        dequeue(queue, 0.0)
    queue.failed("failed", "error", 0.0)
    queue.requeue_after("requeued", 7.0, "poll", 0.0)
    queue.add_after("delayed", "later", 9.0, 0.0)
    assert sorted(queue.owed()) == ["failed", "hand", "ready"]
    assert queue.scheduled() == {"requeued": 7.0, "delayed": 9.0}
    assert queue.owes_only({"failed", "hand", "ready", "other"})
    assert not any(queue.owes_only({"failed", "hand", "ready", "delayed"} - {key}) for key in queue.owed())


def test_statistics_count_every_state() -> None:
    """Each key is counted in its state, and adds that join a waiting run are counted as merged."""
    queue = make()
    for key in ("failed", "hand"):
        queue.add(key, "change", 1.0)
        dequeue(queue, 1.0)
    queue.failed("failed", "error", 1.0)
    queue.add_after("delayed", "later", 9.0, 1.0)
    queue.add("old", "start", 3.0, priority=BACKLOG)
    queue.add("new", "change", 4.0)
    queue.add("new", "change", 5.0)
    assert queue.statistics() == QueueStatistics(
        ready=2,
        backlog=1,
        delayed_by_failure=1,
        scheduled=1,
        in_hand=1,
        oldest_queued_at=3.0,
        adds=6,
        merged=1,
    )


def test_queue_is_idle_when_no_key_is_pending() -> None:
    """Ready, in-hand and failed keys make it busy; scheduled ones don't."""
    queue = make()
    assert queue.is_idle()
    queue.add("a", "change", 0.0)
    assert not queue.is_idle()
    dequeue(queue, 0.0)
    assert not queue.is_idle()
    queue.failed("a", "error", 0.0)
    assert not queue.is_idle()
    dequeue(queue, 1.0)
    queue.requeue_after("a", 5.0, "poll", 1.0)
    assert queue.is_idle()


def test_closed_queue_neither_enqueues_nor_dequeues() -> None:
    """Three keys that were ready are not dequeued, but they are still pending."""
    queue = make()
    for key in "abc":
        queue.add(key, "change", 0.0)
    queue.close()
    queue.add("d", "change", 1.0)
    queue.add_after("e", "later", 5.0, 1.0)
    assert queue.dequeue(9.0) is None
    assert queue.next_due() is None
    assert queue.owed() == ["a", "b", "c"]


def test_key_in_hand_at_the_close_is_pending_until_reported() -> None:
    """The key of a reconcile that still succeeds is not pending; that of one that never reports is."""
    queue = make()
    for key in "ab":
        queue.add(key, "change", 0.0)
        dequeue(queue, 0.0)
    queue.close()
    queue.succeeded("a", 1.0)
    assert queue.owed() == ["b"]
