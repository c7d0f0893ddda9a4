"""The plan for the copies: which change of which original counts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from headway.peering.stream import Breach, Change, Copies
from headway.resource import pb, resource_id
from headway.storage import Operation, Put, Remove
from tests.peering.stream_kit import PARTITION, TEAMS, TEAMS2, team


def opened(most: int = 10) -> Copies:
    """Return the copies of an empty partition."""
    numbers = itertools.count(1)
    return Copies(PARTITION, most, lambda: f"u{next(numbers)}")


def stored(resource: pb.Resource) -> Change:
    """Return the change by which an original got this state."""
    id = resource_id(resource.id).without_uid()
    return Change(id, opened().place(id), resource, int(resource.version))


def deleted(resource: pb.Resource, revision: int) -> Change:
    """Return the deletion of an original."""
    id = resource_id(resource.id).without_uid()
    return Change(id, opened().place(id), None, revision)


def apply(copies: Copies, *changes: Change) -> Sequence[Operation]:
    """Apply changes of one commit, and return the operations of its second commit."""
    first, then = copies.plan(changes)
    copies.stored(first, 1)
    copies.stored(then, 2)
    return then


def contents(operations: Sequence[Operation]) -> list[bytes]:
    """Return the content of the copies that operations store."""
    return [each.resource.data.value for each in operations if isinstance(each, Put) and each.resource.data is not None]


def test_deletion_in_another_partition_hides_no_change_of_the_same_commit() -> None:
    copies = opened()
    apply(copies, stored(team("ada", 5, uid="A", partition="p1")))
    other = deleted(team("ada", 6, uid="B", partition="p2"), 7)
    changed = stored(team("ada", 7, uid="A", partition="p1", data="7"))
    assert contents(apply(copies, changed, other)) == [b"7"]
    gone = deleted(team("ada", 7, uid="A", partition="p1"), 8)
    assert [type(each) for each in apply(copies, gone, other._replace(revision=8))] == [Remove]


def test_deletion_in_another_partition_hides_no_creation_of_the_same_commit() -> None:
    created = stored(team("ada", 7, uid="A", partition="p1", data="7"))
    assert contents(apply(opened(), created, deleted(team("ada", 6, uid="B", partition="p2"), 7))) == [b"7"]


def test_copy_is_of_the_partition_of_its_original() -> None:
    copies = opened()
    apply(copies, stored(team("ada", 5, uid="A", partition="p1")))
    other = resource_id(team("ada", 6, partition="p2").id)
    assert copies.holds(resource_id(team("ada", 5, partition="p1").id))
    assert not copies.holds(other)
    assert copies.conflict(copies.place(other), "p1") is None
    assert "partition p1 has a resource of the same name" in str(copies.conflict(copies.place(other), "p2"))
    assert apply(copies, deleted(team("ada", 6, uid="B", partition="p2"), 7)) == []


def test_limit_counts_copies_that_would_be_added() -> None:
    """Those that are stored stay up to date, even if the limit is lower since."""
    copies = opened(most=2)
    apply(copies, stored(team("ada", 5)), stored(team("grace", 5)))
    with pytest.raises(Breach, match="more than 2 resources"):
        copies.plan([stored(team("mary", 6))])
    copies._most = 1
    assert contents(apply(copies, stored(team("ada", 6, data="6")))) == [b"6"]


def test_snapshot_says_whether_it_spares_copies_that_may_have_moved_to_a_refused_version() -> None:
    """The copies of what is not selected stay as well, but no snapshot could show more about them."""
    copies = opened()
    apply(copies, stored(team("ada", 5)), stored(team("grace", 5, partition="p2")))
    elsewhere = TEAMS2._replace(partition="p2")
    for refused, removed, spared in (((TEAMS2, elsewhere), [], True), ((elsewhere,), ["ada"], False)):
        copies.begin_snapshot()
        assert [each.key[2] for each in copies.end_snapshot(refused, (TEAMS,))] == removed
        assert copies.spared is spared


def test_original_that_is_deleted_during_a_snapshot_is_not_in_it() -> None:
    copies = opened()
    apply(copies, stored(team("ada", 5)))
    copies.begin_snapshot()
    id = resource_id(team("ada", 5).id)
    copies.see(id)
    assert copies.seen == 1
    copies.see(id, deleted=True)
    assert copies.seen == 0
    assert [each.key[2] for each in copies.end_snapshot((), ())] == ["ada"]


def test_rolled_back_store_may_give_another_state_the_same_version() -> None:
    copies = opened()
    apply(copies, stored(team("ada", 5, uid="A", data="before")))
    copies.outdate()
    assert contents(apply(copies, stored(team("ada", 5, uid="A", data="after")))) == [b"after"]


def outdated(*resources: pb.Resource) -> Copies:
    """Return copies of these originals, from before the peer's store was replaced."""
    copies = opened()
    apply(copies, *map(stored, resources))
    copies.outdate()
    assert copies.outdated
    return copies


def test_newest_state_of_another_store_is_protected_from_older_ones_as_any_other() -> None:
    copies = outdated(team("ada", 5, uid="A"))
    _, then = copies.plan([stored(team("ada", 3, uid="A"))])
    # Before it is stored, because the state that is stored with it says so.
    assert not copies.outdated
    copies.stored(then, 3)
    for version, stale in ((3, 0), (2, 1)):
        assert contents(apply(copies, stored(team("ada", version, uid="A", data="again")))) == []
        assert copies.stale == stale


def test_every_copy_is_outdated_by_each_replacement_of_the_store() -> None:
    """Also the one that was written since the first."""
    copies = outdated(team("ada", 5, uid="A"), team("grace", 5, uid="B"))
    apply(copies, stored(team("ada", 4, uid="A")))
    copies.outdate()
    assert contents(apply(copies, stored(team("ada", 3, uid="A", data="3")))) == [b"3"]


def test_snapshot_leaves_no_outdated_copy() -> None:
    """The first copy is written, and the other is removed. It counts before the removal is stored with the state."""
    copies = outdated(team("ada", 5, uid="A"), team("grace", 5, uid="B"))
    copies.begin_snapshot()
    id = resource_id(team("ada", 3).id)
    copies.see(id)
    apply(copies, stored(team("ada", 3, uid="A")))
    assert copies.outdated
    assert [each.key[2] for each in copies.end_snapshot((), ())] == ["grace"]
    assert not copies.outdated


def test_copies_of_a_withdrawn_export_are_outdated_until_each_is_removed() -> None:
    """A crash may leave some of them, and the export may return."""
    copies = outdated(team("ada", 5, uid="A"), team("grace", 5, uid="B"))
    removals = copies.outside(())
    assert copies.outdated
    copies.stored(removals[:1], 3)
    assert copies.outdated
    copies.stored(removals[1:], 4)
    assert not copies.outdated
