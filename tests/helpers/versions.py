"""A kind in three versions, with converters between them, and functions that write and read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from headway.protobuf import encode, field, message
from headway.resource import AnyMessage, Registry, ResourceType, pb
from headway.versions import add_converter, store_as
from tests.helpers.declared import registry


@message(name="tests.v1.Roster")
class Roster:
    names: list[str] = field(1)
    color: str = field(2)


@message
class Member:
    name: str = field(1)
    role: str = field(2)


@message(name="tests.v2.Crew")
class Crew:
    members: list[Member] = field(1)
    color: str = field(2)
    room: str = field(3)


@message
class Tint:
    name: str = field(1)
    shade: int = field(2)


@message
class Band:
    members: list[Member] = field(1)
    tint: Tint = field(2)
    room: str = field(3)
    notes: dict[str, str] = field(4)


V1 = ResourceType("tests", "v1", "Team", Roster)
V2 = ResourceType("tests", "v2", "Team", Crew)
V3 = ResourceType("tests", "v3", "Team", Band)
ALONE: ResourceType[Roster] = ResourceType("tests", "v9", "Team", Roster)
"""A version without a converter."""


def up(old: Roster) -> Crew:
    if old.color == "raise":
        raise KeyError("no such color")
    if old.color == "garbage":
        return cast("Crew", None)
    return Crew(members=[Member(name=name) for name in old.names], color=old.color)


def down(new: Crew) -> Roster:
    if new.color == "raise down":
        raise KeyError("no such color")
    return Roster(names=[member.name for member in new.members], color=new.color)


def up_again(old: Crew) -> Band:
    return Band(members=old.members, tint=Tint(name=old.color), room=old.room)


def down_again(new: Band) -> Crew:
    return Crew(members=new.members, color=new.tint.name, room=new.room)


def versions(storage: ResourceType[Any] | None = None, newest: ResourceType[Any] = V3) -> Registry:
    """Return a registry with the types of other tests, and with the versions up to ``newest`` and their converters."""
    known = registry()
    for type in (V1, V2, V3, ALONE):
        known.register(type)
    add_converter(known, V1, V2, up, down)
    if newest is V3:
        add_converter(known, V2, V3, up_again, down_again)
    if storage is not None:
        store_as(known, storage)
    return known


def without_converters() -> Registry:
    """Return a registry with the same types, as a program without converters declares them."""
    known = registry()
    for type in (V1, V2, V3, ALONE):
        known.register(type)
    return known


def a_team(
    type: ResourceType[Any],
    payload: Any,
    name: str = "one",
    *,
    metadata: Mapping[str, str] | None = None,
    version: str = "",
    owner: pb.Id | None = None,
) -> pb.Resource:
    """Return a team to write."""
    name_of = type.name
    return pb.Resource(
        id=pb.Id(name=name, type=pb.Type(group=name_of.group, group_version=name_of.version, kind=name_of.kind)),
        metadata=dict(metadata or {}),
        version=version,
        owner=owner,
        data=AnyMessage(type_url=type.type_url, value=encode(payload)),
    )


def roster(*names: str, color: str = "") -> Roster:
    return Roster(names=list(names), color=color)


def crew(*members: tuple[str, str], color: str = "", room: str = "") -> Crew:
    return Crew(members=[Member(name=name, role=role) for name, role in members], color=color, room=room)


def data_of(resource: pb.Resource | None, type: ResourceType[Any]) -> Any:
    """Return the payload of a resource. Fail if the resource is not of this type."""
    assert resource is not None
    assert resource.id is not None
    assert resource.id.type == type.message
    return type.view(resource).data
