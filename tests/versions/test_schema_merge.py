"""The record that a store makes of the schemas of several programs."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from headway.protobuf import field, message
from headway.resource import ResourceType, describe, types_pb
from headway.versions import compare_schemas, merge_schemas

Schema = types_pb.ListResponse


def schema(payload: type[Any]) -> Schema:
    return describe([ResourceType("staff", "v1", "Team", payload)])


def of(**fields: Any) -> type[Any]:
    """Return a message with fields of these annotations, numbered from 1, or of pairs of an annotation and a field."""

    class Team:
        pass

    for number, (name, given) in enumerate(fields.items(), 1):
        annotation, marker = given if isinstance(given, tuple) else (given, field(number))
        Team.__annotations__[name] = annotation
        setattr(Team, name, marker)
    return message(Team)


def record(*programs: type[Any]) -> Schema:
    """Return the record of programs that open a store one after the other."""
    found = schema(programs[0])
    for each in programs[1:]:
        assert problems(found, each) == []
        found = merge_schemas(found, schema(each))
    return found


def problems(stored: Schema, declared: type[Any]) -> list[str]:
    return [f"{each.field}: {each.problem}" for each in compare_schemas(stored, schema(declared))]


def rows(found: Schema) -> list[tuple[str, list[str]]]:
    return [(each.full_name.rpartition(".")[2], [field.name for field in each.fields]) for each in found.messages]


@message
class Place:
    name: str = field(1)


@message
class Home:
    name: str = field(1)
    floor: int = field(3, kind="sint64")


@message
class Room:
    name: str = field(1)
    floor: int = field(3)


def test_places_that_shared_a_class_are_recorded_apart() -> None:
    """Each place of a split class has its own fields, also if these have one number and different kinds."""
    stored = record(of(home=Place | None, rooms=list[Place]), of(home=Home | None, rooms=list[Room]))
    assert problems(stored, of(home=Home | None, rooms=list[Room], more=str)) == []
    assert problems(stored, of(home=Room | None, rooms=list[Room])) == [
        "home.floor: expected sint64 as stored, got int64"
    ]
    assert rows(stored) == [("Team", ["home", "rooms"]), ("Home", ["name", "floor"]), ("Room", ["name", "floor"])]


def test_place_that_keeps_its_class_gets_no_fields_of_another() -> None:
    split = of(home=Place | None, rooms=list[Room])
    stored = record(of(home=Place | None, rooms=list[Place]), split)
    assert stored == merge_schemas(stored, schema(split))
    assert problems(stored, of(home=Place | None, rooms=list[Room], more=str)) == []


def test_classes_that_become_one_are_one_message_of_the_record() -> None:
    """If one place has a removed field, the record has two messages, and these have different names."""
    assert rows(record(of(home=Place | None, rooms=list[Room]), of(home=Room | None, rooms=list[Room]))) == [
        ("Team", ["home", "rooms"]),
        ("Room", ["name", "floor"]),
    ]

    @message(reserved={3: "floor"})
    class Flat:
        name: str = field(1)

    assert rows(record(of(home=Place | None, rooms=list[Room]), of(home=Flat | None, rooms=list[Flat]))) == [
        ("Team", ["home", "rooms"]),
        ("Flat", ["name"]),
        ("Flat2", ["name", "floor"]),
    ]


def test_messages_that_only_differ_in_what_they_hold_stay_apart() -> None:
    """Two places have the same class, but a message in it was stored with different fields."""

    @message
    class First:
        inner: Home | None = field(1)

    @message
    class Second:
        inner: Room | None = field(1)

    @message(reserved={3: "floor"})
    class Bare:
        name: str = field(1)

    @message
    class Both:
        inner: Bare | None = field(1)

    stored = record(of(one=First | None, two=Second | None), of(one=Both | None, two=Both | None))
    assert problems(stored, of(one=First | None, two=Second | None)) == []
    assert problems(stored, of(one=Second | None, two=Second | None)) == [
        "one.inner.floor: expected sint64 as stored, got int64"
    ]


def test_recursive_message_is_recorded_by_place() -> None:
    """The outermost one can get a class of its own. The inner ones share one message."""

    @message
    class Node:
        name: str = field(1)
        nodes: list[Node] = field(2)

    @message
    class Top:
        name: str = field(1)
        nodes: list[Node] = field(2)
        size: int = field(3)

    stored = record(of(root=Node | None), of(root=Top | None))
    assert rows(stored) == [("Team", ["root"]), ("Top", ["name", "nodes", "size"]), ("Node", ["name", "nodes"])]
    assert problems(stored, of(root=Top | None, more=str)) == []
    assert problems(stored, of(root=Node | None)) == ["root.size: expected 'size' as stored, got no such field"]


def cycle(length: int, last: str = "op") -> Schema:
    """Return the schema of messages that contain each other in turn. Only the last one has another field."""
    messages = [
        types_pb.Message(
            full_name=f"staff.v1.C{number}",
            fields=[
                types_pb.Field(name=last if number == length - 1 else "op", number=1, kind="string"),
                types_pb.Field(
                    name="child", number=2, kind="message", held=(number + 1) % length, shape=types_pb.Shape.OPTIONAL
                ),
            ],
        )
        for number in range(length)
    ]
    return Schema(types=[types_pb.ResourceType(scope=types_pb.Scope.NAMESPACE)], messages=messages)


def test_cycles_of_messages_with_different_lengths_are_compared_at_each_place() -> None:
    """The places of the two repeat only after the product of the lengths, deeper than Python's recursion goes."""
    stored, declared = cycle(23), cycle(24)
    assert compare_schemas(stored, declared) == []
    assert len(merge_schemas(stored, declared).messages) == 24
    found = compare_schemas(cycle(40), cycle(41, "code"))
    assert len(found) == 40
    assert found[0].field == "child." * 40 + "code"


class Color(enum.IntEnum):
    NONE = 0
    RED = 1


class Swapped(enum.IntEnum):
    NONE = 0
    GREEN = 1


def test_enum_that_became_an_integer_keeps_its_numbers() -> None:
    """The integer may become an enum again, but each number means the same as before."""
    number = of(value=(int, field(1, kind="int32")))
    for stored in (record(of(value=Color), number), record(number, of(value=Color), number)):
        assert problems(stored, of(value=Swapped)) == ["value: expected RED for 1 of Swapped as stored, got GREEN"]
        for each in (Color, int):
            assert problems(stored, of(value=each)) == []
    assert problems(record(of(value=Color), number, of(value=int)), of(value=Color)) == [
        "value: expected int64 as stored, got enum"
    ]


def test_fields_of_a_oneof_still_exclude_each_other_after_one_of_them_was_removed() -> None:
    email, phone = (str | None, field(1, oneof="way")), (str | None, field(2, oneof="way"))

    @message(reserved={2: "phone"})
    class Alone:
        email: str | None = field(1)

    stored = record(of(email=email, phone=phone), Alone)
    assert problems(stored, of(email=email, phone=phone)) == []
    assert problems(stored, of(email=str | None, phone=str | None)) == [
        "email: expected it to exclude phone as stored, got two fields that can both be set"
    ]


def test_oneof_can_take_the_name_of_one_whose_fields_were_removed() -> None:
    """The fields of the two stay independent. A oneof that is renamed is the same one."""
    email, phone = (str | None, field(1, oneof="way")), (str | None, field(2, oneof="way"))
    road, rail = (str | None, field(3, oneof="way")), (str | None, field(4, oneof="way"))

    @message(reserved={1: "email", 2: "phone"})
    class Second:
        road: str | None = field(3, oneof="way")
        rail: str | None = field(4, oneof="way")

    stored = record(of(email=email, phone=phone), Second)
    renamed = ((str | None, field(number, oneof="contact")) for number in (1, 2))
    assert problems(stored, of(email=next(renamed), phone=next(renamed), road=road, rail=rail)) == []
    assert problems(stored, of(email=email, phone=phone, road=road, rail=rail)) == [
        f"{one}: expected it to be independent of {other} as stored, got both in the oneof way"
        for one in ("email", "phone")
        for other in ("road", "rail")
    ]


@pytest.mark.parametrize("kept", ["ghost", "spirit"])
def test_reserved_number_keeps_its_first_name(kept: str) -> None:
    """A later program cannot give the number to another field by reserving it under that field's name."""

    @message(reserved={2: "ghost"})
    class First:
        name: str = field(1)

    @message(reserved={2: "spirit"})
    class Second:
        name: str = field(1)

    found = problems(record(First, Second), of(name=str, **{kept: str}))
    right = "spirit: expected no field, since 'ghost' of this number was removed"
    assert found == ([] if kept == "ghost" else [right])
