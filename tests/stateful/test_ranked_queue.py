"""The state machine of the work queue with priorities, beside a model that sorts, and a bound on each key's wait."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from headway.queue import BACKLOG, LIVE, Priority, RankedQueue
from headway.queue._ranked import RankedLanes
from tests.stateful.test_queue import BACKOFF, KEYS, LIVE_PER_BACKLOG, Model, PacedMachine, QueueMachine, Wish

RANKS = st.sampled_from((-10, -1, 0, 0, 1, 10))


class RankedModel(Model):
    """The expected content, with the ready keys by age, and each key's place in line."""

    def __init__(self, interval: float) -> None:
        super().__init__(interval)
        # What the function would return now.
        self.priorities: dict[str, int] = {}
        # Of each ready key, the oldest first: its line, and a number that is higher for each key that joins a line.
        self.places: dict[str, tuple[int, int, int]] = {}
        self.joined = 0

    def first(self) -> str | None:
        for level in (LIVE, BACKLOG):
            self.lines[level] = [key for key in self.lines[level] if key in self.places]
        if not self.places:
            return None
        oldest = next(iter(self.places))
        key = oldest if self.live_in_a_row == LIVE_PER_BACKLOG else min(self.places, key=lambda each: self.places[each])
        self.live_in_a_row = 0 if key == oldest else self.live_in_a_row + 1
        del self.places[key]
        self.lines[self.wishes[key].priority].remove(key)
        return key

    def rank(self, key: str) -> None:
        """Note that a ready key has been added: it joins the end of another line if its own has changed."""
        line = (-self.priorities.get(key, 0), self.wishes[key].priority)
        if self.places.get(key, (None, None))[:2] != line:
            self.joined += 1
            self.places[key] = (*line, self.joined)

    def ready(self, key: str, since: float) -> None:
        super().ready(key, since)
        self.rank(key)

    def add(self, key: str, reason: int, priority: Priority, due: float | None) -> None:
        waits = key in self.places
        super().add(key, reason, priority, due)
        if waits and due is None:
            self.rank(key)


class RankedMachine(QueueMachine):
    """The same with priorities, which change at any time."""

    model: RankedModel

    def __init__(self) -> None:
        super().__init__()
        self.model = RankedModel(self.INTERVAL)
        self.queue = RankedQueue(lambda key: self.model.priorities.get(key, 0), BACKOFF, self.INTERVAL)
        self.queue._lanes = RankedLanes(lambda key: self.model.priorities.get(key, 0), LIVE_PER_BACKLOG)
        # Of each ready key, by how many dequeues it must be one of them.
        self.within: dict[str, int] = {}

    @rule(key=KEYS, priority=RANKS)
    def priority_changes(self, key: str, priority: int) -> None:
        self.model.priorities[key] = priority

    @rule(key=KEYS, priority=RANKS, level=st.sampled_from((LIVE, BACKLOG)))
    def changes_and_is_added(self, key: str, priority: int, level: Priority) -> None:
        self.priority_changes(key, priority)
        self.add(key, level)

    @rule(count=st.integers(min_value=2, max_value=10))
    def work_off(self, count: int) -> None:
        """Dequeue several keys without time in between, and enqueue each again at once, as if it had changed."""
        for _ in range(count):
            key = self.dequeue()
            if key is not None:
                self.add(key, LIVE)
                self.finish_key(key, dropped=False)

    def dequeue(self) -> str | None:
        if self.model.closed:
            return super().dequeue()
        self.model.promote()
        for older, key in enumerate(self.model.places):
            self.within.setdefault(key, (older + 1) * (LIVE_PER_BACKLOG + 1))
        self.within = {key: left - 1 for key, left in self.within.items() if key in self.model.places}
        found = super().dequeue()
        if found is not None:
            self.within.pop(found, None)
        assert all(left > 0 for key, left in self.within.items() if key in self.model.places), "a key is starved"
        return found

    def check_no_starvation(self, wish: Wish, backlog_waited: bool) -> None:
        """The bound on the wait of each key is checked instead."""

    @precondition(lambda self: self.model.places and not self.model.closed)
    @rule(data=st.data())
    def says_how_many_keys_are_before_one(self, data: st.DataObject) -> None:
        self.queue.promote(self.model.now)
        self.model.promote()
        places = self.model.places
        key = data.draw(st.sampled_from(sorted(places)))
        if not self.model.closed:
            assert self.queue.before(key) == sum(place < places[key] for place in places.values())


TestRankedQueue = RankedMachine.TestCase
TestRankedQueue.settings = settings(max_examples=3 * settings().max_examples)


class PacedRankedMachine(RankedMachine, PacedMachine):
    """Both a minimum interval and priorities. A turn of a key within its interval is over, as without priorities."""

    def dequeue(self) -> str | None:
        self.within.clear()
        return super().dequeue()


TestPacedRankedQueue = PacedRankedMachine.TestCase
TestPacedRankedQueue.settings = settings(max_examples=3 * settings().max_examples)
