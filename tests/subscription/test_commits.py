"""The merge of several watches into whole commits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.resource import Change, pb
from headway.subscription import CommitMerge


def change(revision: int, name: str) -> Change:
    return Change(revision, pb.Resource(id=pb.Id(name=name)), False, False)


def test_commit_of_two_types_waits_for_both_watches() -> None:
    """A commit of which one watch has not told yet is held back, with all that follows it."""
    merge = CommitMerge([5, 5])
    merge.feed(0, [change(6, "a"), change(8, "b")], 8)
    assert merge.take() == []
    merge.feed(1, [change(6, "c")], 6)
    assert [
        (revision, [each.resource.id.name for each in changes if each.resource.id])
        for revision, changes in merge.take()
    ] == [(6, ["a", "c"])]
    merge.feed(1, [], 8)
    assert [revision for revision, _ in merge.take()] == [8]
    assert merge.take() == []


def test_lowest_watch_is_read_next() -> None:
    merge = CommitMerge([5, 5, 5])
    assert merge.lowest() == 0
    merge.feed(0, [], 7)
    assert merge.lowest() == 1
    merge.feed(1, [], 9)
    merge.feed(2, [], 8)
    assert merge.lowest() == 0
    assert merge.frontier == 7


def test_take_up_to_a_limit_leaves_the_later_commits() -> None:
    merge = CommitMerge([0])
    merge.feed(0, [change(1, "a"), change(2, "b"), change(3, "c")], 3)
    assert [revision for revision, _ in merge.take(2)] == [1, 2]
    assert [revision for revision, _ in merge.take()] == [3]


def test_deletions_of_a_commit_come_first() -> None:
    """A resource that moved to another version is stored in one watch and deleted in another."""
    merge = CommitMerge([5, 5])
    merge.feed(0, [change(6, "moved"), change(6, "other"), change(7, "later")], 7)
    merge.feed(1, [change(6, "moved")._replace(deleted=True), change(7, "last")], 7)
    [(_, first), (_, second)] = merge.take()
    assert [(each.deleted, each.resource.id.name) for each in first if each.resource.id] == [
        (True, "moved"),
        (False, "moved"),
        (False, "other"),
    ]
    assert [each.resource.id.name for each in second if each.resource.id] == ["later", "last"]


Commit = st.frozensets(st.integers(0, 2), max_size=3)


@given(commits=st.lists(Commit, max_size=30), chunks=st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_every_commit_comes_once_whole_and_in_order(commits: list[frozenset[int]], chunks: list[int]) -> None:
    """Whatever the pieces in which the watches deliver, reading the lowest one loses and splits nothing."""
    merge, head = CommitMerge([0, 0, 0]), len(commits)
    at, sizes, taken = [0, 0, 0], iter(chunks * 100), []
    while min(at) < head:
        index = merge.lowest()
        assert at[index] == min(at)
        reached = min(head, at[index] + next(sizes))
        found = [
            change(revision, str(index))
            for revision in range(at[index] + 1, reached + 1)
            if index in commits[revision - 1]
        ]
        at[index] = reached
        merge.feed(index, found, reached)
        taken += merge.take()
    assert [
        (revision, {int(each.resource.id.name) for each in changes if each.resource.id}) for revision, changes in taken
    ] == [(i + 1, set(each)) for i, each in enumerate(commits) if each]
