"""Tombstones: records of deleted owners, and the requests that are permitted on them."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing
from grpclib.const import Status

from headway.resource import FINALIZERS, TOMBSTONE, Registry, ResourceType, pb
from tests.helpers.calls import Calls, Interrupted, at, refused, take
from tests.helpers.declared import (
    CHILD,
    NOTE,
    NOTE_V2,
    PLANET,
    REGION,
    a_note,
    a_type,
    an_id,
    id_of,
    uid_of,
)

OWNERS: list[tuple[str, ResourceType[Any]]] = [
    ("boss", NOTE),
    ("a" * 63, NOTE),
    ("1", NOTE_V2),
    ("one", REGION),
    ("one", PLANET),
]


async def tombstones(calls: Calls) -> list[pb.Resource]:
    reply = await calls.list_type(a_type(TOMBSTONE), pb.Tenancy(partition="*", namespace="*"))
    return list(reply.resources)


@pytest.mark.parametrize(("name", "type"), OWNERS)
async def test_deletion_of_any_owner_leaves_a_tombstone(calls: Calls, name: str, type: ResourceType[Any]) -> None:
    """The tombstone is named after the uid, which is a valid name in every scope, and stored in the owner's tenancy."""
    boss = await calls.stored(a_note(name, "", type))
    await calls.write(a_note("child", type=CHILD, owner=boss.id))
    await calls.delete(id_of(boss))
    (tombstone,) = await tombstones(calls)
    id = id_of(tombstone)
    assert (id.name, id.tenancy) == (f"tombstone-{uid_of(boss).lower()}", id_of(boss).tenancy)
    assert TOMBSTONE.view(tombstone).data.owner == boss.id
    assert tombstone.metadata.keys() == {"generated_at"}
    assert (await calls.read(id)).resource == tombstone


async def test_tombstone_replaces_its_owner_in_one_commit(calls: Calls) -> None:
    """No reader sees both of them or neither."""
    boss = await calls.stored(a_note("boss"))
    await calls.write(a_note("child", owner=boss.id))
    async with calls.watch(a_type(TOMBSTONE), pb.Tenancy(partition="*", namespace="*")) as items:
        await take(items, 1)
        reply = await calls.delete(an_id("boss"))
        (changes,) = await take(items, 1)
    assert changes.changes[0].revision == at(reply.position).revision == calls.revision  # type: ignore[union-attr]


async def test_deletion_without_children_leaves_no_tombstone(calls: Calls) -> None:
    """The deletion is one commit with one change.

    Most resources own nothing, and their deletion costs nothing extra.
    """
    boss = await calls.stored(a_note("boss"))
    child = await calls.stored(a_note("child", owner=boss.id))
    await calls.delete(id_of(child))
    here = calls.revision
    await calls.delete(id_of(boss))
    assert calls.revision == here + 1
    assert await tombstones(calls) == []


@pytest.mark.parametrize("finalizers", ["", "a"])
async def test_failed_deletion_leaves_no_tombstone(calls: Calls, finalizers: str) -> None:
    """A conflict of versions or a finalizer leaves the owner unchanged, and so its children."""
    boss = await calls.stored(a_note("boss", metadata={FINALIZERS: finalizers}))
    await calls.write(a_note("child", owner=boss.id))
    await refused(calls.delete(id_of(boss), version="1234567"), Status.ABORTED)
    if finalizers:
        await calls.delete(id_of(boss))
    assert await tombstones(calls) == []


async def test_child_created_concurrently_is_found(calls: Calls, racing: Calls, interrupted: Interrupted) -> None:
    """The commit of the deletion verifies whether there are children."""
    boss = await calls.stored(a_note("boss"))
    interrupted.before_commit = [lambda: calls.write(a_note("child", owner=boss.id))]
    await racing.delete(an_id("boss"))
    assert len(await tombstones(calls)) == 1


@pytest.mark.wide
async def test_concurrent_deletions_of_an_owner_leave_one_tombstone(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock
) -> None:
    """The slower caller gets the answer for a deleted owner."""
    boss = await calls.stored(a_note("boss"))
    await calls.write(a_note("child", owner=boss.id))
    interrupted.before_commit = [lambda: calls.delete(an_id("boss"))]
    assert (await racing.delete(an_id("boss"))).resource is None
    assert len(await tombstones(calls)) == 1
    assert autojump_clock.current_time() < 0.2


async def test_tombstone_can_be_deleted_once_nothing_is_owned(calls: Calls) -> None:
    """The deletion leaves no other tombstone. An earlier deletion would strand the remaining children."""
    boss = await calls.stored(a_note("boss"))
    child = await calls.stored(a_note("child", owner=boss.id))
    await calls.delete(id_of(boss))
    (tombstone,) = await tombstones(calls)
    said = "is the tombstone of an owner that still owns 1 resources; it is removed after them"
    await refused(calls.delete(id_of(tombstone)), Status.FAILED_PRECONDITION, said)
    await calls.delete(id_of(child))
    await calls.delete(id_of(tombstone))
    assert await tombstones(calls) == []


async def test_owner_of_an_unregistered_type_can_be_listed(calls: Calls) -> None:
    """The owner is named by its id, whose tenancy cannot be completed."""
    boss = await calls.stored(a_note("boss"))
    child = await calls.stored(a_note("child", owner=boss.id))
    later = Calls(calls.backend, Registry())
    for owner in (boss.id, pb.Id(uid=uid_of(boss), name="boss", type=a_type())):
        assert (await later.list_by_owner(owner)).resources == [child]
