"""The batches of the commit log that cursors share, and the limits of its history, to the change."""

from __future__ import annotations

import gc
import weakref

import pytest

from headway.resource import Change, Changes
from headway.storage import CommitLog, _log
from tests.storage.test_log import RESOURCE, A, B, Weighed, filled


def revisions(changes: Changes | None) -> list[int]:
    taken: list[Change] = [] if changes is None else changes.changes
    return [change.revision for change in taken]


@pytest.mark.parametrize("size", [1, 2])
def test_cursors_that_have_taken_the_same_stand_at_the_same_place(size: int) -> None:
    """The first makes the batch, the second shares it, and the third takes it in parts."""
    log = filled(3)
    cursors = [log.cursor(A, 3) for _ in range(3)]
    log.append(4, [(A, RESOURCE, False)] * size, 4.0)
    log.append(5, [(B, RESOURCE, False)], 5.0)
    batch = log.take(cursors[0])
    assert revisions(batch) == [4] * size
    assert log.take(cursors[1], limit=size) is batch
    assert revisions(log.take(cursors[2], limit=1)) == [4] * size
    log.take(cursors[2])
    assert {(cursor.index, cursor.revision) for cursor in cursors} == {(3 + size, 5)}
    assert [log.take(cursor) for cursor in cursors] == [None] * 3


def test_snapshot_above_the_head_gets_no_shared_batch_that_it_includes() -> None:
    """Another cursor at the same place has just taken the commit that the snapshot already includes."""
    log = filled(3)
    here, ahead = log.cursor(A, 3), log.cursor(A, 4)
    log.append(4, [(A, RESOURCE, False)], 4.0)
    assert revisions(log.take(here)) == [4]
    assert log.take(ahead) is None
    assert ahead.revision == 4


def test_snapshot_above_the_head_shares_the_batch_after_it() -> None:
    log = filled(3)
    ahead = log.cursor(A, 4)
    log.append(4, [(A, RESOURCE, False)], 4.0)
    log.append(5, [(A, RESOURCE, False)], 5.0)
    batch = log.take(log.cursor(A, 4))
    assert revisions(batch) == [5]
    assert log.take(ahead) is batch


@pytest.mark.parametrize("size", [1, 2])
def test_shared_batch_does_not_hide_a_later_commit(size: int) -> None:
    """A cursor where another one took the batch also gets what was committed since."""
    log = filled(0)
    first, second = log.cursor(A, 0), log.cursor(A, 0)
    log.append(1, [(A, RESOURCE, False)], 1.0)
    assert revisions(log.take(first)) == [1]
    log.append(2, [(A, RESOURCE, False)] * size, 2.0)
    assert revisions(log.take(second)) == [1, *[2] * size]
    assert second.revision == 2


def test_shared_batch_does_not_lead_across_the_beginning_of_a_session() -> None:
    """A cursor that has not passed it yet stops there first, although another cursor at its place has the rest."""
    log = filled(2)
    behind = log.cursor(A, 2)
    log.append(3, [], 3.0)
    log.mark()
    beyond = log.cursor(A, 3)
    log.append(4, [(A, RESOURCE, False)], 4.0)
    batch = log.take(beyond)
    assert revisions(batch) == [4]
    assert log.take(behind) is None
    assert behind.revision == 3
    assert log.take(behind) is batch


def test_trimmed_changes_of_an_idle_kind_hold_no_memory() -> None:
    """The batch that its watchers share is dropped with them."""
    log = CommitLog(max_changes=3)
    watcher, resource = log.cursor(A, 0), Weighed()
    alive = weakref.ref(resource)
    log.append(1, [(A, resource, False)], 1.0)
    assert revisions(log.take(watcher)) == [1]
    del resource
    for revision in range(2, 6):
        log.append(revision, [(B, RESOURCE, False)], 1.0)
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("compact_after", [0, _log.COMPACT_AFTER])
def test_former_states_are_kept_exactly_as_long_as_their_changes(
    compact_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters by metadata need them as long as a cursor can take the changes."""
    monkeypatch.setattr(_log, "COMPACT_AFTER", compact_after)
    log = CommitLog(max_changes=2)
    formers = [Weighed(version=str(revision)) for revision in range(1, 7)]
    alive = [weakref.ref(former) for former in formers]
    for revision in range(1, 7):
        log.append(revision, [(A, RESOURCE, False)], 1.0, {0: formers[revision - 1]})
    cursor = log.cursor(A, log.floor)
    taken = log.take(cursor)
    assert taken is not None
    assert revisions(taken) == [5, 6]
    assert [former.version for former in log.formers(cursor, taken).values()] == ["5", "6"]
    formers.clear()
    gc.collect()
    assert [former() is not None for former in alive] == [False] * 4 + [True] * 2


def test_old_commits_without_changes_are_dropped_in_parts_too() -> None:
    log = CommitLog(max_age=10.0)
    last = 3 * _log.MOST_AT_ONCE
    for revision in range(1, last + 1):
        log.append(revision, [], 1.0)
    floors = []
    for each in range(1, 4):
        log.append(last + each, [], 99.0)
        floors.append(log.floor)
    assert floors == [_log.MOST_AT_ONCE, 2 * _log.MOST_AT_ONCE, last]


def test_new_cursor_stands_where_a_cursor_that_has_followed_stands() -> None:
    """Also after the places of trimmed changes were removed."""
    log = CommitLog(max_changes=10)
    follower = log.cursor(A, 0)
    for revision in range(1, 2 * _log.COMPACT_AFTER + 20):
        log.append(revision, [(A, RESOURCE, False)], 1.0)
        log.take(follower)
    assert log._kinds[A].start > 0
    new, behind = log.cursor(A, log.head), log.cursor(A, log.head - 3)
    assert (new.index, new.revision) == (follower.index, follower.revision)
    assert behind.index == follower.index - 3
