"""The queue with priorities: its order, and that no key waits for more than a bounded number of others."""

from __future__ import annotations

import sys

import pytest

from headway.queue import BACKLOG, LIVE_PER_BACKLOG, Backoff, RankedQueue
from tests.queue.machines import dequeue, drain


class Ranked(RankedQueue[str, str]):
    """A queue whose priorities are in a dictionary."""

    def __init__(self, **priorities: int) -> None:
        self.priorities = priorities
        super().__init__(lambda key: self.priorities.get(key, 0), Backoff(base=1.0))


def test_higher_priority_goes_first_and_live_keys_within_one() -> None:
    queue = Ranked(high=5, high_old=5, low=-1)
    queue.add_all(["low", "old", "high_old"], "start", 0.0, priority=BACKLOG)
    for key in ("new", "high"):
        queue.add(key, "change", 1.0)
    statistics = queue.statistics()
    assert (statistics.ready, statistics.backlog, statistics.oldest_queued_at) == (5, 3, 0.0)
    assert [queue.before(key) for key in ("high", "high_old", "new", "old", "low", "none")] == [0, 1, 2, 3, 4, 0]
    assert drain(queue, 1.0) == ["high", "high_old", "new", "old", "low"]
    assert queue.is_idle()


def test_add_of_a_ready_key_asks_anew_and_moves_the_key_to_the_end_of_its_line() -> None:
    """Unless it is in that line already."""
    queue = Ranked()
    for key in ("a", "b", "c", "d"):
        queue.add(key, "change", 0.0)
    queue.priorities = {"a": -1, "b": 0, "c": 1, "d": 1}
    for key in ("b", "a", "d", "c", "d"):
        queue.add(key, "change", 1.0)
    assert drain(queue, 1.0) == ["d", "c", "b", "a"]


def test_backlog_key_that_becomes_live_moves_within_its_priority() -> None:
    queue = Ranked(b=1)
    queue.add_all(["a", "b", "c"], "start", 0.0, priority=BACKLOG)
    queue.add("c", "change", 1.0)
    assert queue.statistics().backlog == 2
    assert drain(queue, 1.0) == ["b", "c", "a"]


def test_delayed_key_has_the_priority_of_the_time_when_it_becomes_ready() -> None:
    """Whether it was scheduled, has failed, or was added while it was in hand."""
    queue = Ranked()
    for key in ("failed", "added"):
        queue.add(key, "change", 0.0)
        dequeue(queue, 0.0)
    queue.add_after("scheduled", "later", 2.0, 0.0)
    queue.failed("failed", "error", 0.0)
    queue.add("added", "change", 0.0)
    queue.add("normal", "change", 0.0)
    queue.priorities = {"scheduled": 3, "failed": 2, "added": 1}
    queue.succeeded("added", 2.0)
    assert drain(queue, 2.0) == ["scheduled", "failed", "added", "normal"]


@pytest.mark.parametrize("older", [0, 1, 5])
def test_key_is_one_of_the_next_nine_for_each_older_one(older: int) -> None:
    """However many keys of a higher priority follow it. A key that changes its line stays as old as it is."""
    queue = Ranked(**{f"older{number}": -1 for number in range(older)}, low=-2)
    queue.add_all([*(f"older{number}" for number in range(older)), "low"], "start", 0.0, priority=BACKLOG)
    taken = []
    for number in range(1000):
        queue.add(f"new{number}", "change", 1.0)
        queue.priorities["low"] = -2 - number % 2
        queue.add("low", "change", 1.0)
        taken.append(dequeue(queue, 1.0).key)
        queue.succeeded(taken[-1], 1.0)
        if taken[-1] == "low":
            break
    assert len(taken) == (older + 1) * (LIVE_PER_BACKLOG + 1)
    assert sum(key.startswith("new") for key in taken) == (older + 1) * LIVE_PER_BACKLOG


def test_turn_of_the_oldest_key_is_over_when_it_goes_by_itself() -> None:
    """Keys of one priority go in order, and the count begins again with each that was the oldest."""
    queue = Ranked(low=-1)
    for number in range(6):
        queue.add(f"a{number}", "change", 0.0)
    queue.add("low", "change", 0.0)
    for number in range(20):
        queue.add(f"b{number:02}", "change", 0.0)
    order = drain(queue, 0.0)
    assert order[:6] == [f"a{number}" for number in range(6)]
    assert order.index("low") == 6 + LIVE_PER_BACKLOG


def test_empty_queue_keeps_no_memory_for_its_largest_size_or_its_changes() -> None:
    queue = Ranked()
    keys = [f"k{number}" for number in range(10_000)]
    queue.add_all(keys, "start", 0.0, priority=BACKLOG)
    for priority in (1, 2, 0):
        queue.priorities = dict.fromkeys(keys, priority)
        queue.add_all(keys, "change", 0.0)
    assert len(drain(queue, 0.0)) == 10_000
    lanes = queue._lanes
    for name in ("_ranks", "_lines", "_live", "_backlog"):
        assert sys.getsizeof(getattr(lanes, name)) < 1000, name
