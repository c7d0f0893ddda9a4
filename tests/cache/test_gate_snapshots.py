"""A type store's rules for snapshots and bookmarks, and for the items that follow them."""

from __future__ import annotations

from headway.cache import Applied, TypeStore
from tests.helpers.resources import at, bookmark, changes, chunk, end, key, put, removed, stored, versions

ADA, GRACE = key("ada"), key("grace")


def test_snapshot_is_invisible_until_it_ends(gate: TypeStore) -> None:
    assert gate.feed(chunk(stored("ada", 11))) == []
    assert versions(gate.entries) == {"ada": 5, "grace": 6}


def test_snapshot_replaces_the_held_state(gate: TypeStore) -> None:
    """Its resources are applied, all others are deleted, and each change is reported."""
    ada, grace = gate.entries[ADA], gate.entries[GRACE]
    newer, mary = stored("ada", 12), stored("mary", 13)
    gate.feed(chunk(newer, mary))
    applied = gate.feed(end(14))
    assert sorted(applied) == sorted(
        [Applied(GRACE, grace, None, 14), Applied(ADA, ada, newer, 12), Applied(key("mary"), None, mary, 13)]
    )
    assert versions(gate.entries) == {"ada": 12, "mary": 13}
    assert gate.frontier == 14


def test_snapshot_at_the_frontier_is_applied(gate: TypeStore) -> None:
    """It repairs a cache after a false bookmark."""
    gate.feed(chunk(stored("ada", 5), stored("mary", 9)))
    gate.feed(end(10))
    assert versions(gate.entries) == {"ada": 5, "mary": 9}


def test_snapshot_below_the_frontier_is_discarded_and_counted(gate: TypeStore) -> None:
    """A lagging replica neither moves a key back nor deletes one."""
    gate.feed(chunk(stored("ada", 4)))
    assert gate.feed(end(9)) == []
    assert versions(gate.entries) == {"ada": 5, "grace": 6}
    assert gate.refused.snapshots == 1
    assert gate.frontier == 10


def test_reply_newer_than_a_snapshot_survives_it(gate: TypeStore) -> None:
    """Neither an older state nor an absence in the snapshot overrides the reply."""
    gate.reply(ADA, stored("ada", 20), at(20))
    gate.reply(key("mary"), stored("mary", 21), at(21))
    gate.reply(GRACE, None, at(22))
    gate.feed(chunk(stored("ada", 12), stored("grace", 6)))
    assert gate.feed(end(15)) == []
    assert versions(gate.entries) == {"ada": 20, "mary": 21}


def test_snapshot_newer_than_a_reply_overrides_it(gate: TypeStore) -> None:
    """At the reply's own revision the snapshot counts as newer."""
    gate.reply(ADA, stored("ada", 15), at(15))
    gate.reply(GRACE, None, at(15))
    gate.feed(chunk(stored("ada", 16), stored("grace", 16, uid="grace2")))
    gate.feed(end(16))
    assert versions(gate.entries) == {"ada": 16, "grace": 16}


def test_snapshot_at_the_revision_of_a_reply_overrides_it(gate: TypeStore) -> None:
    """A key is ahead of a snapshot only above its revision."""
    gate.reply(ADA, None, at(15))
    gate.feed(chunk(stored("ada", 15, uid="ada2"), stored("grace", 6)))
    gate.feed(end(15))
    assert versions(gate.entries) == {"ada": 15, "grace": 6}


def test_partial_snapshot_of_a_broken_stream_is_forgotten(gate: TypeStore) -> None:
    """The next stream's snapshot starts from nothing."""
    gate.feed(chunk(stored("mary", 11)))
    gate.restart()
    gate.feed(chunk(stored("ada", 5)))
    gate.feed(end(12))
    assert versions(gate.entries) == {"ada": 5}


def test_first_snapshot_reports_no_changes() -> None:
    gate = TypeStore()
    gate.feed(chunk(stored("ada", 5)))
    assert gate.feed(end(10)) == []
    assert gate.primed


def test_bookmark_moves_the_frontier(gate: TypeStore) -> None:
    """A type without changes must not hold up the others."""
    assert gate.feed(bookmark(17)) == []
    assert gate.frontier == 17


def test_bookmark_below_the_frontier_is_ignored(gate: TypeStore) -> None:
    """The frontier never falls."""
    gate.feed(bookmark(7))
    assert gate.frontier == 10


def test_bookmark_before_the_snapshot_is_ignored() -> None:
    """The type is not complete before a snapshot has ended."""
    gate = TypeStore()
    gate.feed(bookmark(17))
    assert (gate.frontier, gate.primed) == (0, False)


def test_bookmark_past_a_reply_ends_its_precedence(gate: TypeStore) -> None:
    """Once the frontier has passed a reply, the stream has delivered everything up to it."""
    gate.reply(ADA, None, at(12))
    gate.feed(bookmark(12))
    gate.feed(changes(put(stored("ada", 13, uid="ada2"))))
    gate.feed(chunk())
    gate.feed(end(14))
    assert versions(gate.entries) == {}


def test_replies_and_graves_are_forgotten_once_the_frontier_has_passed(gate: TypeStore) -> None:
    """From that point they can make no difference."""
    for name, revision in (("ada", 13), ("grace", 11), ("ada", 15), ("mary", 12)):
        gate.reply(key(name), None, at(revision))
    gate.feed(bookmark(13))
    assert gate._ahead == {ADA: 15}
    gate.feed(changes(put(stored("ada", 16, uid="ada2"))))
    assert (gate._ahead, gate._ahead_order) == ({}, [])


# --- a frontier that is not true ---


def test_stale_change_newer_than_the_held_state_disproves_the_frontier(gate: TypeStore) -> None:
    """A cache complete up to 20 would have held it, so the bookmark was false. The change is not applied."""
    gate.feed(bookmark(20))
    gate.feed(changes(put(stored("ada", 5)), put(stored("mary", 12))))
    assert not gate.disproved, "a repetition, and what may be gone again, prove nothing"
    assert gate.feed(changes(put(stored("ada", 12)))) == []
    assert gate.disproved
    assert versions(gate.entries) == {"ada": 5, "grace": 6}


def test_stale_deletion_of_a_held_key_disproves_the_frontier(gate: TypeStore) -> None:
    gate.feed(bookmark(20))
    gate.feed(changes(removed(gate.entries[GRACE], 12)))
    assert gate.disproved


def test_older_snapshot_with_newer_states_disproves_the_frontier(gate: TypeStore) -> None:
    gate.feed(bookmark(20))
    gate.feed(chunk(stored("ada", 5)))
    gate.feed(end(12))
    assert not gate.disproved
    gate.feed(chunk(stored("ada", 11)))
    gate.feed(end(12))
    assert gate.disproved
