"""The priority, the time and the reasons of a key that is added again in each of its states."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from headway.queue import BACKLOG, LIVE, Backoff, Priority, WorkQueue
from tests.queue.machines import Queue, dequeue, drain, make

NO_PRIORITY: Priority = 7  # type: ignore[assignment]  # this is what the queue has to refuse


def in_hand(queue: Queue) -> None:
    queue.add("a", "start", 0.0, priority=BACKLOG)
    dequeue(queue, 0.0)


def in_hand_and_added(queue: Queue) -> None:
    in_hand(queue)
    queue.add("a", "start", 0.0, priority=BACKLOG)


def in_hand_and_scheduled(queue: Queue) -> None:
    in_hand(queue)
    queue.add_after("a", "later", 5.0, 0.0, priority=BACKLOG)


def backing_off(queue: Queue) -> None:
    in_hand(queue)
    queue.failed("a", "error", 0.0)


def scheduled(queue: Queue) -> None:
    queue.add_after("a", "later", 5.0, 0.0, priority=BACKLOG)


def ready(queue: Queue) -> None:
    queue.add("a", "start", 0.0, priority=BACKLOG)


STATES = [in_hand, in_hand_and_added, in_hand_and_scheduled, backing_off, scheduled, ready]


def report(queue: Queue, now: float) -> None:
    if queue.statistics().in_hand:
        queue.succeeded("a", now)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("priority", [LIVE, BACKLOG])
def test_live_add_makes_a_backlog_key_live(state: Callable[[Queue], None], priority: Priority) -> None:
    """In whatever state it is. Another backlog add leaves it in the backlog."""
    queue = make()
    state(queue)
    queue.add("old", "start", 0.0, priority=BACKLOG)
    queue.add("a", "change", 1.0, priority=priority)
    report(queue, 1.0)
    queue.add("new", "change", 1.0)
    assert queue.statistics().backlog == (1 if priority == LIVE else 2)
    assert drain(queue, 1.0)[0] == ("a" if priority == LIVE else "new")


@pytest.mark.parametrize("state", [in_hand_and_scheduled, backing_off, scheduled])
def test_delayed_live_add_makes_a_delayed_backlog_key_live(state: Callable[[Queue], None]) -> None:
    """Also if the add is due after the key."""
    for due in (0.5, 50.0):
        queue = make()
        state(queue)
        queue.add_after("a", "change", due, 0.0)
        report(queue, 0.0)
        queue.promote(60.0)
        queue.add("new", "change", 60.0)
        assert drain(queue, 60.0) == ["a", "new"]


@pytest.mark.parametrize(("asked", "later", "due"), [(10.0, 40.0, 12.0), (40.0, 10.0, 10.0)])
def test_requeued_key_runs_at_the_earlier_of_two_delays(asked: float, later: float, due: float) -> None:
    """The other is the delay of an add in the meantime. The run is live: the reconciler asked for it."""
    queue = make()
    in_hand(queue)
    queue.add_after("a", "later", later, 1.0, priority=BACKLOG)
    queue.requeue_after("a", asked, "again", 2.0)
    assert queue.scheduled() == {"a": due}
    queue.promote(60.0)
    queue.add("new", "change", 60.0)
    assert drain(queue, 60.0) == ["a", "new"]


def test_failed_key_returns_the_seconds_until_an_earlier_delay() -> None:
    """They count from the failure on, and a delay that has passed counts as none."""
    for now, seconds in ((100.0, 0.25), (100.25, 0.0), (101.0, 0.0)):
        queue = make()
        queue.add("a", "change", 99.0)
        dequeue(queue, 99.0)
        queue.add_after("a", "later", 100.25, 99.0)
        assert queue.failed("a", "error", now) == seconds


def test_key_without_a_delay_left_is_ready_at_once() -> None:
    """It counts as ready before the next look at the delays."""
    queue = make()
    for name in ("back_off", "requeue", "scheduled"):
        queue.add(name, "change", 0.0)
        dequeue(queue, 0.0)
    queue.add_after("scheduled", "later", 5.0, 0.0)
    queue.back_off("back_off", 0.0, 5.0)
    queue.requeue_after("requeue", 0.0, "again", 5.0)
    queue.succeeded("scheduled", 5.0)
    assert queue.ready_count() == queue.statistics().ready == 3
    assert drain(queue, 5.0) == ["back_off", "requeue", "scheduled"]


def test_added_keys_and_merges_are_counted() -> None:
    """Each add counts once, and as merged if the key already had a run to come."""
    queue = make()
    queue.add_all(["a", "b"], "start", 0.0, priority=BACKLOG)
    queue.add("a", "change", 0.0)
    queue.add_after("a", "later", 5.0, 0.0)
    queue.add_after("c", "later", 5.0, 0.0)
    queue.add_after("c", "later", 6.0, 0.0)
    dequeue(queue, 0.0)
    queue.add("a", "change", 0.0)
    queue.add_after("a", "later", 5.0, 0.0)
    queue.add_all(["a", "d"], "all", 0.0)
    statistics = queue.statistics()
    assert (statistics.adds, statistics.merged) == (10, 5)


def test_closed_queue_ignores_adding_all() -> None:
    queue = make()
    queue.close()
    assert queue.closed
    queue.add_all(["a"], "start", 0.0)
    assert queue.owed() == []
    assert queue.statistics().adds == 0


def test_unknown_priority_is_refused_by_every_add() -> None:
    """It changes nothing."""
    queue = make()
    adds: list[Callable[[], None]] = [
        lambda: queue.add("a", "change", 0.0, priority=NO_PRIORITY),
        lambda: queue.add_all(["a"], "change", 0.0, priority=NO_PRIORITY),
        lambda: queue.add_after("a", "change", 5.0, 0.0, priority=NO_PRIORITY),
        lambda: queue.add_after("a", "change", -5.0, 0.0, priority=NO_PRIORITY),
    ]
    for add in adds:
        with pytest.raises(ValueError, match="priority is 7"):
            add()
    assert queue.is_idle()
    assert queue.statistics().adds == 0


def test_backlog_may_get_every_second_turn() -> None:
    """That is the most; without any turn of a live key before it, the setting would be no order."""
    queue = make(live_per_backlog=1)
    for number in range(3):
        queue.add(f"old{number}", "start", 0.0, priority=BACKLOG)
        queue.add(f"new{number}", "change", 0.0)
    assert drain(queue, 0.0) == ["new0", "old0", "new1", "old1", "new2", "old2"]
    with pytest.raises(ValueError, match="live_per_backlog is 0"):
        make(live_per_backlog=0)


# ---- the heap of delays


def test_overridden_delays_lose_no_other_delay() -> None:
    """Abandoned places are removed from time to time. All other keys stay, in order, in a bounded heap."""
    queue: Queue = WorkQueue(Backoff())
    for number in range(100):
        queue.add_after(f"k{number}", "later", 1000.0 - number, 0.0)
    for number in range(5000):
        queue.add_after("moved", "later", 500_000.0 - number, 0.0)
        assert len(queue._delays.heap) <= 2 * 101 + 1
    for number in range(0, 100, 2):
        queue.add(f"k{number}", "change", 1.0)
    assert len(drain(queue, 1.0)) == 50
    assert drain(queue, 2000.0) == [f"k{number}" for number in range(99, 0, -2)]
    assert queue.scheduled() == {"moved": 495_001.0}


@pytest.mark.parametrize("priority", [LIVE, BACKLOG])
def test_empty_queue_keeps_no_memory_for_its_largest_size(priority: Priority) -> None:
    """A dictionary that is only emptied by removals keeps it."""
    queue = make()
    queue.add_all([f"k{number}" for number in range(10_000)], "start", 0.0, priority=priority)
    assert len(drain(queue, 0.0)) == 10_000
    for kept in (queue._entries, queue._lanes._backlog):
        assert sys.getsizeof(kept) < 1000


def test_backlog_keys_that_became_live_take_no_place_and_no_turn_in_the_backlog() -> None:
    """Their abandoned places are removed, and a turn of the backlog skips those that are left."""
    queue = make()
    keys = [f"k{number:03}" for number in range(400)]
    queue.add_all(keys, "start", 0.0, priority=BACKLOG)
    for key in keys[:300]:
        queue.add(key, "change", 1.0)
        assert len(queue._lanes._backlog) <= max(64, 2 * queue.statistics().backlog)
    assert queue.statistics().backlog == 100
    assert queue.statistics().oldest_queued_at == 0.0
    # Eight live keys go before each key of the backlog.
    wanted = [key for turn in range(9) for key in (*keys[turn * 8 : turn * 8 + 8], keys[300 + turn])]
    found = drain(queue, 1.0)
    assert found[:81] == wanted
    assert sorted(found) == keys


def test_delayed_key_keeps_its_place_among_those_due_at_the_same_time() -> None:
    """Adding it again for the same time does not put it behind them."""
    queue = make()
    for key in ("a", "b", "a"):
        queue.add_after(key, "later", 5.0, 0.0)
    assert drain(queue, 5.0) == ["a", "b"]
