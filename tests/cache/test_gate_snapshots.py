"""The gate's rules of snapshots and bookmarks, and of what goes on after them."""

from __future__ import annotations

from headway.cache import Applied, TypeStore
from tests.helpers.resources import at, bookmark, changes, chunk, end, key, put, removed, stored, versions

ADA, GRACE = key("ada"), key("grace")


def test_a_snapshot_is_gathered_aside_until_it_ends(gate: TypeStore) -> None:
    """Nobody sees half of one."""
    assert gate.feed(chunk(stored("ada", 11))) == []
    assert versions(gate.entries) == {"ada": 5, "grace": 6}


def test_a_snapshot_is_the_truth(gate: TypeStore) -> None:
    """What it brings is applied, what it doesn't bring is deleted, and all of it is reported."""
    ada, grace = gate.entries[ADA], gate.entries[GRACE]
    newer, mary = stored("ada", 12), stored("mary", 13)
    gate.feed(chunk(newer, mary))
    applied = gate.feed(end(14))
    assert sorted(applied) == sorted(
        [Applied(GRACE, grace, None, 14), Applied(ADA, ada, newer, 12), Applied(key("mary"), None, mary, 13)]
    )
    assert versions(gate.entries) == {"ada": 12, "mary": 13}
    assert gate.frontier == 14


def test_a_snapshot_at_the_frontier_is_applied(gate: TypeStore) -> None:
    """It mends a cache of which a bookmark was false."""
    gate.feed(chunk(stored("ada", 5), stored("mary", 9)))
    gate.feed(end(10))
    assert versions(gate.entries) == {"ada": 5, "mary": 9}


def test_a_snapshot_below_the_frontier_is_thrown_away_and_counted(gate: TypeStore) -> None:
    """A lagging replica takes nothing back and deletes nothing."""
    gate.feed(chunk(stored("ada", 4)))
    assert gate.feed(end(9)) == []
    assert versions(gate.entries) == {"ada": 5, "grace": 6}
    assert gate.refused.snapshots == 1
    assert gate.frontier == 10


def test_what_is_ahead_of_a_snapshot_stays(gate: TypeStore) -> None:
    """Neither an older state nor an absence in it counts against a reply that is newer."""
    gate.reply(ADA, stored("ada", 20), at(20))
    gate.reply(key("mary"), stored("mary", 21), at(21))
    gate.reply(GRACE, None, at(22))
    gate.feed(chunk(stored("ada", 12), stored("grace", 6)))
    assert gate.feed(end(15)) == []
    assert versions(gate.entries) == {"ada": 20, "mary": 21}


def test_what_a_snapshot_has_caught_up_with_is_its_to_say(gate: TypeStore) -> None:
    """At the reply's own revision the snapshot is as new."""
    gate.reply(ADA, stored("ada", 15), at(15))
    gate.reply(GRACE, None, at(15))
    gate.feed(chunk(stored("ada", 16), stored("grace", 16, uid="grace2")))
    gate.feed(end(16))
    assert versions(gate.entries) == {"ada": 16, "grace": 16}


def test_a_reply_at_the_revision_of_a_snapshot_gives_way_to_it(gate: TypeStore) -> None:
    """A key that is ahead of a snapshot is above it, not at it."""
    gate.reply(ADA, None, at(15))
    gate.feed(chunk(stored("ada", 15, uid="ada2"), stored("grace", 6)))
    gate.feed(end(15))
    assert versions(gate.entries) == {"ada": 15, "grace": 6}


def test_what_was_gathered_for_a_stream_that_broke_is_forgotten(gate: TypeStore) -> None:
    """The next stream's snapshot stands alone."""
    gate.feed(chunk(stored("mary", 11)))
    gate.restart()
    gate.feed(chunk(stored("ada", 5)))
    gate.feed(end(12))
    assert versions(gate.entries) == {"ada": 5}


def test_the_first_snapshot_reports_nothing() -> None:
    """Priming fills the cache and does nothing else."""
    gate = TypeStore()
    gate.feed(chunk(stored("ada", 5)))
    assert gate.feed(end(10)) == []
    assert gate.primed


def test_a_bookmark_moves_the_frontier(gate: TypeStore) -> None:
    """So that a type in which nothing happens holds up nobody."""
    assert gate.feed(bookmark(17)) == []
    assert gate.frontier == 17


def test_a_bookmark_below_the_frontier_moves_nothing(gate: TypeStore) -> None:
    """The frontier never falls."""
    gate.feed(bookmark(7))
    assert gate.frontier == 10


def test_a_bookmark_before_the_snapshot_moves_nothing() -> None:
    """Nothing is complete before a snapshot has ended."""
    gate = TypeStore()
    gate.feed(bookmark(17))
    assert (gate.frontier, gate.primed) == (0, False)


def test_a_bookmark_ends_what_is_ahead(gate: TypeStore) -> None:
    """Once the frontier has passed a reply, the stream has told everything up to it."""
    gate.reply(ADA, None, at(12))
    gate.feed(bookmark(12))
    gate.feed(changes(put(stored("ada", 13, uid="ada2"))))
    gate.feed(chunk())
    gate.feed(end(14))
    assert versions(gate.entries) == {}


def test_what_the_frontier_has_passed_is_ahead_no_more(gate: TypeStore) -> None:
    """Nothing is remembered of a reply, or of a grave, once it can make no difference."""
    for name, revision in (("ada", 13), ("grace", 11), ("ada", 15), ("mary", 12)):
        gate.reply(key(name), None, at(revision))
    gate.feed(bookmark(13))
    assert gate._ahead == {ADA: 15}
    gate.feed(changes(put(stored("ada", 16, uid="ada2"))))
    assert (gate._ahead, gate._ahead_order) == ({}, [])


# --- a frontier that is not true ---


def test_a_stale_change_that_is_newer_than_what_is_held_disproves_the_frontier(gate: TypeStore) -> None:
    """Complete up to 20, it would have been held; that a bookmark said so was false. It takes nothing back, as ever."""
    gate.feed(bookmark(20))
    gate.feed(changes(put(stored("ada", 5)), put(stored("mary", 12))))
    assert not gate.disproved, "a repetition, and what may be gone again, prove nothing"
    assert gate.feed(changes(put(stored("ada", 12)))) == []
    assert gate.disproved
    assert versions(gate.entries) == {"ada": 5, "grace": 6}


def test_a_stale_deletion_of_what_is_held_disproves_the_frontier(gate: TypeStore) -> None:
    gate.feed(bookmark(20))
    gate.feed(changes(removed(gate.entries[GRACE], 12)))
    assert gate.disproved


def test_an_older_snapshot_that_has_newer_things_disproves_the_frontier(gate: TypeStore) -> None:
    gate.feed(bookmark(20))
    gate.feed(chunk(stored("ada", 5)))
    gate.feed(end(12))
    assert not gate.disproved
    gate.feed(chunk(stored("ada", 11)))
    gate.feed(end(12))
    assert gate.disproved
