"""Types of every scope, and functions that return their resources and ids as messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.protobuf import encode, field, message
from headway.resource import AnyMessage, Hooks, Registry, Resource, ResourceType, Scope, pb

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
"""A generation that no resource has."""


@message(name="tests.Note")
class Note:
    text: str = field(1)
    lines: list[str] = field(2)
    counts: dict[str, int] = field(3)


@message(name="tests.Memo")
class Memo:
    text: str = field(1)
    urgent: bool = field(2)


def _fill_in(resource: Resource[Note]) -> None:
    if resource.data.text == "crash":
        raise RuntimeError("the hook is broken")
    resource.data.text = resource.data.text or "untitled"


def _check(resource: Resource[Note]) -> None:
    if resource.data.text == "bad":
        raise ValueError("data.text 'bad' must be something good")
    resource.data.text = resource.metadata["changed"] = "what validate changes is not stored"


NOTE = ResourceType("tests", "v1", "Note", Note)
NOTE_V2 = ResourceType("tests", "v2", "Note", Memo)
CHILD = ResourceType("tests", "v1", "Child", Note)
HOOKED = ResourceType("tests", "v1", "Hooked", Note, hooks=Hooks(mutate=_fill_in, validate=_check))
REGION = ResourceType("tests", "v1", "Region", Note, scope=Scope.PARTITION)
PLANET = ResourceType("tests", "v1", "Planet", Note, scope=Scope.CLUSTER)
UNKNOWN = ResourceType("tests", "v1", "Nothing", Note)
"""A declared type that is not in the registry."""

TYPES: list[ResourceType[Any]] = [NOTE, NOTE_V2, CHILD, HOOKED, REGION, PLANET]


def registry() -> Registry:
    known = Registry()
    for type in TYPES:
        known.register(type)
    return known


def a_type(type: ResourceType[Any] = NOTE, **changes: str) -> pb.Type:
    parts = {"group": type.name.group, "group_version": type.name.version, "kind": type.name.kind, **changes}
    return pb.Type(**parts)


def an_id(
    name: str = "one",
    type: ResourceType[Any] = NOTE,
    *,
    partition: str = "",
    namespace: str = "",
    uid: str = "",
) -> pb.Id:
    """Return an id. Tenancy units that are not given stay empty, for the service to fill in."""
    tenancy = pb.Tenancy(partition=partition, namespace=namespace) if partition or namespace else None
    return pb.Id(uid=uid, name=name, type=a_type(type), tenancy=tenancy)


def a_note(
    name: str = "one",
    text: str = "",
    type: ResourceType[Any] = NOTE,
    *,
    partition: str = "",
    namespace: str = "",
    uid: str = "",
    version: str = "",
    metadata: Mapping[str, str] | None = None,
    owner: pb.Id | None = None,
    status: dict[str, pb.Status] | None = None,
) -> pb.Resource:
    """Return a resource to write."""
    return pb.Resource(
        id=an_id(name, type, partition=partition, namespace=namespace, uid=uid),
        owner=owner,
        version=version,
        metadata=dict(metadata or {}),
        status=status or {},
        data=AnyMessage(type_url=type.type_url, value=encode(type.payload(text=text))),
    )


def a_status(generation: str = ULID, *types: str, state: pb.ConditionState = pb.ConditionState.TRUE) -> pb.Status:
    return pb.Status(
        observed_generation=generation,
        conditions=[pb.Condition(type=each, state=state) for each in types or ("ready",)],
    )


def text_of(resource: pb.Resource | None) -> str:
    assert resource is not None
    return str(NOTE.view(resource).data.text)


def id_of(resource: pb.Resource | None) -> pb.Id:
    """Return the complete id of a stored resource."""
    assert resource is not None
    assert resource.id is not None
    assert resource.id.tenancy is not None
    return resource.id


def uid_of(resource: pb.Resource | None) -> str:
    return id_of(resource).uid
