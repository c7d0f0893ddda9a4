"""Partitions and namespaces as resources: their contents, and when they exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio.testing
from grpclib.const import Status

from headway.resource import EMPTIED_FINALIZER, FINALIZERS, NAMESPACE, PARTITION, pb
from tests.helpers.calls import Calls, Interrupted, refused, take
from tests.helpers.declared import (
    NOTE,
    PLANET,
    REGION,
    ULID,
    a_note,
    a_status,
    a_type,
    an_id,
    id_of,
)

Call = Callable[[Calls], Awaitable[object]]


def a_namespace(name: str = "up", partition: str = "", **rest: object) -> pb.Resource:
    return pb.Resource(id=an_id(name, NAMESPACE, partition=partition), **rest)  # type: ignore[arg-type]


def a_partition(name: str = "far", **rest: object) -> pb.Resource:
    return pb.Resource(id=an_id(name, PARTITION), **rest)  # type: ignore[arg-type]


UP = {"namespace": "up"}
NOWHERE = [
    (a_note(namespace="up"), "tenancy: namespace 'up' not found; create it first"),
    (a_note(partition="far"), "tenancy: partition 'far' not found; create it first"),
    (a_note(partition="far", namespace="up"), "tenancy: partition 'far' not found"),
    (a_note(type=REGION, partition="far"), "tenancy: partition 'far' not found"),
    (a_namespace(partition="far"), "tenancy: partition 'far' not found"),
]


@pytest.mark.parametrize(("resource", "said"), NOWHERE)
async def test_write_to_an_unknown_tenancy_is_refused(calls: Calls, resource: pb.Resource, said: str) -> None:
    """Write, MutateAndValidate and WriteStatus name the missing unit."""
    await refused(calls.write(resource), Status.INVALID_ARGUMENT, said)
    await refused(calls.mutate_and_validate(resource), Status.INVALID_ARGUMENT, said)
    id = id_of(resource) if resource.id is not None and resource.id.tenancy is not None else an_id()
    status = calls.write_status(pb.Id(uid=ULID, name=id.name, type=id.type, tenancy=id.tenancy), a_status())
    await refused(status, Status.INVALID_ARGUMENT, said)
    assert calls.revision == 0


async def test_unknown_tenancy_is_empty(calls: Calls) -> None:
    """Read finds nothing, List and WatchList are empty, and Delete does nothing."""
    await refused(calls.read(an_id(namespace="up")), Status.NOT_FOUND, "Note up/one not found")
    assert (await calls.list_type(a_type(), pb.Tenancy(namespace="up"))).resources == []
    assert (await calls.delete(an_id(namespace="up"))).resource is None
    async with calls.watch(a_type(), pb.Tenancy(namespace="up")) as items:
        await take(items, 1)


async def test_tenancy_exists_as_long_as_its_resources(calls: Calls) -> None:
    """``default`` always exists, in every existing partition. A namespace belongs to one partition."""
    await calls.write(a_note())
    await calls.write(a_note(type=PLANET))
    await calls.write(a_partition())
    await calls.write(a_note(partition="far"))
    await calls.write(a_note(type=REGION, partition="far"))
    await calls.write(a_namespace())
    await calls.write(a_note(namespace="up"))
    said = "tenancy: namespace 'up' of partition 'far' not found"
    await refused(calls.write(a_note(partition="far", namespace="up")), Status.INVALID_ARGUMENT, said)
    await calls.write(a_namespace(partition="far"))
    await calls.write(a_note(partition="far", namespace="up"))


@pytest.mark.parametrize("unit", [a_namespace("default"), a_partition("default"), a_namespace("default", "far")])
async def test_default_units_can_be_neither_written_nor_deleted(calls: Calls, unit: pb.Resource) -> None:
    """The default units exist without being stored."""
    await calls.write(a_partition())
    await refused(calls.write(unit), Status.INVALID_ARGUMENT, "'default' always exists and cannot be written")
    await refused(calls.delete(unit.id), Status.INVALID_ARGUMENT, "'default' always exists and cannot be deleted")


async def test_unit_has_its_finalizer_from_the_first_write(calls: Calls) -> None:
    """However soon a unit is deleted, it is emptied first. In Consul, a controller adds the finalizer later."""
    for resource in (a_namespace(), a_partition()):
        stored = await calls.stored(resource)
        assert stored.metadata == {FINALIZERS: EMPTIED_FINALIZER}
        stored = await calls.stored(pb.Resource(id=resource.id, version=stored.version, metadata={"a": "b"}))
        assert stored.metadata == {FINALIZERS: EMPTIED_FINALIZER, "a": "b"}
        marked = (await calls.delete(resource.id)).resource
        assert marked is not None
        blanket = pb.Resource(id=resource.id, metadata={FINALIZERS: "", "a": "b"})
        await refused(calls.write(blanket), Status.INVALID_ARGUMENT, "removes none of its finalizers")
        await calls.write(pb.Resource(id=resource.id, metadata={**marked.metadata, FINALIZERS: ""}))
        assert (await calls.delete(resource.id)).resource is None


async def test_unit_cannot_have_an_owner(calls: Calls) -> None:
    """A unit with an owner could be deleted without a request to delete it."""
    boss = await calls.stored(a_note("boss"))
    for unit in (a_namespace(owner=boss.id), a_partition(owner=boss.id)):
        await refused(calls.write(unit), Status.INVALID_ARGUMENT, "owner must be empty: a ")


@pytest.mark.parametrize("unit", [a_namespace(), a_partition("default-2")])
async def test_only_deletion_continues_in_a_marked_unit(calls: Calls, unit: pb.Resource) -> None:
    """Creations and changes are refused. Statuses, removed finalizers, marks and deletions are accepted."""
    place = UP if unit.id is not None and unit.id.name == "up" else {"partition": "default-2"}
    await calls.write(unit)
    held = await calls.stored(a_note("held", metadata={FINALIZERS: "a"}, **place))  # type: ignore[arg-type]
    plain = await calls.stored(a_note("plain", **place))  # type: ignore[arg-type]
    await calls.delete(unit.id)
    for call in (
        calls.write(a_note("new", **place)),  # type: ignore[arg-type]
        calls.write(a_note("plain", "changed", **place)),  # type: ignore[arg-type]
        calls.mutate_and_validate(a_note("plain", **place)),  # type: ignore[arg-type]
    ):
        await refused(call, Status.INVALID_ARGUMENT, "is marked for deletion, so nothing in it may be created or chan")
    await calls.write_status(id_of(plain), a_status(plain.generation))
    await calls.delete(id_of(held))
    await calls.write(a_note("held", metadata={FINALIZERS: ""}, **place))  # type: ignore[arg-type]
    await calls.delete(id_of(held))
    await calls.delete(id_of(plain))
    assert await calls.names(NOTE) == []


async def test_removing_a_finalizer_in_a_marked_unit_changes_nothing_else(calls: Calls) -> None:
    """In Consul, a write that removes a finalizer may also change other metadata despite the mark."""
    await calls.write(a_namespace())
    await calls.write(a_note(metadata={FINALIZERS: "a b", "colour": "red"}, **UP))  # type: ignore[arg-type]
    await calls.delete(an_id("up", NAMESPACE))
    unmarked = a_note(metadata={FINALIZERS: "a", "colour": "red"}, **UP)  # type: ignore[arg-type]
    await refused(calls.write(unmarked), Status.INVALID_ARGUMENT, "namespace 'up' is marked for deletion")
    await calls.delete(an_id(**UP))  # type: ignore[arg-type]
    painted = a_note(metadata={FINALIZERS: "a", "colour": "blue"}, **UP)  # type: ignore[arg-type]
    await refused(calls.write(painted), Status.INVALID_ARGUMENT, "changes metadata.colour")
    await calls.write(a_note(metadata={FINALIZERS: "a", "colour": "red"}, **UP))  # type: ignore[arg-type]


@pytest.mark.parametrize("gone", [False, True])
async def test_creation_after_a_concurrent_deletion_is_refused(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock, gone: bool
) -> None:
    """The commit of the creation verifies that the namespace exists and is not marked.

    So no resource is created after the last sweep. Consul checks before the commit.
    """
    await calls.write(a_namespace())

    async def overtake() -> None:
        marked = (await calls.delete(an_id("up", NAMESPACE))).resource
        assert marked is not None
        if gone:
            await calls.write(a_namespace(metadata={**marked.metadata, FINALIZERS: ""}))
            await calls.delete(an_id("up", NAMESPACE))

    interrupted.before_commit = [overtake]
    said = "namespace 'up' not found" if gone else "namespace 'up' is marked for deletion"
    await refused(racing.write(a_note(namespace="up")), Status.INVALID_ARGUMENT, said)
    assert await calls.names(NOTE) == []
    assert autojump_clock.current_time() < 0.2
