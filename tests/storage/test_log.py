"""The commit log against its rules, by example and against a model that remembers everything."""

import math
import weakref
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from headway._gen.google.protobuf import Any
from headway.errors import DeclarationError, HistoryCompacted
from headway.protobuf import encode
from headway.resource import Change, Changes, Kind, pb
from headway.storage import CommitLog, Cursor, _log
from headway.testing.conformance import thing

A: Kind = ("g", "A")
B: Kind = ("g", "B")
RESOURCE = thing("a")


class Weighed(pb.Resource):
    """A resource that a weak set can hold: it compares by identity."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def filled(count: int, *, max_changes: int = 100, max_age: float = 1e9) -> CommitLog:
    log = CommitLog(max_changes=max_changes, max_age=max_age)
    for revision in range(1, count + 1):
        log.append(revision, [(A, RESOURCE, False)], float(revision))
    return log


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("max_changes", "CommitLog(): max_changes must be a whole number >= 0, such as max_changes=100000, not -1"),
        ("max_age", "CommitLog(): max_age must be a number >= 0, such as max_age=3600.0, not -1"),
        ("max_bytes", "CommitLog(): max_bytes must be a whole number >= 0, such as max_bytes=268435456, not -1"),
    ],
)
def test_bound_below_zero_is_refused_and_zero_is_not(bound: str, said: str) -> None:
    given: dict[str, int] = {bound: 0}
    CommitLog(**given)
    with pytest.raises(DeclarationError) as refused:
        CommitLog(**{bound: -1})
    assert str(refused.value) == said


def test_history_may_be_kept_without_a_bound_on_its_age() -> None:
    CommitLog(max_age=math.inf)


def _list(changes: Changes | None) -> list[Change]:
    assert changes is None or changes.changes, "an empty batch was returned"
    return changes.changes if changes is not None else []


def _revisions(changes: Changes | None) -> list[int]:
    return [change.revision for change in _list(changes)]


def test_append_refuses_revisions_that_do_not_rise() -> None:
    """A revision at or below the head is a ValueError and changes nothing."""
    log = filled(3)
    for revision in (3, 2, 0):
        with pytest.raises(ValueError, match="must be above 3"):
            log.append(revision, [(A, RESOURCE, False)], 9.0)
    assert log.head == 3


def test_changes_without_known_former_states_have_none() -> None:
    log = filled(2)
    cursor = log.cursor(A, 0)
    taken = log.take(cursor)
    assert taken is not None
    assert log.formers(cursor, taken) == {}


def test_cursor_above_the_head_does_not_repeat_its_snapshot() -> None:
    """A snapshot may have the position of a commit that is appended later. The cursor skips that commit."""
    log = filled(2)
    cursor = log.cursor(A, 4)
    assert log.head <= cursor.revision
    for revision in (3, 4):
        log.append(revision, [(A, RESOURCE, False)], 4.0)
        assert log.head <= cursor.revision
        assert log.take(cursor) is None
        assert cursor.revision == 4, "a cursor has moved back"
    log.append(5, [(A, RESOURCE, False)], 5.0)
    assert _revisions(log.take(cursor)) == [5]


def test_cursor_above_the_head_survives_trimming_of_its_snapshot() -> None:
    """Changes that the snapshot already has may be trimmed; only later ones would be missing."""
    log = filled(2, max_changes=2)
    cursor = log.cursor(A, 4)
    for revision in range(3, 7):
        log.append(revision, [(A, RESOURCE, False)], 6.0)
    assert log.floor == 4
    assert _revisions(log.take(cursor)) == [5, 6]


def test_limit_within_a_commit_takes_the_commit_whole_and_nothing_after_it() -> None:
    log = CommitLog()
    log.append(1, [(A, RESOURCE, False)] * 2, 1.0)
    log.append(2, [(A, RESOURCE, False)], 2.0)
    cursor = log.cursor(A, 0)
    assert _revisions(log.take(cursor, 1)) == [1, 1]
    assert _revisions(log.take(cursor, 1)) == [2]


def test_cursors_at_one_position_share_their_batch() -> None:
    """The batch is made once for all of them; a cursor at another position gets the batch that is right for it."""
    log = filled(3)
    here, there, behind, ahead = log.cursor(A, 3), log.cursor(A, 3), log.cursor(A, 1), log.cursor(A, 4)
    log.append(4, [(A, RESOURCE, False)], 4.0)
    log.append(5, [(A, RESOURCE, False)] * 2, 5.0)
    first = log.take(here)
    assert _revisions(first) == [4, 5, 5]
    assert log.take(there) is first
    assert _revisions(log.take(behind)) == [2, 3, 4, 5, 5]
    assert _revisions(log.take(ahead)) == [5, 5]
    assert _revisions(log.take(log.cursor(A, 3), limit=1)) == [4]
    log.append(6, [(A, RESOURCE, False)], 6.0)
    assert _revisions(log.take(log.cursor(A, 3))) == [4, 5, 5, 6]
    assert _revisions(first) == [4, 5, 5], "a later append has changed a returned batch"
    log.append(7, [(A, RESOURCE, False)] * 2, 7.0)
    assert _revisions(log.take(log.cursor(A, 3))) == [4, 5, 5, 6, 7, 7]


def test_cursor_of_an_idle_kind_never_expires() -> None:
    """However much other kinds change, a watcher of an idle kind has missed nothing."""
    log = CommitLog(max_changes=3)
    cursor = log.cursor(B, 0)
    for revision in range(1, 5000):
        log.append(revision, [(A, RESOURCE, False)], 1.0)
    assert log.take(cursor) is None
    assert cursor.revision == 4999


def test_trimmed_changes_hold_no_memory() -> None:
    """This holds although the list of a kind is not shortened for each trimmed change."""
    log, alive = CommitLog(max_changes=3000), weakref.WeakSet[pb.Resource]()
    for revision in range(1, 10_000):
        resource = Weighed()
        alive.add(resource)
        log.append(revision, [(A, resource, False)], 1.0)
        del resource
        assert len(alive) <= 3000
        assert len(log._kinds[A].changes) <= 2 * 3000 + 1
    assert _revisions(log.take(log.cursor(A, 9000), 10**6)) == list(range(9001, 10_000))


def test_age_of_a_commit_counts_and_not_how_many_changes_it_has() -> None:
    log = CommitLog(max_age=10.0)
    log.append(1, [(A, RESOURCE, False)] * 50, 1.0)
    log.append(2, [(A, RESOURCE, False)], 12.0)
    assert log.floor == 1


def test_old_history_is_dropped_in_parts() -> None:
    """Otherwise, the first write after an idle hour would wait until all of the history has been dropped."""
    log, alive = CommitLog(max_age=10.0), weakref.WeakSet[pb.Resource]()
    for revision in range(1, 3 * _log.MOST_AT_ONCE + 1):
        resource = Weighed()
        alive.add(resource)
        log.append(revision, [(A, resource, False)], 1.0)
    del resource
    left = [len(alive)]
    for each in range(1, 5):
        log.append(revision + each, [], 99.0)
        left.append(len(alive))
    assert left == [each * _log.MOST_AT_ONCE for each in (3, 2, 1, 0, 0)]
    assert log.floor == revision


_LARGE = {
    "data": thing("a", "x" * 90_000),
    "metadata": pb.Resource(metadata={"k" * 20_000: "v" * 70_000}),
    "reason": pb.Resource(status={"c": pb.Status(conditions=[pb.Condition(reason="r" * 90_000)])}),
    "message": pb.Resource(status={"c": pb.Status(conditions=[pb.Condition(message="m" * 90_000)])}),
    "conditions": pb.Resource(
        status={name: pb.Status(conditions=[pb.Condition(type=f"t{each}") for each in range(40)]) for name in "abcd"}
    ),
}


@pytest.mark.parametrize("part", _LARGE)
@pytest.mark.parametrize("changes", [1, 2])
@pytest.mark.parametrize("former", [False, True])
def test_history_is_bounded_by_bytes(part: str, changes: int, former: bool) -> None:
    """Every part of a resource that may be large counts, and so does the state before a change of metadata."""
    resource = _LARGE[part]
    written = 100 * len(encode(resource)) * (changes + former)
    log = CommitLog(max_bytes=written // 2)
    for revision in range(1, 101):
        log.append(revision, [(A, resource, False)] * changes, 1.0, {0: resource} if former else {})
    least = 0 if part == "conditions" else 45  # They count for more than short ones take.
    assert least <= len(_revisions(log.take(log.cursor(A, log.floor)))) / changes <= 50


def test_history_may_have_exactly_as_many_bytes_as_its_bound() -> None:
    """One more byte, or one more change, drops the oldest commit."""
    size = 2 * _log.FIXED_SIZE
    for max_bytes, kept in ((size, [1, 2]), (size - 1, [2])):
        log = CommitLog(max_bytes=max_bytes)
        for revision in (1, 2):
            log.append(revision, [(A, pb.Resource(), False)], 1.0)
        assert _revisions(log.take(log.cursor(A, log.floor))) == kept
    log.append(3, [(A, pb.Resource(), False)], 1.0)
    assert log.floor == 2


def test_commit_above_the_bound_of_bytes_is_kept_while_it_is_the_newest() -> None:
    """A watcher at the head takes it, and one from before the commit before it is too far back."""
    log = CommitLog(max_bytes=1)
    log.append(1, [(A, RESOURCE, False)], 1.0)
    cursor = log.cursor(A, 1)
    log.append(2, [(A, RESOURCE, False), (A, RESOURCE, True)], 1.0)
    assert _revisions(log.take(cursor)) == [2, 2]
    assert log.floor == 1
    with pytest.raises(HistoryCompacted):
        log.cursor(A, 0)


@dataclass
class _Watcher:
    """A cursor, and the last revision that the model knows it has passed."""

    cursor: Cursor
    kind: Kind
    passed: int


def test_cursor_stops_at_each_mark() -> None:
    """It stops whether or not there are changes before the mark. The next take begins after the mark."""
    log = filled(3)
    log.append(4, [], 4.0)
    log.mark()
    log.append(5, [(A, RESOURCE, False)], 5.0)
    log.append(6, [], 6.0)
    log.mark()
    log.append(7, [(A, RESOURCE, False)], 7.0)
    for after, limit, stops in ((2, 9, [([3], 4), ([5], 6), ([7], 7)]), (1, 1, [([2], 2), ([3], 4), ([5], 6)])):
        cursor = log.cursor(A, after)
        for revisions, stands in stops:
            assert (_revisions(log.take(cursor, limit)), cursor.revision) == (revisions, stands)
    cursor = log.cursor(B, 3)
    for stands in (4, 6, 7):
        assert (log.take(cursor), cursor.revision) == (None, stands)
    late = log.cursor(B, 3)
    for revision in range(8, 104):
        log.append(revision, [(A, RESOURCE, False)], 8.0)
    assert 0 < log.floor < 4
    assert log.marks == [4, 6], "a mark was dropped though its history is kept"
    for revision in range(104, 300):
        log.append(revision, [(A, RESOURCE, False)], 8.0)
    assert log.floor > 6
    assert log.marks == [6], "expected only the newest mark to outlive its history"
    log.append(300, [(B, RESOURCE, False)], 8.0)
    for revisions, stands in (([], 6), ([300], 300)):
        assert (_revisions(log.take(late)), late.revision) == (revisions, stands), (
            "a late cursor did not stop at the mark"
        )


def _bytes_of(changes: list[tuple[Kind, pb.Resource, bool]]) -> int:
    return sum(_log.FIXED_SIZE + len(resource.data.value) for _, resource, _ in changes if resource.data is not None)


class LogMachine(RuleBasedStateMachine):
    """The log against a model that keeps every commit and computes which ones may be trimmed."""

    watchers = Bundle("watchers")

    @initialize(
        head=st.integers(0, 3),
        max_changes=st.integers(1, 8),
        max_age=st.sampled_from([3.0, 1e9]),
        max_bytes=st.sampled_from([1, 1024, 2000, 10**9]),
        compact_after=st.sampled_from([0, 2, _log.COMPACT_AFTER]),
    )
    def begin(self, head: int, max_changes: int, max_age: float, max_bytes: int, compact_after: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(_log, "COMPACT_AFTER", compact_after)
        self.log = CommitLog(head, max_changes=max_changes, max_age=max_age, max_bytes=max_bytes)
        self.head, self.now = head, 0.0
        self.max_changes, self.max_age, self.max_bytes = max_changes, max_age, max_bytes
        self.commits: list[tuple[int, list[tuple[Kind, pb.Resource, bool]], float]] = []
        self.kept_from = 0  # Commits before this index have been trimmed.
        self.floor = head

    @rule(
        kinds=st.lists(st.sampled_from([A, A, B]), max_size=4),
        step=st.integers(1, 3),
        passed=st.sampled_from([0.0, 0.0, 1.0, 5.0]),
        deleted=st.booleans(),
        size=st.sampled_from([0, 0, 100, 1500]),
    )
    def append(self, kinds: list[Kind], step: int, passed: float, deleted: bool, size: int) -> None:
        self.head += step
        self.now += passed
        # Each change has its own resource object, so that the model can distinguish them.
        data = Any(value=bytes(size))
        changes = [
            (kind, pb.Resource(version=f"{self.head}.{index}", data=data), deleted) for index, kind in enumerate(kinds)
        ]
        self.log.append(self.head, changes, self.now)
        self.commits.append((self.head, changes, self.now))
        self._forget()

    def _forget(self) -> None:
        kept = self.commits[self.kept_from :]
        count = sum(len(changes) for _, changes, _ in kept)
        size = sum(_bytes_of(changes) for _, changes, _ in kept)
        for revision, changes, time in kept[:-1]:
            if count <= self.max_changes and size <= self.max_bytes and time + self.max_age >= self.now:
                break
            count -= len(changes)
            size -= _bytes_of(changes)
            self.kept_from += 1
            self.floor = revision

    @rule(target=watchers, kind=st.sampled_from([A, B]), back=st.integers(-3, 12))
    def watch(self, kind: Kind, back: int) -> _Watcher:
        after = max(self.head - back, 0)
        if after < self.floor:
            with pytest.raises(HistoryCompacted):
                self.log.cursor(kind, after)
            after = self.floor
        return _Watcher(self.log.cursor(kind, after), kind, after)

    @rule(watcher=watchers, limit=st.sampled_from([1, 2, 3, 1000]))
    def take(self, watcher: _Watcher, limit: int) -> None:
        wanted = self._after(watcher)
        first_kept = self.commits[self.kept_from][0] if self.kept_from < len(self.commits) else self.head + 1
        if wanted and wanted[0][0] < first_kept:
            with pytest.raises(HistoryCompacted):
                self.log.take(watcher.cursor, limit)
            return
        taken = _list(self.log.take(watcher.cursor, limit))
        delivered = [(change.revision, change.resource.version, change.deleted) for change in taken]
        assert delivered == wanted[: len(delivered)], "the changes are not the next ones, in order"
        assert delivered or not wanted, "no changes were returned, though some were due"
        for index, change in enumerate(taken):
            assert change.more == (change.revision in [later.revision for later in taken[index + 1 :]])
        if len(delivered) < len(wanted):
            assert len(delivered) >= limit
            assert wanted[len(delivered)][0] > delivered[-1][0], "a commit was split"
            watcher.passed = delivered[-1][0]
        else:
            watcher.passed = max(watcher.passed, self.head)
        assert watcher.cursor.revision == watcher.passed

    def _after(self, watcher: _Watcher) -> list[tuple[int, str, bool]]:
        return [
            (revision, resource.version, deleted)
            for revision, changes, _ in self.commits
            if revision > watcher.passed
            for kind, resource, deleted in changes
            if kind == watcher.kind
        ]

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    @invariant()
    def the_log_stands_where_the_model_does(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.head, self.log.floor) == (self.head, self.floor)


TestLogMachine = LogMachine.TestCase
