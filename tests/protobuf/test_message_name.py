"""The protobuf names of messages: derived from their types, never from their classes or modules."""

from __future__ import annotations

from typing import Any

import pytest

from headway import App
from headway.errors import DeclarationError
from headway.protobuf import field, message, module_name
from headway.resource import AnyMessage, ResourceType, describe, pb


def names(*types: ResourceType[Any]) -> list[str]:
    return [each.full_name for each in describe(types).messages]


def test_declared_message_is_named_after_its_type() -> None:
    """The names of its class and module don't matter, because both can change."""

    @message
    class Staff:
        name: str = field(1)

    team = ResourceType("staff", "v1", "Team", Staff)
    assert team.type_url == "type.googleapis.com/staff.v1.Team"
    assert names(team) == ["staff.v1.Team"]
    assert ResourceType("staff", "v1", "Team", Staff).type_url == team.type_url
    assert module_name(Staff) == f"{__name__}.test_declared_message_is_named_after_its_type.Staff"


def test_class_of_two_types_needs_a_name() -> None:
    """The declaration of the second type fails, and the error shows the right form."""

    @message
    class Shared:
        name: str = field(1)

    ResourceType("staff", "v1", "Team", Shared)
    with pytest.raises(DeclarationError) as caught:
        ResourceType("staff", "v2", "Team", Shared)
    assert str(caught.value) == (
        "type staff.v2.Team: payload Shared is already named staff.v1.Team after another type. "
        "Give the class a name of its own, for both types: @headway.message(name='staff.v2.Team')"
    )

    @message(name="staff.Named")
    class Named:
        name: str = field(1)

    urls = {ResourceType("staff", version, "Other", Named).type_url for version in ("v1", "v2")}
    assert urls == {"type.googleapis.com/staff.Named"}


def test_refused_declaration_does_not_name_the_class() -> None:
    """The class can then be declared under another name, as the error advises."""

    @message
    class Taken:
        name: str = field(1)

    @message
    class Free:
        name: str = field(1)

    app = App("staff")
    app.type("staff", "v1", "Team", Taken)
    app.topic("teams", snapshot=lambda _: {})
    with pytest.raises(DeclarationError, match="is registered already"):
        app.type("staff", "v1", "Team", Free)
    with pytest.raises(DeclarationError, match="topic 'teams' already exists"):
        app.topic("teams", Free, snapshot=lambda _: {})
    with pytest.raises(DeclarationError, match="group 'internal' is reserved"):
        app.type("internal", "v1", "Team", Free)
    assert app.type("staff", "v1", "Other", Free).type_url == "type.googleapis.com/staff.v1.Other"
    # A class that had its name before keeps it.
    with pytest.raises(DeclarationError, match="is registered already"):
        app.type("staff", "v1", "Team", Taken)
    with pytest.raises(DeclarationError, match="already named staff"):
        app.type("staff", "v2", "Other", Taken)


def test_nested_message_is_named_after_its_parent() -> None:
    """Two classes with the same name get different names. A class with an explicit name keeps it."""

    def declared() -> type[Any]:
        @message
        class Place:
            city: str = field(1)

        return Place

    first, second = declared(), declared()

    @message(name="geo.Region")
    class Region:
        first: first = field(1)  # type: ignore[valid-type]

    @message
    class Office:
        places: list[first] = field(1)  # type: ignore[valid-type]
        others: dict[str, second] = field(2)  # type: ignore[valid-type]
        region: Region = field(3)

    office = ResourceType("staff", "v1", "Office", Office)
    assert names(office) == ["staff.v1.Office", "staff.v1.Office.Place", "staff.v1.Office.Place2", "geo.Region"]


def test_generated_messages_keep_their_names() -> None:
    """Their names are the names in their .proto files."""
    for cls, name in [
        (pb.Fence, "headway.resource.v1.Fence"),
        (pb.Tombstone, "headway.resource.v1.Tombstone"),
        (pb.Id, "headway.resource.v1.ID"),
        (pb.WatchEventUpsert, "headway.resource.v1.WatchEvent.Upsert"),
        (AnyMessage, "google.protobuf.Any"),
    ]:
        assert names(ResourceType("staff", "v1", "Team", cls))[0] == name
