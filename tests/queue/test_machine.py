"""The work queue's rules, one at a time, on hand-made times."""

import math
from collections.abc import Callable

import pytest

from headway.queue import BACKLOG, Backoff, NotInHandError, QueueStatistics, Taken, WorkQueue

Queue = WorkQueue[str, str]


def make(*, live_per_backlog: int = 8) -> Queue:
    return WorkQueue(Backoff(base=1.0, maximum=60.0), live_per_backlog=live_per_backlog)


def take(queue: Queue, now: float) -> Taken[str, str]:
    taken = queue.take(now)
    assert taken is not None
    return taken


def drain(queue: Queue, now: float) -> list[str]:
    """Take and finish until nothing is ready."""
    keys = []
    while (taken := queue.take(now)) is not None:
        keys.append(taken.key)
        queue.succeeded(taken.key, now)
    return keys


def fail(queue: Queue, key: str, now: float, times: int = 1) -> float:
    """Fail the key in hand, waiting out each rest; return the last rest."""
    for _ in range(times - 1):
        now += queue.failed(key, "error", now)
        take(queue, now)
    return queue.failed(key, "error", now)


# ---- merging


def test_keys_come_out_in_the_order_of_their_first_add() -> None:
    """A repeat neither moves a key back nor makes it come out twice."""
    queue = make()
    for key in "abca":
        queue.add(key, "change", 0.0)
    assert drain(queue, 0.0) == ["a", "b", "c"]


def test_what_is_taken_says_why_since_when_and_which_attempt() -> None:
    """The reasons are in order of their adds, and the time is that of the first."""
    queue = make()
    queue.add("a", "first", 1.0)
    queue.add("a", "second", 2.0)
    assert take(queue, 3.0) == Taken("a", ("first", "second"), 0, 1.0, 1)


def test_of_many_reasons_the_first_three_and_last_five_are_kept() -> None:
    """What lies between is counted, so that a stream of changes costs bounded memory."""
    queue = make()
    for number in range(20):
        queue.add("a", str(number), 0.0)
    taken = take(queue, 0.0)
    assert taken.reasons == ("0", "1", "2", "15", "16", "17", "18", "19")
    assert taken.omitted == 12


def test_a_key_in_hand_is_not_handed_out_again() -> None:
    """An add while the key is in hand waits until it is reported back."""
    queue = make()
    queue.add("a", "one", 0.0)
    take(queue, 0.0)
    queue.add("a", "two", 1.0)
    assert queue.take(1.0) is None


def test_a_dirty_key_comes_back_once_and_behind_the_others() -> None:
    """Any number of adds while the key is in hand make one more run, at the end of the line."""
    queue = make()
    queue.add("a", "one", 0.0)
    take(queue, 0.0)
    queue.add("b", "other", 1.0)
    queue.add("a", "two", 2.0)
    queue.add("a", "three", 3.0)
    queue.succeeded("a", 4.0)
    assert take(queue, 4.0).key == "b"
    assert take(queue, 4.0) == Taken("a", ("two", "three"), 0, 2.0, 1)
    queue.succeeded("a", 5.0)
    assert queue.take(5.0) is None


# ---- delays


def test_a_delayed_add_is_ready_when_it_is_due_and_not_before() -> None:
    """Due means at the very moment, and the key has wanted to run since then."""
    queue = make()
    queue.add_after("a", "later", 10.0, 0.0)
    assert queue.take(9.999) is None
    assert queue.next_due() == 10.0
    assert take(queue, 12.0).queued_at == 10.0


def test_delayed_keys_come_out_in_order_of_due_time() -> None:
    """The order in which they were added doesn't matter."""
    queue = make()
    queue.add_after("late", "x", 3.0, 0.0)
    queue.add_after("early", "x", 1.0, 0.0)
    queue.add_after("middle", "x", 2.0, 0.0)
    assert drain(queue, 5.0) == ["early", "middle", "late"]


@pytest.mark.parametrize("dues", [(10.0, 5.0), (5.0, 10.0)])
def test_the_earliest_of_several_delays_counts(dues: tuple[float, float]) -> None:
    """Whichever came first, the key runs once, at the earlier time."""
    queue = make()
    for due in dues:
        queue.add_after("a", "later", due, 0.0)
    assert queue.next_due() == 5.0
    assert drain(queue, 5.0) == ["a"]
    assert drain(queue, 20.0) == []


def test_a_direct_add_overrides_a_delay_which_then_never_fires() -> None:
    """The key is ready at once, and nothing is left for the old due time."""
    queue = make()
    queue.add_after("a", "later", 10.0, 0.0)
    queue.add("a", "now", 1.0)
    assert take(queue, 1.0) == Taken("a", ("later", "now"), 0, 1.0, 1)
    queue.succeeded("a", 2.0)
    assert queue.next_due() is None
    assert queue.take(10.0) is None


def test_a_delay_that_is_over_is_a_direct_add() -> None:
    """A due time at or before now queues the key at once."""
    queue = make()
    queue.add_after("a", "now", 5.0, 5.0)
    assert queue.next_due() is None
    assert drain(queue, 5.0) == ["a"]


def test_a_delayed_add_of_a_ready_key_only_adds_its_reason() -> None:
    """The key is going to run anyway, and does so once."""
    queue = make()
    queue.add("a", "now", 0.0)
    queue.add_after("a", "later", 10.0, 0.0)
    assert take(queue, 0.0).reasons == ("now", "later")
    queue.succeeded("a", 0.0)
    assert queue.next_due() is None


def test_a_delayed_add_of_a_key_in_hand_waits_for_both() -> None:
    """The key is delayed once it has been reported back, until the earliest due time."""
    queue = make()
    queue.add("a", "now", 0.0)
    take(queue, 0.0)
    queue.add_after("a", "later", 10.0, 0.0)
    queue.add_after("a", "sooner", 8.0, 0.0)
    queue.succeeded("a", 1.0)
    assert queue.scheduled() == {"a": 8.0}
    assert queue.owed() == []


def test_overriding_delays_again_and_again_costs_no_memory() -> None:
    """Places given up in the heap are cleared out, though none of them has come due."""
    queue = make()
    for number in range(10_000):
        queue.add_after("a", "later", 1_000_000.0 - number, 0.0)
    assert queue._delays.places() <= 130
    assert queue.next_due() == 990_001.0


# ---- priorities


def test_live_keys_go_before_the_backlog() -> None:
    """What has just changed isn't kept waiting by what was there at the start."""
    queue = make()
    queue.add("old", "start", 0.0, priority=BACKLOG)
    queue.add("new", "change", 1.0)
    assert drain(queue, 1.0) == ["new", "old"]


def test_after_eight_live_keys_one_backlog_key_goes_first() -> None:
    """The backlog gets one turn in nine, however many live keys there are."""
    queue = make()
    for number in range(3):
        queue.add(f"old{number}", "start", 0.0, priority=BACKLOG)
    for number in range(20):
        queue.add(f"new{number}", "change", 0.0)
    order = drain(queue, 0.0)
    assert [order.index(f"old{number}") for number in range(3)] == [8, 17, 22]


def test_a_live_change_raises_a_backlog_key() -> None:
    """Merging takes the better priority, and never the worse."""
    queue = make()
    queue.add("other", "start", 0.0, priority=BACKLOG)
    queue.add("a", "start", 0.0, priority=BACKLOG)
    queue.add("a", "change", 1.0)
    queue.add("a", "start", 2.0, priority=BACKLOG)
    assert drain(queue, 2.0) == ["a", "other"]


def test_a_failed_backlog_key_stays_backlog() -> None:
    """A retry doesn't overtake live keys only because the key has failed."""
    queue = make()
    queue.add("old", "start", 0.0, priority=BACKLOG)
    take(queue, 0.0)
    assert queue.failed("old", "error", 0.0) == 1.0
    queue.promote(1.0)
    queue.add("new", "change", 1.0)
    assert drain(queue, 1.0) == ["new", "old"]


# ---- reporting back


def test_failures_in_a_row_double_the_rest_up_to_the_cap() -> None:
    """Each rest is what the back-off says, and the attempt counts them."""
    queue = make()
    queue.add("a", "change", 0.0)
    now, rests, attempts = 0.0, [], []
    for _ in range(8):
        attempts.append(take(queue, now).attempt)
        rests.append(queue.failed("a", "error", now))
        assert queue.take(now) is None
        now += rests[-1]
    assert rests == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert attempts == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_retry_still_carries_the_reasons_nobody_has_acted_on() -> None:
    """The failure is added to what the key was queued for, and doesn't replace it."""
    queue = make()
    queue.add("a", "change", 0.0)
    take(queue, 0.0)
    queue.failed("a", "error", 0.0)
    assert take(queue, 1.0).reasons == ("change", "error")


def test_a_failed_key_that_is_dirty_is_ready_at_once_and_keeps_its_count() -> None:
    """A change may have mended it; if it hasn't, the next rest is the longer one."""
    queue = make()
    queue.add("a", "change", 0.0)
    take(queue, 0.0)
    queue.add("a", "mend", 0.5)
    assert queue.failed("a", "error", 1.0) == 0.0
    assert take(queue, 1.0) == Taken("a", ("change", "mend", "error"), 0, 0.5, 2)
    assert queue.failed("a", "error", 1.0) == 2.0


def test_a_delayed_add_can_shorten_a_rest_but_not_lengthen_it() -> None:
    """Earliest due wins, also between a back-off and a delay from before the failure."""
    queue = make()
    queue.add("short", "change", 0.0)
    queue.add("long", "change", 0.0)
    take(queue, 0.0), take(queue, 0.0)
    queue.add_after("short", "later", 0.25, 0.0)
    queue.add_after("long", "later", 50.0, 0.0)
    assert queue.failed("short", "error", 0.0) == 0.25
    assert queue.failed("long", "error", 0.0) == 1.0
    assert sorted(queue.owed()) == ["long", "short"]


def test_a_change_ends_the_rest_of_a_failed_key_but_not_its_count() -> None:
    """A direct add during the back-off is looked at at once, as the next attempt."""
    queue = make()
    queue.add("a", "change", 0.0)
    take(queue, 0.0)
    fail(queue, "a", 0.0, times=3)
    queue.add("a", "mend", 5.0)
    assert take(queue, 5.0).attempt == 4
    assert queue.next_due() is None


@pytest.mark.parametrize(
    "report",
    [
        lambda queue: queue.succeeded("a", 9.0),
        lambda queue: queue.dropped("a", 9.0),
        lambda queue: queue.requeue_after("a", 0.0, "again", 9.0),
    ],
    ids=["succeeded", "dropped", "requeue_after"],
)
def test_every_report_but_failure_forgets_the_failures(report: Callable[[Queue], None]) -> None:
    """After it the key's next failure rests as long as a first one."""
    queue = make()
    queue.add("a", "change", 0.0)
    take(queue, 0.0)
    fail(queue, "a", 0.0, times=3)
    assert take(queue, 8.0).attempt == 4
    report(queue)
    queue.add("a", "change", 9.0)
    assert take(queue, 9.0).attempt == 1
    assert queue.failed("a", "error", 9.0) == 1.0


def test_a_requeue_runs_again_after_its_delay() -> None:
    """The key is scheduled, with the reason that was given."""
    queue = make()
    queue.add("a", "change", 0.0)
    take(queue, 0.0)
    queue.requeue_after("a", 30.0, "poll", 1.0)
    assert queue.take(30.0) is None
    assert take(queue, 31.0) == Taken("a", ("poll",), 0, 31.0, 1)


@pytest.mark.parametrize("delay", [0.0, -5.0])
def test_a_requeue_without_delay_is_ready_at_once(delay: float) -> None:
    """Zero and less mean now, and the key has wanted to run since now."""
    queue = make()
    queue.add("a", "change", 0.0)
    take(queue, 0.0)
    queue.requeue_after("a", delay, "again", 1.0)
    assert take(queue, 1.0) == Taken("a", ("again",), 0, 1.0, 1)


def test_a_change_wins_over_the_delay_of_a_requeue() -> None:
    """A key that is dirty when it asks for a delay is ready at once, and runs once."""
    queue = make()
    queue.add("a", "one", 0.0)
    take(queue, 0.0)
    queue.add("a", "two", 1.0)
    queue.requeue_after("a", 30.0, "poll", 2.0)
    assert take(queue, 2.0).reasons == ("two", "poll")
    queue.succeeded("a", 3.0)
    assert queue.take(100.0) is None


def test_a_dropped_key_that_is_dirty_runs_again() -> None:
    """Giving up on one run doesn't lose the change that came during it."""
    queue = make()
    queue.add("a", "one", 0.0)
    take(queue, 0.0)
    queue.add("a", "two", 1.0)
    queue.dropped("a", 2.0)
    assert take(queue, 2.0).reasons == ("two",)


# ---- refusals


REPORTS: dict[str, Callable[[Queue, str], object]] = {
    "succeeded": lambda queue, key: queue.succeeded(key, 1.0),
    "failed": lambda queue, key: queue.failed(key, "error", 1.0),
    "requeue_after": lambda queue, key: queue.requeue_after(key, 1.0, "poll", 1.0),
    "dropped": lambda queue, key: queue.dropped(key, 1.0),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
@pytest.mark.parametrize("key", ["absent", "ready", "scheduled"])
def test_reporting_a_key_that_is_not_in_hand_raises_and_changes_nothing(
    report: Callable[[Queue, str], object], key: str
) -> None:
    """The error names the key and its state, and the queue is as before."""
    queue = make()
    queue.add("ready", "change", 0.0)
    queue.add_after("scheduled", "later", 10.0, 0.0)
    before = (queue.statistics(), queue.owed(), queue.scheduled())
    with pytest.raises(NotInHandError, match=f"'{key}' is .*, not in hand"):
        report(queue, key)
    assert (queue.statistics(), queue.owed(), queue.scheduled()) == before


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf])
def test_times_that_are_no_times_raise_and_change_nothing(seconds: float) -> None:
    """A due time or delay that isn't finite would never fire, or break the order of the others."""
    queue = make()
    queue.add("a", "change", 0.0)
    take(queue, 0.0)
    before = queue.statistics()
    with pytest.raises(ValueError, match=r"due is .* finite"):
        queue.add_after("b", "later", seconds, 0.0)
    with pytest.raises(ValueError, match=r"delay is .* finite"):
        queue.requeue_after("a", seconds, "poll", 0.0)
    assert queue.statistics() == before


def test_a_priority_that_does_not_exist_raises_and_changes_nothing() -> None:
    """There are two priorities, and the error names them."""
    queue = make()
    with pytest.raises(ValueError, match=r"priority is 2: it must be LIVE \(0\) or BACKLOG \(1\)"):
        queue.add("a", "change", 0.0, priority=2)  # type: ignore[arg-type]
    assert queue.statistics().adds == 0
    assert queue.is_idle()


def test_a_share_for_the_backlog_below_one_is_refused() -> None:
    """With 0 live keys per backlog key the live keys would starve."""
    with pytest.raises(ValueError, match="live_per_backlog is 0"):
        make(live_per_backlog=0)


# ---- seen from outside


def test_owed_is_all_but_what_is_only_scheduled() -> None:
    """Ready, in hand and resting keys are owed; requeued and delayed ones are scheduled."""
    queue = make()
    for key in ("resting", "requeued", "hand", "ready"):
        queue.add(key, "change", 0.0)
    for _ in range(3):
        take(queue, 0.0)
    queue.failed("resting", "error", 0.0)
    queue.requeue_after("requeued", 7.0, "poll", 0.0)
    queue.add_after("delayed", "later", 9.0, 0.0)
    assert sorted(queue.owed()) == ["hand", "ready", "resting"]
    assert queue.scheduled() == {"requeued": 7.0, "delayed": 9.0}


def test_statistics_count_every_state() -> None:
    """Each key is counted where it is, and adds that join a waiting run are counted as merged."""
    queue = make()
    for key in ("resting", "hand"):
        queue.add(key, "change", 1.0)
        take(queue, 1.0)
    queue.failed("resting", "error", 1.0)
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


def test_idle_means_that_nothing_is_owed() -> None:
    """Ready, in hand and resting are busy; scheduled is idle."""
    queue = make()
    assert queue.is_idle()
    queue.add("a", "change", 0.0)
    assert not queue.is_idle()
    take(queue, 0.0)
    assert not queue.is_idle()
    queue.failed("a", "error", 0.0)
    assert not queue.is_idle()
    take(queue, 1.0)
    queue.requeue_after("a", 5.0, "poll", 1.0)
    assert queue.is_idle()


def test_a_closed_queue_takes_nothing_in_and_gives_nothing_out() -> None:
    """Stop means stop: three ready keys are not handed out any more, but they are still owed."""
    queue = make()
    for key in "abc":
        queue.add(key, "change", 0.0)
    queue.close()
    queue.add("d", "change", 1.0)
    queue.add_after("e", "later", 5.0, 1.0)
    assert queue.take(9.0) is None
    assert queue.next_due() is None
    assert queue.owed() == ["a", "b", "c"]


def test_a_key_in_hand_at_the_close_is_owed_until_it_is_reported() -> None:
    """A reconcile that still ends well owes nothing; one that never reports does."""
    queue = make()
    for key in "ab":
        queue.add(key, "change", 0.0)
        take(queue, 0.0)
    queue.close()
    queue.succeeded("a", 1.0)
    assert queue.owed() == ["b"]
