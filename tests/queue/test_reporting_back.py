"""The effects of reporting a key back, and the arguments that the queue refuses."""

import math
from collections.abc import Callable

import pytest

from headway.queue import Dequeued, NotInHandError
from tests.queue.machines import Queue, dequeue, drain, fail, make

# ---- reporting back


def test_consecutive_failures_double_the_delay_up_to_the_maximum() -> None:
    """Each delay is the back-off's, and the attempt counts the failures."""
    queue = make()
    queue.add("a", "change", 0.0)
    now, delays, attempts = 0.0, [], []
    for _ in range(8):
        attempts.append(dequeue(queue, now).attempt)
        delays.append(queue.failed("a", "error", now))
        assert queue.dequeue(now) is None
        now += delays[-1]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert attempts == [1, 2, 3, 4, 5, 6, 7, 8]


def test_dirty_key_that_fails_is_ready_at_once_and_keeps_its_count() -> None:
    """The change may have fixed the failure. If it hasn't, the next delay is the longer one."""
    queue = make()
    queue.add("a", "change", 0.0)
    dequeue(queue, 0.0)
    queue.add("a", "mend", 0.5)
    assert queue.failed("a", "error", 1.0) == 0.0
    assert dequeue(queue, 1.0) == Dequeued("a", ("change", "error", "mend"), 0, 0.5, 2)
    assert queue.failed("a", "error", 1.0) == 2.0


def test_delayed_add_can_shorten_a_back_off_but_not_lengthen_it() -> None:
    """The earliest due time wins, also between a back-off and a delay from before the failure."""
    queue = make()
    queue.add("short", "change", 0.0)
    queue.add("long", "change", 0.0)
    dequeue(queue, 0.0), dequeue(queue, 0.0)
    queue.add_after("short", "later", 0.25, 0.0)
    queue.add_after("long", "later", 50.0, 0.0)
    assert queue.failed("short", "error", 0.0) == 0.25
    assert queue.failed("long", "error", 0.0) == 1.0
    assert sorted(queue.owed()) == ["long", "short"]


def test_change_ends_a_back_off_but_keeps_the_failure_count() -> None:
    """A direct add during the back-off runs at once, as the next attempt."""
    queue = make()
    queue.add("a", "change", 0.0)
    dequeue(queue, 0.0)
    fail(queue, "a", 0.0, times=3)
    queue.add("a", "mend", 5.0)
    assert dequeue(queue, 5.0).attempt == 4
    assert queue.next_due() is None


@pytest.mark.parametrize("in_hand", [True, False], ids=["while in hand", "while backing off"])
def test_attempts_that_changes_bring_forward_lengthen_the_delay_only_as_time_passes(*, in_hand: bool) -> None:
    """Each of twenty changes within a second fails. The next attempt follows soon, not after the maximum."""
    queue = make()
    queue.add("a", "change", 1000.0)
    for attempt in range(1, 21):
        now = 1000.0 + attempt / 20
        assert dequeue(queue, now).attempt == attempt
        if in_hand and attempt < 20:
            queue.add("a", "change", now)
        delay = queue.failed("a", "error", now)
        if not in_hand and attempt < 20:
            queue.add("a", "change", now)
    assert delay == 3.0
    # Without further changes, the delays grow up to the maximum.
    for expected in (9.0, 27.0, 60.0, 60.0):
        now += delay
        dequeue(queue, now)
        delay = queue.failed("a", "error", now)
        assert delay == expected


WITHOUT_FAILURE: dict[str, Callable[[Queue], None]] = {
    "succeeded": lambda queue: queue.succeeded("a", 9.0),
    "dropped": lambda queue: queue.dropped("a", 9.0),
    "requeue_after": lambda queue: queue.requeue_after("a", 60.0, "again", 9.0),
    "requeue_after nothing": lambda queue: queue.requeue_after("a", 0.0, "again", 9.0),
}


@pytest.mark.parametrize("report", WITHOUT_FAILURE.values(), ids=WITHOUT_FAILURE)
@pytest.mark.parametrize("added", ["before the report", "after it"])
def test_every_report_except_a_failure_resets_the_failure_count(report: Callable[[Queue], None], added: str) -> None:
    """The run for a change is then a first attempt, and backs off like one, even if it was added in the meantime."""
    queue = make()
    queue.add("a", "change", 0.0)
    dequeue(queue, 0.0)
    fail(queue, "a", 0.0, times=3)
    assert dequeue(queue, 8.0).attempt == 4
    if added == "before the report":
        queue.add("a", "another", 8.5)
    report(queue)
    if added == "after it":
        queue.add("a", "another", 9.0)
    assert dequeue(queue, 9.0).attempt == 1
    assert queue.failed("a", "error", 9.0) == 1.0


def test_requeued_key_runs_again_after_its_delay() -> None:
    """The key is scheduled, with the reason that was given."""
    queue = make()
    queue.add("a", "change", 0.0)
    dequeue(queue, 0.0)
    queue.requeue_after("a", 30.0, "poll", 1.0)
    assert queue.dequeue(30.0) is None
    assert dequeue(queue, 31.0) == Dequeued("a", ("poll",), 0, 31.0, 1)


@pytest.mark.parametrize("delay", [0.0, -5.0])
def test_requeue_without_delay_is_ready_at_once(delay: float) -> None:
    """A delay of zero or less means now, and the reported wait begins now."""
    queue = make()
    queue.add("a", "change", 0.0)
    dequeue(queue, 0.0)
    queue.requeue_after("a", delay, "again", 1.0)
    assert dequeue(queue, 1.0) == Dequeued("a", ("again",), 0, 1.0, 1)


# ---- refusals


REPORTS: dict[str, Callable[[Queue, str], object]] = {
    "succeeded": lambda queue, key: queue.succeeded(key, 1.0),
    "failed": lambda queue, key: queue.failed(key, "error", 1.0),
    "requeue_after": lambda queue, key: queue.requeue_after(key, 1.0, "poll", 1.0),
    "dropped": lambda queue, key: queue.dropped(key, 1.0),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
@pytest.mark.parametrize("key", ["absent", "ready", "scheduled"])
def test_report_of_a_key_not_in_hand_raises_and_changes_nothing(
    report: Callable[[Queue, str], object], key: str
) -> None:
    """The error names the key and its state."""
    queue = make()
    queue.add("ready", "change", 0.0)
    queue.add_after("scheduled", "later", 10.0, 0.0)
    before = (queue.statistics(), queue.owed(), queue.scheduled())
    with pytest.raises(NotInHandError, match=f"'{key}' is .*, not in hand"):
        report(queue, key)
    assert (queue.statistics(), queue.owed(), queue.scheduled()) == before


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf])
def test_times_that_are_not_finite_raise_and_change_nothing(seconds: float) -> None:
    """Such a due time or delay would never fire, or break the order of the others."""
    queue = make()
    queue.add("a", "change", 0.0)
    dequeue(queue, 0.0)
    before = queue.statistics()
    with pytest.raises(ValueError, match=r"due is .* finite"):
        queue.add_after("b", "later", seconds, 0.0)
    with pytest.raises(ValueError, match=r"delay is .* finite"):
        queue.requeue_after("a", seconds, "poll", 0.0)
    assert queue.statistics() == before


def test_unknown_priority_raises_and_changes_nothing() -> None:
    """The error names the two priorities."""
    queue = make()
    with pytest.raises(ValueError, match=r"priority is 2: it must be LIVE \(0\) or BACKLOG \(1\)"):
        queue.add("a", "change", 0.0, priority=2)  # type: ignore[arg-type]
    assert queue.statistics().adds == 0
    assert queue.is_idle()


# ---- back off


def test_key_that_backs_off_keeps_its_reasons_and_is_pending() -> None:
    """Backing off without a failure counts no attempt. The key is ready when the delay is over."""
    queue = make()
    queue.add("a", "change", 0.0)
    dequeue(queue, 1.0)
    queue.back_off("a", 5.0, 1.0)
    assert (queue.dequeue(5.9), queue.is_idle(), queue.owed()) == (None, False, ["a"])
    assert queue.dequeue(6.0) == Dequeued("a", ("change",), 0, 6.0, 1)


def test_key_added_while_in_hand_does_not_back_off() -> None:
    """The same holds for a delay of 0."""
    queue = make()
    for key in "ab":
        queue.add(key, "change", 0.0)
        dequeue(queue, 1.0)
    queue.add("a", "another", 1.0)
    queue.back_off("a", 5.0, 1.0)
    queue.back_off("b", 0.0, 1.0)
    assert drain(queue, 1.0) == ["a", "b"]


def test_new_key_may_begin_with_a_delay_and_is_pending() -> None:
    """The delay counts no failure, and a key that is due at once is ready."""
    queue = make()
    queue.add("a", "change", 1.0, due=6.0)
    queue.add("b", "change", 1.0, due=1.0)
    assert (queue.ready_count(), queue.next_due(), queue.owed()) == (1, 6.0, ["a", "b"])
    assert drain(queue, 5.9) == ["b"]
    assert not queue.is_idle()
    assert queue.dequeue(6.0) == Dequeued("a", ("change",), 0, 6.0, 1)
    queue.succeeded("a", 6.0)
    assert queue.is_idle()


def test_add_that_may_wait_delays_no_key_and_makes_none_ready_early() -> None:
    """A ready key stays where it is. Of several delays the earliest counts, and the key is pending meanwhile."""
    queue = make()
    queue.add("ready", "change", 0.0)
    queue.add("ready", "another", 0.0, due=5.0)
    assert dequeue(queue, 0.0).reasons == ("change", "another")
    queue.add("ready", "in hand", 0.0, due=5.0)
    queue.add("failed", "change", 0.0)
    dequeue(queue, 0.0)
    queue.failed("failed", "error", 0.0)
    queue.add_after("scheduled", "timer", 3.0, 0.0)
    for name in ("failed", "scheduled"):
        queue.add(name, "another", 0.0, due=5.0)
    queue.succeeded("ready", 0.0)
    assert (sorted(queue.owed()), queue.scheduled()) == (["failed", "ready", "scheduled"], {})
    assert [drain(queue, now) for now in (0.9, 1.0, 2.9, 3.0, 4.9, 5.0)] == [
        [],
        ["failed"],
        [],
        ["scheduled"],
        [],
        ["ready"],
    ]
    assert queue.is_idle()


def test_change_makes_a_key_ready_that_was_added_to_wait() -> None:
    queue = make()
    for name in "ab":
        queue.add(name, "change", 0.0)
        dequeue(queue, 0.0)
        queue.add(name, "may wait", 0.0, due=5.0)
    queue.add("a", "change", 1.0)
    queue.succeeded("a", 1.0)
    queue.succeeded("b", 1.0)
    queue.add("b", "change", 1.0)
    assert [(each.key, each.reasons) for each in (dequeue(queue, 1.0), dequeue(queue, 1.0))] == [
        ("a", ("may wait", "change")),
        ("b", ("may wait", "change")),
    ]


def test_delay_of_an_add_must_be_finite() -> None:
    queue = make()
    with pytest.raises(ValueError, match="due is inf"):
        queue.add("a", "change", 0.0, due=float("inf"))
    assert queue.is_idle()


def test_only_a_key_in_hand_can_back_off() -> None:
    queue = make()
    queue.add("a", "change", 0.0)
    with pytest.raises(NotInHandError):
        queue.back_off("a", 1.0, 0.0)
    dequeue(queue, 0.0)
    with pytest.raises(ValueError, match="finite"):
        queue.back_off("a", float("inf"), 0.0)


def test_repeated_reason_is_only_counted() -> None:
    """Twenty consecutive failures must not push out the change that began them, or the one between."""
    queue = make()
    now = 0.0
    queue.add("a", "change", now)
    for number in range(20):
        dequeue(queue, now)
        queue.failed("a", "retry", now)
        if number == 9:
            queue.add("a", "mend", now)
        now += 100.0
    dequeued = dequeue(queue, now)
    assert dequeued.reasons == ("change", "retry", "mend", "retry")
    assert dequeued.omitted == 18


def test_key_in_hand_at_the_close_is_last_among_the_pending_keys() -> None:
    """Otherwise a key that ended its run would end the next one, too, before any other key had its turn."""
    queue = make()
    for key in ("a", "b", "c"):
        queue.add(key, "change", 0.0)
    assert dequeue(queue, 0.0).key == "a"
    assert queue.owed() == ["b", "c", "a"]


@pytest.mark.parametrize("delays", [(50.0, 20.0), (20.0, 50.0)])
def test_of_several_delays_of_a_key_in_hand_the_earliest_counts(delays: tuple[float, float]) -> None:
    """The second add is merged with the first, as any other."""
    queue = make()
    queue.add("a", "change", 0.0)
    dequeue(queue, 0.0)
    before = queue.statistics().merged
    for due in delays:
        queue.add("a", "may wait", 1.0, due=due)
    assert queue.statistics().merged == before + 1
    queue.succeeded("a", 2.0)
    assert queue.next_due() == 20.0
