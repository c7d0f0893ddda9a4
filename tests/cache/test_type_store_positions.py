"""The position that a type store resumes after, and the newest positions that it depends on."""

from __future__ import annotations

import pytest

from headway.cache import Applied, TypeStore
from headway.mapper import Backlog
from headway.resource import Bookmark, EndOfSnapshot, Position
from tests.helpers.resources import STORE, changes, chunk, key, put, stored, versions

ADA = key("ada")


def position(revision: int, server: str) -> Position:
    return Position(STORE, f"session of {server}", revision, f"versions of {server}")


@pytest.fixture
def primed() -> TypeStore:
    """Return a type store whose snapshot came from server A, at revision 10."""
    store = TypeStore()
    store.feed(chunk(stored("ada", 5)))
    store.feed(EndOfSnapshot(position(10, "A")))
    return store


@pytest.mark.parametrize("revision", [10, 11])
def test_bookmark_at_or_above_the_frontier_sets_the_session_and_versions(primed: TypeStore, revision: int) -> None:
    """The server that sent it can resume from there."""
    primed.feed(Bookmark(position(revision, "B")))
    assert primed.position == primed.known == position(revision, "B")


def test_bookmark_below_the_frontier_changes_nothing(primed: TypeStore) -> None:
    """Its server may not have the frontier's revision at all, and would refuse to resume."""
    primed.feed(Bookmark(position(9, "B")))
    assert primed.position == primed.known == position(10, "A")


def test_snapshot_below_the_frontier_changes_nothing(primed: TypeStore) -> None:
    """It is refused as a whole."""
    primed.feed(chunk(stored("grace", 9)))
    primed.feed(EndOfSnapshot(position(9, "B")))
    assert primed.position == primed.known == position(10, "A")
    assert primed.refused == 1


def test_store_before_its_first_snapshot_has_no_position() -> None:
    """Nothing is known, and nothing has arrived."""
    store = TypeStore()
    assert store.position == Position("", "", 0, "")
    assert store.known is None
    assert (store.newest, store.gathered) == (0, 0)


def test_newest_revision_is_that_of_an_entry_ahead_of_the_frontier(primed: TypeStore) -> None:
    """Until the frontier has passed it."""
    for name, revision in (("grace", 14), ("mary", 12)):
        primed.reply(key(name), stored(name, revision), position(revision, "B"))
    assert primed.newest == 14
    primed.feed(Bookmark(position(13, "A")))
    assert (primed.newest, primed.frontier) == (14, 13)
    primed.feed(Bookmark(position(15, "A")))
    assert primed.newest == 15


def test_known_position_is_that_of_the_newest_reply_ahead_of_the_frontier(primed: TypeStore) -> None:
    """A store that never had it has lost data. The position to resume after is another one."""
    primed.reply(key("grace"), stored("grace", 14), position(14, "B"))
    primed.reply(key("mary"), None, position(12, "C"))
    assert primed.known == position(14, "B")
    assert primed.position == position(10, "A")
    primed.feed(Bookmark(position(14, "A")))
    assert primed.known == position(14, "A")


def test_reply_before_the_first_snapshot_is_known() -> None:
    store = TypeStore()
    store.reply(ADA, stored("ada", 5), position(5, "B"))
    assert store.known == position(5, "B")


def test_snapshot_in_progress_is_counted() -> None:
    """A restart of the stream discards it."""
    store = TypeStore()
    store.feed(chunk(stored("ada", 5), stored("grace", 6)))
    store.feed(chunk(stored("mary", 7)))
    assert store.gathered == 3
    store.restart()
    assert store.gathered == 0


def test_stale_change_at_exactly_the_frontier_disproves_it(primed: TypeStore) -> None:
    """The held entry is older than the change, so some bookmark was false."""
    primed.feed(changes(put(stored("ada", 10))))
    assert primed.disproved
    assert versions(primed.entries) == {"ada": 5}


def test_first_revision_is_above_a_frontier_at_zero() -> None:
    """Both a change and a reply of revision 1 are applied while another key is ahead."""
    store = TypeStore()
    store.feed(EndOfSnapshot(position(0, "A")))
    store.reply(key("grace"), stored("grace", 3), position(3, "A"))
    assert store.reply(key("mary"), stored("mary", 1), position(1, "A")) is not None
    store.feed(changes(put(stored("ada", 1))))
    assert versions(store.entries) == {"ada": 1, "grace": 3, "mary": 1}


def test_backlog_has_each_entry_as_created() -> None:
    """It does not change with the store, and can be read more than once."""
    entries = {ADA: stored("ada", 5), key("grace"): stored("grace", 6)}
    backlog = Backlog(entries)
    expected = [Applied(each, None, resource, 0) for each, resource in entries.items()]
    entries.clear()
    assert len(backlog) == 2
    assert list(backlog) == list(backlog) == expected
    assert expected[1] in backlog
    assert expected[1]._replace(revision=6) not in backlog
    assert len(Backlog({})) == 0


def test_snapshot_deletes_an_entry_known_from_a_reply_of_exactly_its_revision(primed: TypeStore) -> None:
    """Only an entry ahead of the snapshot stays without being in it."""
    for name, revision in (("grace", 12), ("mary", 13)):
        primed.reply(key(name), stored(name, revision), position(revision, "A"))
    primed.feed(chunk(stored("ada", 5)))
    primed.feed(EndOfSnapshot(position(12, "A")))
    assert versions(primed.entries) == {"ada": 5, "mary": 13}
