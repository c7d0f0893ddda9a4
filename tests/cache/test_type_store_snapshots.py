"""A type store's rules for snapshots and bookmarks, and for the items that follow them."""

from __future__ import annotations

import gc
import weakref

import pytest

from headway.cache import Applied, TypeStore
from headway.resource import pb
from tests.helpers.resources import at, bookmark, changes, chunk, end, key, put, removed, stored, versions

ADA, GRACE = key("ada"), key("grace")


def test_snapshot_is_invisible_until_it_ends(store: TypeStore) -> None:
    assert store.feed(chunk(stored("ada", 11))) == []
    assert versions(store.entries) == {"ada": 5, "grace": 6}


def test_snapshot_replaces_the_held_state(store: TypeStore) -> None:
    """The resources of the snapshot are applied, all others are deleted, and each change is reported."""
    ada, grace = store.entries[ADA], store.entries[GRACE]
    newer, mary = stored("ada", 12), stored("mary", 13)
    store.feed(chunk(newer, mary))
    applied = store.feed(end(14))
    assert sorted(applied) == sorted(
        [Applied(GRACE, grace, None, 14), Applied(ADA, ada, newer, 12), Applied(key("mary"), None, mary, 13)]
    )
    assert versions(store.entries) == {"ada": 12, "mary": 13}
    assert store.frontier == 14


def test_snapshot_reports_no_resource_that_has_not_changed(store: TypeStore) -> None:
    """A stream that was cut off and begins anew reconciles nothing by itself."""
    grace = stored("grace", 12)
    store.feed(chunk(stored("ada", 5), grace))
    assert [each.key for each in store.feed(end(14))] == [GRACE]
    assert versions(store.entries) == {"ada": 5, "grace": 12}


def test_snapshot_below_the_frontier_is_discarded_and_counted(store: TypeStore) -> None:
    """A lagging replica neither moves a key back nor deletes a key."""
    store.feed(chunk(stored("ada", 4)))
    assert store.feed(end(9)) == []
    assert versions(store.entries) == {"ada": 5, "grace": 6}
    assert store.refused == 1
    assert store.frontier == 10


def test_reply_newer_than_a_snapshot_survives_it(store: TypeStore) -> None:
    """The snapshot may have an older state or lack the key. Neither overrides the reply."""
    store.reply(ADA, stored("ada", 20), at(20))
    store.reply(key("mary"), stored("mary", 21), at(21))
    store.reply(GRACE, None, at(22))
    store.feed(chunk(stored("ada", 12), stored("grace", 6)))
    assert store.feed(end(15)) == []
    assert versions(store.entries) == {"ada": 20, "mary": 21}


def test_snapshot_at_the_revision_of_a_reply_overrides_it(store: TypeStore) -> None:
    """A key is ahead of a snapshot only above the snapshot's revision."""
    store.reply(ADA, None, at(15))
    store.feed(chunk(stored("ada", 15, uid="ada2"), stored("grace", 6)))
    store.feed(end(15))
    assert versions(store.entries) == {"ada": 15, "grace": 6}


def test_partial_snapshot_of_a_broken_stream_is_forgotten(store: TypeStore) -> None:
    """The snapshot of the next stream starts empty."""
    store.feed(chunk(stored("mary", 11)))
    store.restart()
    store.feed(chunk(stored("ada", 5)))
    store.feed(end(12))
    assert versions(store.entries) == {"ada": 5}


def test_first_snapshot_reports_no_changes() -> None:
    store = TypeStore()
    store.feed(chunk(stored("ada", 5)))
    assert store.feed(end(10)) == []
    assert store.primed


def test_bookmark_before_the_snapshot_is_ignored() -> None:
    """The type is not complete before a snapshot has ended."""
    store = TypeStore()
    store.feed(bookmark(17))
    assert (store.frontier, store.primed) == (0, False)


def test_bookmark_past_a_reply_ends_its_precedence(store: TypeStore) -> None:
    """Once the frontier has passed a reply, the stream has delivered everything up to the reply."""
    store.reply(ADA, None, at(12))
    store.feed(bookmark(12))
    store.feed(changes(put(stored("ada", 13, uid="ada2"))))
    store.feed(chunk())
    store.feed(end(14))
    assert versions(store.entries) == {}


def test_replies_and_graves_are_forgotten_once_the_frontier_has_passed(store: TypeStore) -> None:
    """From that point on, they can make no difference."""
    for name, revision in (("ada", 13), ("grace", 11), ("ada", 15), ("mary", 12)):
        store.reply(key(name), None, at(revision))
    store.feed(bookmark(13))
    assert store.ahead() == {ADA: 15}
    store.feed(changes(put(stored("ada", 16, uid="ada2"))))
    assert (store.ahead(), store._ahead_order) == ({}, [])


def test_names_of_forgotten_replies_are_not_kept(store: TypeStore) -> None:
    """A process that creates and deletes ever new names for years does not grow by them."""

    class Name(str):
        """A name that can be watched while it is in use."""

        __slots__ = ("__weakref__",)

    held: list[weakref.ref[Name]] = []
    for revision in (11, 12):
        name = Name(f"team-{revision}")
        held.append(weakref.ref(name))
        store.reply(key(name), None, at(revision))
        del name
    store.feed(bookmark(11))
    gc.collect()
    assert [each() for each in held] == [None, "team-12"]


# --- a false frontier ---


def test_stale_change_newer_than_the_held_state_disproves_the_frontier(store: TypeStore) -> None:
    """A cache that is complete up to 20 would have the state, so the bookmark was false. The change is not applied."""
    store.feed(bookmark(20))
    store.feed(changes(put(stored("ada", 5)), put(stored("mary", 12))))
    assert not store.disproved, (
        "a repetition proves nothing, and neither does a resource that may have been deleted since"
    )
    assert store.feed(changes(put(stored("ada", 12)))) == []
    assert store.disproved
    assert versions(store.entries) == {"ada": 5, "grace": 6}


def test_stale_deletion_of_a_held_key_disproves_the_frontier(store: TypeStore) -> None:
    store.feed(bookmark(20))
    store.feed(changes(removed(store.entries[GRACE], 12)))
    assert store.disproved


@pytest.mark.parametrize("new", [stored("ada", 12), None])
def test_reply_newer_than_the_held_state_disproves_the_frontier_and_is_applied(
    store: TypeStore, new: pb.Resource | None
) -> None:
    """The writer sees its own write, also if a false bookmark was faster than the reply."""
    store.feed(bookmark(20))
    old = store.entries[ADA]
    assert store.reply(ADA, new, at(12)) == [Applied(ADA, old, new, 12)]
    assert store.disproved
    assert store.entries.get(ADA) is new
    assert not store.ahead()
    store.feed(chunk(stored("grace", 6), *([] if new is None else [new])))
    assert store.feed(end(20)) == []


def test_older_snapshot_with_newer_states_disproves_the_frontier(store: TypeStore) -> None:
    store.feed(bookmark(20))
    store.feed(chunk(stored("ada", 5)))
    store.feed(end(12))
    assert not store.disproved
    store.feed(chunk(stored("ada", 11)))
    store.feed(end(12))
    assert store.disproved
