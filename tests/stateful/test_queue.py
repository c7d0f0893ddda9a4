"""A state machine that compares the work queue with a model of lists and dictionaries, in any sequence of calls."""

import math
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.queue import BACKLOG, LIVE, Backoff, NotInHandError, Priority, WorkQueue

KEYS = st.sampled_from("abcd")
PRIORITIES: st.SearchStrategy[Priority] = st.sampled_from((LIVE, LIVE, BACKLOG))
# Quarters of a second have exact sums, so that the model and the queue agree to the last bit.
SECONDS = st.integers(min_value=0, max_value=12).map(lambda quarters: quarters / 4)
BACKOFF = Backoff(base=0.25, maximum=0.75)
LIVE_PER_BACKLOG = 2


@dataclass
class Wish:
    """A future run with all its reasons."""

    reasons: list[int]
    priority: Priority
    queued_at: float
    due: float | None = None
    by_failure: bool = False


@dataclass
class Model:
    """The expected content of the queue. Every query searches all of it."""

    interval: float = 0.0
    now: float = 0.0
    closed: bool = False
    wishes: dict[str, Wish] = field(default_factory=dict)
    # The ready keys in two lines, and the delayed keys in the order in which they were delayed.
    lines: dict[Priority, list[str]] = field(default_factory=lambda: {LIVE: [], BACKLOG: []})
    delayed: list[str] = field(default_factory=list)
    hand: dict[str, Wish] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    live_in_a_row: int = 0
    # The earliest time of the next dequeue of each key that was dequeued.
    begins: dict[str, float] = field(default_factory=dict)

    def begin(self, key: str) -> float:
        return max(self.begins.get(key, self.now), self.now)

    def ready(self, key: str, since: float) -> None:
        wish = self.wishes[key]
        if key in self.delayed:
            self.delayed.remove(key)
        wish.due, wish.by_failure, wish.queued_at = None, False, since
        self.lines[wish.priority].append(key)

    def delay(self, key: str, due: float) -> None:
        if key in self.delayed:
            self.delayed.remove(key)
        self.wishes[key].due = due
        self.delayed.append(key)

    def place(self, key: str) -> None:
        """Enqueue the future run of a key that has just been reported back."""
        wish = self.wishes[key]
        if wish.due is None:
            self.ready(key, wish.queued_at)
        elif wish.due <= self.now:
            self.ready(key, wish.due)
        else:
            self.delay(key, wish.due)

    def add(self, key: str, reason: int, priority: Priority, due: float | None) -> None:
        wish = self.wishes.get(key)
        if wish is None:
            since = self.now if due is None else due
            self.wishes[key] = Wish([reason], priority, since, due)
            if key not in self.hand:
                self.place(key)
            return
        wish.reasons.append(reason)
        waits_in_line = wish.due is None and key not in self.hand
        if due is None or wish.due is not None:
            if waits_in_line and priority < wish.priority:
                self.lines[wish.priority].remove(key)
                self.lines[priority].append(key)
            wish.priority = min(wish.priority, priority)
        if wish.due is None:
            return
        if due is None and key not in self.hand:
            begin = self.begin(key)
            if begin <= self.now:
                self.ready(key, self.now)
            elif begin != wish.due or not wish.by_failure:
                wish.by_failure = True
                self.delay(key, begin)
        elif due is None:
            wish.due, wish.queued_at = None, self.now
        elif due < wish.due:
            wish.due = due
            if key not in self.hand:
                self.delay(key, due)

    def add_later(self, key: str, reason: int, priority: Priority, due: float) -> None:
        """Add a key that need not be ready before `due`, but is pending."""
        wish = self.wishes.get(key)
        if wish is None or wish.due is not None:
            self.add(key, reason, priority, due)
            self.wishes[key].by_failure = True
        else:
            self.add(key, reason, priority, None)

    def promote(self) -> None:
        def due_of(key: str) -> float:
            due = self.wishes[key].due
            assert due is not None
            return due

        # sorted() is stable: of two keys that are due at the same time, the key that was delayed first comes first.
        for key in sorted(self.delayed, key=due_of):
            if due_of(key) <= self.now:
                self.ready(key, due_of(key))

    def next_key(self) -> str | None:
        self.promote()
        while (key := self.first()) is not None and self.begin(key) > self.now:
            self.wishes[key].by_failure = True
            self.delay(key, self.begin(key))
        if key is not None:
            self.begins[key] = self.now + self.interval
        return key

    def first(self) -> str | None:
        live, backlog = self.lines[LIVE], self.lines[BACKLOG]
        if backlog and (not live or self.live_in_a_row == LIVE_PER_BACKLOG):
            self.live_in_a_row = 0
            return backlog.pop(0)
        if backlog:
            self.live_in_a_row += 1
        return live.pop(0) if live else None


class QueueMachine(RuleBasedStateMachine):
    """Drive the queue and the model side by side, and compare them."""

    INTERVAL = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.queue: WorkQueue[str, int] = WorkQueue(
            BACKOFF, live_per_backlog=LIVE_PER_BACKLOG, min_interval=self.INTERVAL
        )
        self.model = Model(self.INTERVAL)
        self.reason = 0
        # Not part of the model: for each key, the last add that no dequeue has followed yet.
        self.unanswered: dict[str, int] = {}
        self.takes_passing_backlog = 0

    def new_reason(self) -> int:
        self.reason += 1
        return self.reason

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: Priority) -> None:
        reason = self.new_reason()
        self.queue.add(key, reason, self.model.now, priority=priority)
        if not self.model.closed:
            self.model.add(key, reason, priority, None)
            self.unanswered[key] = reason

    @rule(key=KEYS, times=st.integers(min_value=5, max_value=12))
    def add_again_and_again(self, key: str, times: int) -> None:
        for _ in range(times):
            self.add(key, LIVE)

    @rule(key=KEYS, priority=PRIORITIES, delays=st.lists(SECONDS, min_size=1, max_size=3))
    def add_after(self, key: str, priority: Priority, delays: list[float]) -> None:
        for delay in delays:
            self.add_after_one(key, priority, delay)

    def add_after_one(self, key: str, priority: Priority, delay: float) -> None:
        reason, now = self.new_reason(), self.model.now
        self.queue.add_after(key, reason, now + delay, now, priority=priority)
        if not self.model.closed:
            self.model.add(key, reason, priority, now + delay if delay > 0 else None)
            self.unanswered[key] = reason

    @rule(key=KEYS, priority=PRIORITIES, delays=st.lists(SECONDS, min_size=1, max_size=2))
    def add_later(self, key: str, priority: Priority, delays: list[float]) -> None:
        for delay in delays:
            reason, now = self.new_reason(), self.model.now
            self.queue.add(key, reason, now, priority=priority, due=now + delay)
            if not self.model.closed:
                if delay:
                    self.model.add_later(key, reason, priority, now + delay)
                else:
                    self.model.add(key, reason, priority, None)
                self.unanswered[key] = reason

    @precondition(lambda self: self.model.hand)
    @rule(data=st.data(), adds=st.lists(st.tuples(PRIORITIES, SECONDS), min_size=2, max_size=3), failed=st.booleans())
    def is_put_off_again_in_hand(self, data: st.DataObject, adds: list[tuple[Priority, float]], failed: bool) -> None:
        """The earliest of several delays counts, with the highest of their priorities, even if the key is in hand."""
        key = self.some_in_hand(data)
        for priority, delay in adds:
            self.add_after_one(key, priority, delay)
        if failed:
            self.fail_key(key)
        else:
            self.finish_key(key, dropped=False)

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.model.now += seconds

    @rule(fails=st.lists(st.booleans(), min_size=3, max_size=8))
    def work(self, fails: list[bool]) -> None:
        """Work for a while, long enough for the maximum back-off and the turns of the backlog."""
        for fail in fails:
            self.model.now += 0.25
            key = self.dequeue()
            if key is not None and fail:
                self.fail_key(key)
            elif key is not None:
                self.finish_key(key, dropped=False)

    @rule()
    def take_one(self) -> None:
        self.dequeue()

    def dequeue(self) -> str | None:
        dequeued = self.queue.dequeue(self.model.now)
        if self.model.closed:
            assert dequeued is None
            return None
        self.model.promote()
        backlog_waited = bool(self.model.lines[BACKLOG])
        key = self.model.next_key()
        assert (dequeued.key if dequeued else None) == key
        if dequeued is None or key is None:
            return None
        assert key not in self.model.hand, "a key is in hand twice"
        wish = self.model.wishes.pop(key)
        self.model.hand[key] = wish
        self.check_no_starvation(wish, backlog_waited)
        assert len(dequeued.reasons) <= 8
        assert list(dequeued.reasons) == (wish.reasons if len(wish.reasons) <= 8 else kept(wish.reasons))
        assert dequeued.omitted == len(wish.reasons) - len(dequeued.reasons)
        assert dequeued.queued_at == wish.queued_at <= self.model.now
        assert dequeued.attempt == self.model.failures.get(key, 0) + 1
        assert self.unanswered.pop(key, 0) <= max(wish.reasons), "an add was answered by an older run"
        return key

    def check_no_starvation(self, wish: Wish, backlog_waited: bool) -> None:
        self.takes_passing_backlog += backlog_waited
        if wish.priority == BACKLOG:
            self.takes_passing_backlog = 0
        assert self.takes_passing_backlog <= LIVE_PER_BACKLOG

    @precondition(lambda self: self.model.hand)
    @rule(data=st.data(), dropped=st.booleans())
    def finish(self, data: st.DataObject, dropped: bool) -> None:
        self.finish_key(self.some_in_hand(data), dropped)

    def finish_key(self, key: str, dropped: bool) -> None:
        (self.queue.dropped if dropped else self.queue.succeeded)(key, self.model.now)
        del self.model.hand[key]
        self.model.failures.pop(key, None)
        if key in self.model.wishes:
            self.model.place(key)

    @precondition(lambda self: self.model.hand)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.fail_key(self.some_in_hand(data))

    def fail_key(self, key: str) -> None:
        reason, now = self.new_reason(), self.model.now
        found = self.queue.find(key)
        assert found is not None
        delay = self.queue.failed(key, reason, now)
        failures = self.model.failures.get(key, 0)
        self.model.failures[key] = failures + 1
        wish, later = self.model.hand.pop(key), self.model.wishes.get(key)
        begin = self.model.begin(key)
        wish.due, wish.by_failure = now + min(0.25 * 2**failures, 0.75, 0.25 + 2 * (now - found.since)), True
        wish.reasons.append(reason)
        if later is not None:
            wish.reasons += later.reasons
            wish.priority = min(wish.priority, later.priority)
            wish.due = None if later.due is None else min(wish.due, later.due)
            wish.queued_at = later.queued_at
        if begin > (now if wish.due is None else wish.due):
            wish.due = begin
        self.model.wishes[key] = wish
        assert delay == (0.0 if wish.due is None else max(wish.due - now, 0.0))
        self.model.place(key)

    @precondition(lambda self: self.model.hand)
    @rule(data=st.data(), delay=SECONDS)
    def requeue(self, data: st.DataObject, delay: float) -> None:
        key, reason, now = self.some_in_hand(data), self.new_reason(), self.model.now
        self.queue.requeue_after(key, delay, reason, now)
        del self.model.hand[key]
        self.model.failures.pop(key, None)
        wish = self.model.wishes.setdefault(key, Wish([], LIVE, now, now + delay))
        wish.reasons.append(reason)
        wish.priority = LIVE
        if wish.due is not None:
            wish.due = min(wish.due, now + delay)
        self.model.place(key)

    @precondition(lambda self: self.model.hand)
    @rule(data=st.data(), delay=SECONDS)
    def back_off(self, data: st.DataObject, delay: float) -> None:
        self.back_off_key(self.some_in_hand(data), delay)

    def back_off_key(self, key: str, delay: float) -> None:
        now = self.model.now
        self.queue.back_off(key, delay, now)
        self.model.begins.pop(key, None)
        wish, later = self.model.hand.pop(key), self.model.wishes.get(key)
        wish.due, wish.by_failure = (now + delay if delay else None), True
        if later is not None:
            wish.reasons += later.reasons
            wish.priority = min(wish.priority, later.priority)
            wish.due = None
        wish.queued_at = now
        self.model.wishes[key] = wish
        self.model.place(key)

    @rule(key=KEYS)
    def report_what_is_not_in_hand(self, key: str) -> None:
        if key in self.model.hand:
            return
        for report in (self.queue.succeeded, self.queue.dropped):
            try:
                report(key, self.model.now)
            except NotInHandError:
                continue
            raise AssertionError("a key that isn't in hand was reported back")

    @precondition(lambda self: self.reason > 10)
    @rule()
    def close(self) -> None:
        self.queue.close()
        self.model.closed = True

    def some_in_hand(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model.hand)))

    @invariant()
    def tells_the_same_as_the_model(self) -> None:
        model, statistics = self.model, self.queue.statistics()
        lines = model.lines[LIVE] + model.lines[BACKLOG]
        backing_off = [key for key in model.delayed if model.wishes[key].by_failure]
        scheduled = {key: model.wishes[key].due for key in model.delayed if key not in backing_off}
        assert sorted(self.queue.owed()) == sorted([*lines, *backing_off, *model.hand])
        assert self.queue.scheduled() == scheduled
        assert self.queue.is_idle() == (not (lines or backing_off or model.hand))
        assert (statistics.ready, statistics.backlog) == (len(lines), len(model.lines[BACKLOG]))
        assert (statistics.delayed_by_failure, statistics.scheduled) == (len(backing_off), len(scheduled))
        assert statistics.in_hand == len(model.hand)
        assert statistics.oldest_queued_at == min((model.wishes[k].queued_at for k in lines), default=None)

    @invariant()
    def knows_when_to_look_again(self) -> None:
        dues = [due for key in self.model.delayed if (due := self.model.wishes[key].due) is not None]
        assert self.queue.next_due() == (None if self.model.closed else min(dues, default=None))

    def teardown(self) -> None:
        """Finish everything, and check that each add is followed by a dequeue."""
        if self.model.closed:
            return
        for key in self.model.hand:
            self.queue.succeeded(key, self.model.now)
        # After the last interval as well.
        self.model.now += 100.0
        while (dequeued := self.queue.dequeue(self.model.now)) is not None:
            self.unanswered.pop(dequeued.key, None)
            self.queue.succeeded(dequeued.key, self.model.now)
        assert not self.unanswered, "an add was lost"
        assert self.queue.is_idle()


def kept(reasons: list[int]) -> list[int]:
    """Return the first three and the last five reasons."""
    return reasons[:3] + reasons[-5:]


TestQueue = QueueMachine.TestCase
# A step takes a fraction of a millisecond, so this machine can afford more examples.
TestQueue.settings = settings(max_examples=3 * settings().max_examples)


class PacedMachine(QueueMachine):
    """The same with a minimum interval. No key is dequeued twice within it, and no add is lost."""

    INTERVAL = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.dequeued: dict[str, float] = {}

    def dequeue(self) -> str | None:
        key = super().dequeue()
        if key is not None:
            now = self.model.now
            assert now - self.dequeued.get(key, -math.inf) >= self.INTERVAL
            self.dequeued[key] = now
        return key

    def check_no_starvation(self, wish: Wish, backlog_waited: bool) -> None:
        """A backlog key that has its turn within its interval is delayed, and the turn is over."""

    @precondition(lambda self: self.model.hand)
    @rule(data=st.data(), delay=SECONDS)
    def back_off(self, data: st.DataObject, delay: float) -> None:
        key = self.some_in_hand(data)
        self.back_off_key(key, delay)
        # It was not worked on.
        self.dequeued.pop(key, None)

    @rule(key=KEYS)
    def end_interval(self, key: str) -> None:
        self.queue.end_interval(key)
        self.model.begins.pop(key, None)
        self.dequeued.pop(key, None)


TestPacedQueue = PacedMachine.TestCase
TestPacedQueue.settings = settings(max_examples=3 * settings().max_examples)
