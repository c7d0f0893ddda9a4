"""The tenancy of an incomplete reference, by the referring resource and by the scope of the type."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import HeadwayError, InvalidArgument
from headway.protobuf import field, message
from headway.resource import Hooks, Reference, Registry, Resource, ResourceId, ResourceType, Scope, pb, tenancy_within
from headway.storage import Backend
from tests.helpers.calls import PLACES, Calls
from tests.helpers.declared import NOTE, PLANET, REGION, UNKNOWN, a_note, a_status, a_type, an_id, id_of
from tests.helpers.service_errors import status_of
from tests.helpers.verb_answers import Cell, Difference, expected_answer
from tests.service.conftest import TABLE_PLACES, reached

REFUSED = "an owner is an id, and every id is refused if it has units that its type doesn't have"


def cleared(answer: str) -> Cell:
    return Difference("INVALID_ARGUMENT", answer, REFUSED)


# Each row has the reference, the tenancy of the referring resource (empty for cluster scope), and the completed
# reference for each scope of the referenced type: first three for a plain reference, then three for an owner.
Row = tuple[str, str, tuple[Cell, ...], tuple[Cell, ...]]
ROWS: list[Row] = [
    (".", ".", (".", "default.", "default.default"), (".", "default.", "default.default")),
    ("foo.bar", ".", (".", "foo.", "foo.bar"), (cleared("."), cleared("foo."), "foo.bar")),
    (".", "foo.bar", (".", "foo.", "foo.bar"), (".", "foo.", "foo.bar")),
    ("zim.", "foo.bar", (".", "zim.", "zim.default"), (cleared("."), "zim.", "zim.default")),
    (".gir", "foo.bar", (".", "foo.", "foo.gir"), (cleared("."), cleared("foo."), "foo.gir")),
    ("foo.bar", "zim.gir", (".", "foo.", "foo.bar"), (cleared("."), cleared("foo."), "foo.bar")),
    # A partition-scoped parent has no namespace.
    (".", "foo.", (".", "foo.", "foo.default"), (".", "foo.", "foo.default")),
    # The reference names the parent's own partition.
    ("foo.", "foo.bar", (".", "foo.", "foo.bar"), (cleared("."), "foo.", "foo.bar")),
]
SCOPED: tuple[ResourceType[Any], ...] = (PLANET, REGION, NOTE)


def rows(column: int) -> list[Any]:
    """Return a test's parameters: reference, parent, referenced type and cell."""
    return [
        pytest.param(row[0], row[1], type, cell, id=f"{row[0]} in {row[1]}, {type.scope.name.lower()} scope")
        for row in ROWS
        for type, cell in zip(SCOPED, row[2 + column], strict=True)
    ]


def units(text: str) -> tuple[str, str]:
    partition, _, namespace = text.partition(".")
    return partition, namespace


def said(tenancy: pb.Tenancy | None) -> str:
    assert tenancy is not None
    return f"{tenancy.partition}.{tenancy.namespace}"


def a_tenancy(text: str) -> pb.Tenancy | None:
    partition, namespace = units(text)
    return pb.Tenancy(partition=partition, namespace=namespace) if partition or namespace else None


def referring(parent: str, **rest: Any) -> pb.Resource:
    """Return a resource in a tenancy, of the type with that scope."""
    partition, namespace = units(parent)
    type = NOTE if namespace else REGION if partition else PLANET
    return a_note("parent", type=type, partition=partition, namespace=namespace, **rest)


@pytest.mark.parametrize(("reference", "parent", "type", "cell"), rows(0))
def test_reference_is_completed(reference: str, parent: str, type: ResourceType[Any], cell: Cell) -> None:
    """The reference is completed in place, by its type. The referring resource is not changed."""
    assert ".".join(tenancy_within(type.scope, units(reference), units(parent))) == expected_answer(cell)
    made = pb.Reference(name="one", tenancy=a_tenancy(reference))
    within = ResourceId(NOTE.name, "parent", *units(parent)) if parent != "." else None
    type.complete(made, within)
    assert (made.type, said(made.tenancy)) == (type.name.message(), expected_answer(cell))


def test_reference_to_another_type_is_refused() -> None:
    """Another kind and invalid names are refused. Another version of the kind is kept."""
    with pytest.raises(InvalidArgument, match=r"reference\.type tests\.v1\.Region must be tests\.v1\.Note"):
        NOTE.complete(pb.Reference(type=a_type(REGION), name="one"))
    with pytest.raises(InvalidArgument, match=r"reference to tests\.v1\.Note: name 'One' is not a valid name"):
        NOTE.complete(pb.Reference(name="One"))
    with pytest.raises(InvalidArgument, match="partition 'Up' is not a valid name"):
        NOTE.complete(pb.Reference(name="one", tenancy=pb.Tenancy(partition="Up")))
    other = pb.Reference(type=a_type(group_version="v7"), name="one")
    NOTE.complete(other)
    assert other.type == a_type(group_version="v7")


def test_tombstone_reference_is_kept_as_given() -> None:
    """Tombstones have no scope of their own."""
    assert tenancy_within(Scope.UNDEFINED, ("", ""), ("foo", "bar")) == ("", "")


@pytest.mark.parametrize("anywhere", TABLE_PLACES, indirect=True)
@pytest.mark.parametrize(("reference", "parent", "type", "cell"), rows(0))
async def test_reference_in_a_condition_is_stored_complete(
    anywhere: Calls, reference: str, parent: str, type: ResourceType[Any], cell: Cell
) -> None:
    """The referenced resource need not exist."""
    if parent != ".":
        await anywhere.make_room((*units(parent),))
    stored = await anywhere.stored(referring(parent))
    status = a_status(stored.generation)
    status.conditions[0].resource = pb.Reference(type=a_type(type), name="one", tenancy=a_tenancy(reference))
    for _ in range(2):
        # Written again as before, the status is the same and makes no commit.
        written = (await anywhere.write_status(id_of(stored), status)).resource
        assert written is not None
        (condition,) = written.status["mine"].conditions
        assert condition.resource is not None
        assert said(condition.resource.tenancy) == expected_answer(cell)
        assert written.version == str(anywhere.revision)
        status.conditions[0].resource = pb.Reference(type=a_type(type), name="one", tenancy=a_tenancy(reference))


async def test_reference_to_an_unregistered_type_is_unchanged(anywhere: Calls) -> None:
    """The service does not know the scope of the type."""
    stored = await anywhere.stored(a_note())
    status = a_status(stored.generation)
    status.conditions[0].resource = pb.Reference(type=a_type(UNKNOWN), name="one", tenancy=pb.Tenancy(partition="far"))
    written = (await anywhere.write_status(id_of(stored), status)).resource
    assert written is not None
    assert said(written.status["mine"].conditions[0].resource.tenancy) == "far."  # type: ignore[union-attr]


@pytest.mark.parametrize("anywhere", TABLE_PLACES, indirect=True)
@pytest.mark.parametrize(("reference", "parent", "type", "cell"), rows(1))
async def test_owner_is_looked_up_in_the_completed_tenancy(
    anywhere: Calls, reference: str, parent: str, type: ResourceType[Any], cell: Cell
) -> None:
    """The tenancy of the child completes the reference. A later write with the same reference changes nothing."""
    wanted = expected_answer(cell)
    meant = wanted if "." in wanted else expected_answer(cell.consul) if isinstance(cell, Difference) else ""
    await anywhere.make_room(*{units(place) for place in (parent, meant) if units(place)[0]})
    owner_id = pb.Id(name="boss", type=a_type(type), tenancy=a_tenancy(meant))
    owner = await anywhere.stored(pb.Resource(id=owner_id))
    owned = referring(parent, owner=pb.Id(name="boss", type=a_type(type), tenancy=a_tenancy(reference)))
    try:
        for _ in range(2):
            kept = await anywhere.stored(owned)
            assert kept.owner == owner.id
            owned.owner = pb.Id(name="boss", type=a_type(type), tenancy=a_tenancy(reference))
        answer = said(kept.owner.tenancy if kept.owner is not None else None)
    except HeadwayError as error:
        answer = status_of(error).name
    assert answer == wanted


async def test_owner_of_the_same_name_in_another_namespace_does_not_match(anywhere: Calls) -> None:
    """The default namespace completes only references from within it."""
    await anywhere.make_room(("default", "up"))
    await anywhere.write(a_note("boss"))
    with pytest.raises(HeadwayError, match=r"resource\.owner: Note up/boss not found"):
        await anywhere.write(a_note("child", namespace="up", owner=an_id("boss")))


@message
class Pointer:
    target: Reference | None = field(1)


def _complete(resource: Resource[Pointer]) -> None:
    if resource.data.target is not None:
        NOTE.complete(resource.data.target, resource.id)


POINTER = ResourceType("tests", "v1", "Pointer", Pointer, hooks=Hooks(mutate=_complete))


@pytest.mark.parametrize(("backend", "how"), PLACES, indirect=["backend"])
async def test_reference_in_a_payload_is_completed_by_a_mutate_hook(backend: Backend, how: str) -> None:
    """The hook uses the tenancy of its resource, which the service has already completed."""
    types = Registry()
    types.register(POINTER)
    async with reached(how, backend, types=types) as calls:
        await calls.make_room(("default", "up"))
        for namespace, expected in (("up", "default.up"), ("", "default.default")):
            pointer = POINTER.new("one", Pointer(target=Reference(name="two")), namespace=namespace)
            target = POINTER.view(await calls.stored(pointer.message())).data.target
            assert target is not None
            assert (target.type, said(target.tenancy)) == (a_type(), expected)
