"""The map queue: no change is handed out early, merged or lost."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from headway.cache import Applied
from headway.mapper import Backlog, FailedChanges, MapItem, MapQueue
from headway.resource import TypeName
from tests.helpers.resources import ACCOUNT, TEAM, key, stored


def change(revision: int, name: str = "ada") -> Applied:
    return Applied(key(name), None, stored(name, revision), revision)


def taken(queue: MapQueue, complete: int) -> list[tuple[int, str]]:
    """Return all changes that are ready, each as revision and name."""
    found = []
    while (item := queue.pop(complete)) is not None:
        found.append((item.revision, item.applied.key[2]))
    return found


def test_change_waits_until_every_type_has_reached_its_revision() -> None:
    """A change is handed out at its revision, not before (C4)."""
    queue = MapQueue()
    queue.push(TEAM.name, [change(11)])
    assert queue.first == 11
    assert taken(queue, 10) == []
    assert taken(queue, 11) == [(11, "ada")]
    assert not queue
    assert queue.first == 0


def test_changes_of_one_commit_keep_the_order_of_arrival_whatever_their_types() -> None:
    queue = MapQueue()
    for type, name in ((TEAM, "a"), (ACCOUNT, "b"), (TEAM, "c")):
        queue.push(type.name, [change(11, name)])
    assert taken(queue, 11) == [(11, "a"), (11, "b"), (11, "c")]


def test_backlog_is_handed_out_when_no_change_is_ready() -> None:
    """The backlog keeps its order. A change that isn't ready doesn't delay it. A ready change goes first."""
    queue = MapQueue()
    queue.push_backlog(TEAM.name, [change(3, "x"), change(2, "y")])
    queue.push(TEAM.name, [change(11, "live"), change(12, "later")])
    assert len(queue) == 4
    first, second = queue.pop(11), queue.pop(11)
    assert len(queue) == 2
    assert first is not None
    assert second is not None
    assert (first.applied.key, first.backlog) == (key("live"), False)
    assert (second.applied.key, second.backlog, second.revision) == (key("x"), True, 0)
    assert taken(queue, 12) == [(12, "later"), (0, "y")]


def test_failed_change_waits_for_its_retry_without_blocking_others() -> None:
    """The failures of the change are counted."""
    queue = MapQueue()
    queue.push(TEAM.name, [change(11, "bad"), change(12, "good")])
    item = queue.pop(12)
    assert item is not None
    queue.defer(item, 5.0)
    assert (len(queue), queue.next_due()) == (2, 5.0)
    assert taken(queue, 12) == [(12, "good")]
    assert queue.pop_due(4.9) is None
    again = queue.pop_due(5.0)
    assert again is not None
    assert (again.changes, again.failures) == ([item.applied], 1)
    queue.defer_again(again, 7.0)
    assert queue.next_due() == 7.0
    assert queue.pop_due(6.9) is None
    assert queue.pop_due(7.0) is again
    assert again.failures == 2
    assert (len(queue), queue.next_due(), queue.pop_due(100.0)) == (0, None, None)


def test_failed_resources_are_listed_while_they_wait() -> None:
    """Reports read the list at any time, also before the caller has noted what raised, and when."""
    queue = MapQueue()
    queue.push(TEAM.name, [change(11, "ada"), change(12, "grace"), change(13, "ada")])
    for item in iter(lambda: queue.pop(20), None):
        queue.defer(item, 5.0 if item.applied.key == key("ada") else 6.0)
    assert {each.name: len(each.changes) for each in queue.failed()} == {
        (TEAM.name, key("ada")): 2,
        (TEAM.name, key("grace")): 1,
    }
    assert {(each.since, each.function, each.error) for each in queue.failed()} == {(0.0, "", "")}
    assert queue.pop_due(5.0) is not None
    assert [each.name[1] for each in queue.failed()] == [key("grace")]


def test_failed_changes_of_one_resource_are_retried_together() -> None:
    """The changes keep their order, and are due with the first of them. Each type has its own time."""
    queue = MapQueue()
    queue.push(TEAM.name, [change(11), change(12)])
    queue.push(ACCOUNT.name, [change(13)])
    for due in (5.0, 6.0, 7.0):
        item = queue.pop(20)
        assert item is not None
        queue.defer(item, due)
    assert len(queue) == 2
    kept = queue.pop_due(5.0)
    assert kept is not None
    assert [each.revision for each in kept.changes] == [11, 12]
    assert not kept.lost
    assert queue.pop_due(6.5) is None
    assert queue.pop_due(7.0) is not None
    assert not queue


def test_many_failed_changes_of_one_resource_are_reduced_to_two() -> None:
    """The first goes from the oldest state to the newest, so that memory doesn't grow. The dropped states are counted.

    The second is the last change, because only its old state may map to a key (C6).
    """
    queue = MapQueue()
    states = [stored("ada", version) for version in range(10, 4011)]
    for old, new in itertools.pairwise(states):
        queue.push(TEAM.name, [Applied(key("ada"), old, new, int(new.version))])
        item = queue.pop(5000)
        assert item is not None
        assert queue.defer(item, 5.0).changes[-1] == item.applied
    assert len(queue) == 1
    kept = queue.pop_due(5.0)
    assert kept is not None
    assert len(kept.changes) <= FailedChanges.MOST
    assert kept.lost
    assert (kept.changes[0].old, kept.changes[-1].new) == (states[0], states[-1])


def test_reduced_change_of_a_created_and_deleted_resource_keeps_a_state() -> None:
    """A change from None to None would give the mapper nothing to map."""
    queue = MapQueue()
    for revision in range(FailedChanges.MOST + 1):
        state = stored("ada", revision + 1)
        gone = revision % 2 == 1 or revision == FailedChanges.MOST
        applied = Applied(key("ada"), state if gone else None, None if gone else state, revision + 1)
        queue.push(TEAM.name, [applied])
        item = queue.pop(100)
        assert item is not None
        queue.defer(item, 5.0)
    kept = queue.pop_due(5.0)
    assert kept is not None
    for merged in kept.changes:
        assert merged.new is None
        assert merged.old is not None


class MapQueueMachine(RuleBasedStateMachine):
    """A comparison of the map queue with three plain lists, which are searched from end to end each time."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = MapQueue()
        self.waiting: list[tuple[int, int]] = []
        self.backlog: list[int] = []
        self.failed: list[tuple[float, int, int, int]] = []
        self.held: list[MapItem | FailedChanges] = []
        self.complete = 0
        self.now = 0.0
        self.pushed = 0
        self.done = 0

    def _number(self) -> Applied:
        # Every change has a name of its own, so that the test notices if two are exchanged.
        self.pushed += 1
        return Applied(key(f"n{self.pushed}"), None, None, 0)

    @rule(revisions=st.lists(st.integers(1, 9), max_size=4), type=st.sampled_from([TEAM.name, ACCOUNT.name]))
    def push(self, revisions: list[int], type: TypeName) -> None:
        applied = []
        for revision in revisions:
            applied.append(self._number()._replace(revision=revision))
            self.waiting.append((revision, self.pushed))
        self.queue.push(type, applied)

    @rule(count=st.integers(1, 3))
    def push_backlog(self, count: int) -> None:
        for _ in range(count):
            self.queue.push_backlog(TEAM.name, [self._number()])
            self.backlog.append(self.pushed)

    @rule(complete=st.integers(0, 9))
    def reach(self, complete: int) -> None:
        self.complete = complete

    @rule()
    def take(self) -> None:
        item = self.queue.pop(self.complete)
        ready = sorted(each for each in self.waiting if each[0] <= self.complete)
        if ready:
            self.waiting.remove(ready[0])
            self._expect(item, ready[0][1], 0)
        elif self.backlog:
            self._expect(item, self.backlog.pop(0), 0)
        else:
            assert item is None

    @precondition(lambda self: self.held)
    @rule(delay=st.integers(0, 3), index=st.integers(0))
    def fail(self, delay: int, index: int) -> None:
        item = self.held.pop(index % len(self.held))
        if isinstance(item, MapItem):
            kept = self.queue.defer(item, self.now + delay)
        else:
            kept = item
            self.queue.defer_again(kept, self.now + delay)
        number = int(kept.name[1][2].removeprefix("n"))
        self.failed.append((self.now + delay, kept.order, number, kept.failures))

    @precondition(lambda self: self.held)
    @rule()
    def succeed(self) -> None:
        self.held.pop()
        self.done += 1

    @rule(seconds=st.integers(0, 2))
    def pop_due(self, seconds: int) -> None:
        self.now += seconds
        item = self.queue.pop_due(self.now)
        due = sorted(each for each in self.failed if each[0] <= self.now)
        if due:
            self.failed.remove(due[0])
            self._expect(item, due[0][2], due[0][3])
        else:
            assert item is None

    def _expect(self, item: MapItem | FailedChanges | None, number: int, failures: int) -> None:
        assert item is not None
        if isinstance(item, MapItem):
            assert (item.applied.key, 0) == (key(f"n{number}"), failures)
        else:
            assert (item.name[1], item.failures) == (key(f"n{number}"), failures)
        self.held.append(item)
        assert len(self.queue) == len(self.waiting) + len(self.backlog) + len(self.failed)
        assert len(self.queue) + len(self.held) + self.done == self.pushed


TestMapQueue = MapQueueMachine.TestCase


def test_drained_queue_includes_failed_changes() -> None:
    """They are pending (C6) in their order, with the waiting changes and the backlog."""
    queue = MapQueue()
    queue.push(TEAM.name, [change(11), change(12), change(13, "grace")])
    queue.push_backlog(TEAM.name, [change(3, "x"), change(4, "y")])
    for _ in range(2):
        item = queue.pop(12)
        assert item is not None
        queue.defer(item, 5.0)
    item = queue.pop(12)
    assert item is not None
    assert item.backlog
    drained = [(type, applied.revision) for type, applied in queue.drain()]
    assert drained == [(TEAM.name, 11), (TEAM.name, 12), (TEAM.name, 13), (TEAM.name, 4)]
    assert len(queue) == 0
    assert list(queue.drain()) == []
    assert queue.next_due() is None
    assert queue.pop_due(100.0) is None
    assert queue.pop(100) is None


def test_backlog_that_is_handed_from_run_to_run_does_not_grow() -> None:
    """Each run adds its whole cache again, and what it leaves has each state once. Different states all stay."""
    resources = {key(name): stored(name, 3) for name in ("ada", "grace")}
    owed: list[tuple[TypeName, Applied]] = []
    for _ in range(3):
        queue = MapQueue()
        queue.push_owed(owed)
        queue.push_backlog(TEAM.name, Backlog(resources))
        owed = list(queue.drain())
        assert [applied.key[2] for _, applied in owed] == ["ada", "grace"]
    later = Applied(key("ada"), None, stored("ada", 4), 0)
    queue.push_owed(owed)
    queue.push_backlog(TEAM.name, [later])
    assert [applied for _, applied in queue.drain()] == [owed[0][1], owed[1][1], later]


def test_changes_that_an_earlier_run_left_are_handed_out_first() -> None:
    """They wait for no revision, keep their order, and are no backlog. What is left of them is left again."""
    queue = MapQueue()
    queue.push_backlog(TEAM.name, [change(3, "x")])
    queue.push(TEAM.name, [change(11, "live")])
    queue.push_owed([(TEAM.name, change(9, "a")), (ACCOUNT.name, change(7, "b")), (TEAM.name, change(8, "c"))])
    assert len(queue) == 5
    first = queue.pop(0)
    assert first is not None
    assert (first.type, first.revision, first.applied.key, first.backlog) == (TEAM.name, 9, key("a"), False)
    assert len(queue) == 4
    left = [applied.key[2] for _, applied in queue.drain()]
    assert left == ["b", "c", "live", "x"]
    assert len(queue) == 0


def test_changes_that_an_earlier_run_left_are_left_again_if_nothing_else_waits() -> None:
    """A run may end after its beginning and before its first mapping. Then the run after it has to map them (C6)."""
    queue = MapQueue()
    queue.push_owed([(TEAM.name, change(9, "a")), (ACCOUNT.name, change(7, "b"))])
    assert [(type, applied.revision) for type, applied in queue.drain()] == [(TEAM.name, 9), (ACCOUNT.name, 7)]
    assert list(queue.drain()) == []


def test_left_changes_that_fail_together_are_retried_in_their_order() -> None:
    """A later change of another resource comes after them, also if all are due at the same time."""
    queue = MapQueue()
    queue.push_owed([(TEAM.name, change(9, "a")), (TEAM.name, change(7, "b"))])
    for name in ("a", "b", "c"):
        if name == "c":
            queue.push(TEAM.name, [change(10, name)])
        item = queue.pop(10)
        assert item is not None
        queue.defer(item, 5.0)
    assert [failed.name[1][2] for _ in range(3) if (failed := queue.pop_due(5.0)) is not None] == ["a", "b", "c"]


def failed_backlog(queue: MapQueue, *names: str) -> None:
    queue.push_backlog(TEAM.name, [change(number, name) for number, name in enumerate(names)])
    for _ in names:
        item = queue.pop(0)
        assert item is not None
        assert item.backlog
        queue.defer(item, 5.0)


def test_failed_backlog_due_at_the_same_time_is_retried_in_its_order() -> None:
    """A mapper that fails for everything at the start of a run fails within one reading of the clock."""
    queue = MapQueue()
    names = [f"n{number}" for number in range(40)]
    failed_backlog(queue, *names)
    retried = [kept.name[1][2] for kept in iter(lambda: queue.pop_due(5.0), None)]
    assert retried == names


def test_failed_resource_of_the_backlog_becomes_live_with_its_next_change() -> None:
    """Until then, or with more of the backlog, it stays in the backlog."""
    queue = MapQueue()
    failed_backlog(queue, "ada", "ada", "grace")
    queue.push(TEAM.name, [change(11, "grace")])
    item = queue.pop(11)
    assert item is not None
    queue.defer(item, 5.0)
    found = {kept.name[1][2]: kept.backlog for kept in iter(lambda: queue.pop_due(5.0), None)}
    assert found == {"ada": True, "grace": False}


def test_as_many_failed_changes_of_a_resource_are_kept_as_the_limit_says() -> None:
    """One more reduces them."""
    queue = MapQueue()
    queue.push(TEAM.name, [change(number) for number in range(11, 11 + FailedChanges.MOST + 1)])
    kept = [queue.defer(item, 5.0) for item in iter(lambda: queue.pop(10 + FailedChanges.MOST), None)][-1]
    assert (len(kept.changes), kept.lost) == (FailedChanges.MOST, False)
    item = queue.pop(100)
    assert item is not None
    queue.defer(item, 5.0)
    assert kept.lost
    assert len(kept.changes) < FailedChanges.MOST
