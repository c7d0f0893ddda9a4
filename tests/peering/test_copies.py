"""The plan for the copies: which change of which original counts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from headway.peering.stream import Change, Copies
from headway.resource import pb, resource_id
from headway.storage import Operation, Put, Remove
from tests.peering.stream_kit import PARTITION, team


def opened() -> Copies:
    """Return the copies of an empty partition."""
    numbers = itertools.count(1)
    return Copies(PARTITION, 10, lambda: f"u{next(numbers)}")


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
    assert contents(apply(copies, stored(team("ada", 2, uid="A", data="2")))) == []


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
