"""The rules of a type store, except for snapshots, and the interleavings that once broke them."""

from __future__ import annotations

import pytest

from headway.cache import Applied, TypeStore
from headway.errors import EngineBug, StoreChanged
from tests.helpers.resources import OTHER_STORE, at, bookmark, changes, chunk, end, key, put, removed, stored, versions

ADA, GRACE = key("ada"), key("grace")


# --- rule 1: changes ---------------------------------------------------------


def test_change_above_the_frontier_is_applied_and_moves_it(store: TypeStore) -> None:
    """The old and the new state are reported, with the revision."""
    old, new = store.entries[ADA], stored("ada", 11)
    assert store.feed(changes(put(new))) == [Applied(ADA, old, new, 11)]
    assert store.entries[ADA] is new
    assert store.frontier == 11


@pytest.mark.parametrize("revision", [4, 10])
def test_change_at_or_below_the_frontier_is_refused_and_counted(store: TypeStore, revision: int) -> None:
    """A change that the frontier has passed is stale, even for a key that is not in the store."""
    assert store.feed(changes(put(stored("ada", revision)), put(stored("mary", revision)))) == []
    assert versions(store.entries) == {"ada": 5, "grace": 6}
    assert store.refused == 2
    assert store.frontier == 10


def test_deleted_key_stays_absent_after_an_older_event(store: TypeStore) -> None:
    """A creation below the deletion's revision is stale."""
    store.feed(changes(removed(store.entries[ADA], 12)))
    assert store.feed(changes(put(stored("ada", 11)))) == []
    assert ADA not in store.entries


def test_repetition_within_one_item_is_ignored(store: TypeStore) -> None:
    """A revision below the previous one in the same item is a repetition.

    No reader and no mapper sees the key go back.
    """
    first, second = stored("ada", 11), stored("ada", 12)
    applied = store.feed(changes(put(first), put(second), put(first), put(second)))
    assert [each.revision for each in applied] == [11, 12]
    assert store.entries[ADA] is second
    assert store.frontier == 12


def test_changes_of_one_key_are_reported_one_by_one(store: TypeStore) -> None:
    """Each change has its own old and new state."""
    before, first, second = store.entries[ADA], stored("ada", 11), stored("ada", 12)
    applied = store.feed(changes(put(first), put(second)))
    assert applied == [Applied(ADA, before, first, 11), Applied(ADA, first, second, 12)]


def test_new_incarnation_is_a_deletion_and_a_creation(store: TypeStore) -> None:
    """A change never joins two uids."""
    old, new = store.entries[ADA], stored("ada", 11, uid="ada2")
    assert store.feed(changes(put(new))) == [Applied(ADA, old, None, 11), Applied(ADA, None, new, 11)]


def test_deletion_of_an_absent_key_only_moves_the_frontier(store: TypeStore) -> None:
    assert store.feed(changes(removed(stored("mary", 3), 11))) == []
    assert store.frontier == 11


def test_change_before_the_snapshot_raises_engine_bug() -> None:
    """The stream's grammar lets no such change through."""
    with pytest.raises(EngineBug):
        TypeStore().feed(changes(put(stored("ada", 1))))


# --- rule 2: replies ---------------------------------------------------------


def test_reply_is_applied_at_once_and_leaves_the_frontier(store: TypeStore) -> None:
    """A reply to an own write contains nothing about other keys."""
    old, new = store.entries[ADA], stored("ada", 12)
    assert store.reply(ADA, new, at(12)) == [Applied(ADA, old, new, 12)]
    assert store.entries[ADA] is new
    assert store.frontier == 10


def test_event_of_an_applied_reply_is_ignored(store: TypeStore) -> None:
    """The event is the same change as the reply."""
    store.reply(ADA, stored("ada", 12), at(12))
    assert store.feed(changes(put(stored("ada", 12)))) == []
    assert store.take_overtaken() == []
    assert store.frontier == 12


@pytest.mark.parametrize("revision", [9, 10])
def test_reply_at_or_below_the_frontier_is_refused(store: TypeStore, revision: int) -> None:
    """The stream is not older than the reply. A resource that is absent may have been deleted since."""
    held = dict(store.entries)
    assert store.reply(ADA, stored("ada", 5), at(revision)) is None
    assert store.reply(key("mary"), stored("mary", revision), at(revision)) is None
    assert store.reply(key("mary"), None, at(revision)) is None
    assert store.entries == held
    assert not store.disproved


@pytest.mark.parametrize("revision", [11, 12])
def test_reply_at_or_below_another_reply_is_refused(store: TypeStore, revision: int) -> None:
    """Replies that overtake each other never move a key back."""
    newest = stored("ada", 12)
    store.reply(ADA, newest, at(12))
    assert store.reply(ADA, stored("ada", revision), at(revision)) is None
    assert store.entries[ADA] is newest


def test_deletion_by_a_reply_leaves_a_grave_until_the_frontier_has_passed(store: TypeStore) -> None:
    """While the grave exists, an older creation is refused. A later creation is applied."""
    old = store.entries[ADA]
    assert store.reply(ADA, None, at(13)) == [Applied(ADA, old, None, 13)]
    store.feed(changes(put(stored("ada", 11)), put(stored("ada", 12, uid="ada2"))))
    assert ADA not in store.entries
    store.feed(changes(put(stored("ada", 14, uid="ada3"))))
    assert versions(store.entries) == {"ada": 14, "grace": 6}


def test_reply_without_a_change_reports_no_change(store: TypeStore) -> None:
    """An unneeded status write is answered with the stored resource and a later position."""
    assert store.reply(ADA, stored("ada", 5), at(14)) == []
    assert store.frontier == 10


def test_reply_before_the_snapshot_survives_it() -> None:
    """The writes of a run's initialiser survive a snapshot from before those writes."""
    unprimed = TypeStore()
    mine = stored("ada", 12)
    unprimed.reply(ADA, mine, at(12))
    unprimed.reply(GRACE, None, at(13))
    unprimed.feed(chunk(stored("ada", 5), stored("grace", 6), stored("mary", 7)))
    unprimed.feed(end(10))
    assert versions(unprimed.entries) == {"ada": 12, "mary": 7}
    assert unprimed.frontier == 10


# --- rule 5: overtaken changes -----------------------------------------------


def test_own_write_that_the_next_own_write_has_overtaken_is_returned_once(store: TypeStore) -> None:
    """It was returned when its reply was applied. Without its old state it would pass for a creation, however often a
    reconciler writes twice.
    """
    first, theirs, last = stored("ada", 11), stored("ada", 12), stored("ada", 13)
    for own in (first, last):
        assert store.reply(ADA, own, at(int(own.version)))
    assert store.feed(changes(put(first), put(theirs), put(last))) == []
    assert store.take_overtaken() == [Applied(ADA, None, theirs, 12)]


def test_deletion_overtaken_by_a_reply_is_still_mapped(store: TypeStore) -> None:
    """The mapped state is the deleted state, which the cache may never have had."""
    theirs = stored("ada", 11)
    store.reply(ADA, stored("ada", 13, uid="ada2"), at(13))
    store.feed(changes(put(theirs), removed(theirs, 12)))
    assert store.take_overtaken() == [Applied(ADA, None, theirs, 11), Applied(ADA, theirs, None, 12)]


def test_snapshot_state_older_than_a_reply_is_still_mapped(store: TypeStore) -> None:
    """No other item has the state that the reply has overtaken."""
    theirs = stored("ada", 11)
    store.reply(ADA, stored("ada", 20), at(20))
    store.feed(chunk(theirs, stored("grace", 6)))
    store.feed(end(15))
    assert store.take_overtaken() == [Applied(ADA, None, theirs, 15)]


# --- rule 6: one store, and the position at which a stream resumes --------------


def test_data_of_another_store_raises_store_changed(store: TypeStore) -> None:
    """No data of that store is applied, from a stream or from a reply."""
    for item in (end(20, OTHER_STORE), bookmark(20, store_id=OTHER_STORE)):
        with pytest.raises(StoreChanged):
            store.feed(item)
    with pytest.raises(StoreChanged):
        store.reply(ADA, None, at(20, OTHER_STORE))
    assert versions(store.entries) == {"ada": 5, "grace": 6}
    assert store.frontier == 10


def test_reply_before_the_first_stream_fixes_the_store() -> None:
    """A stream of another store is then refused."""
    store = TypeStore()
    store.reply(ADA, None, at(3))
    with pytest.raises(StoreChanged):
        store.feed(end(20, OTHER_STORE))


def test_reply_of_a_new_session_leaves_the_resume_position(store: TypeStore) -> None:
    """The frontier belongs to the session that delivered it. A new session must not vouch for it."""
    store.reply(ADA, stored("ada", 20), at(20, incarnation="opened-again"))
    assert store.session == "opened-first"


def test_discarded_snapshot_leaves_the_resume_position(store: TypeStore) -> None:
    """A reopened copy of the store that is below the frontier does not know the frontier."""
    store.feed(end(9, incarnation="opened-again"))
    assert store.session == "opened-first"
    store.feed(end(10, incarnation="opened-again"))
    assert store.session == "opened-again"


# --- interleavings that once broke a rule ------------------------------------


def test_frontier_is_the_highest_revision_of_an_item(store: TypeStore) -> None:
    """A key above the frontier that is not marked as ahead could be overwritten by an older reply."""
    store.feed(changes(put(stored("ada", 12)), put(stored("grace", 11))))
    assert store.frontier == 12
    assert store.reply(ADA, stored("ada", 11), at(11)) is None
    assert versions(store.entries) == {"ada": 12, "grace": 6}


def test_change_repeated_in_one_commit_is_applied_once(store: TypeStore) -> None:
    """The repetition is reported as no change."""
    twice = put(stored("ada", 11))
    assert len(store.feed(changes(twice, twice))) == 1
    assert store.refused == 1
