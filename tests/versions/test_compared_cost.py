"""The cost of comparing the types of a program with those of a server."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from headway.protobuf import Description, field, message
from headway.resource import ResourceType, describe, types_pb
from headway.versions import MOST_PROBLEMS, Comparison, Schema, compare_schemas


@message
class Team:
    name: str = field(1)


TEAM: ResourceType[Team] = ResourceType("staff", "v1", "Team", Team)


class Answering:
    """A connection to a server of these types."""

    def __init__(self) -> None:
        self.answer = describe([TEAM])

    async def unary(self, *_: object, **__: object) -> types_pb.ListResponse:
        return self.answer


async def test_types_are_described_once_for_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process opens many connections after a restart of its server, and each comparison holds up its event loop."""
    comparison = Comparison([TEAM])
    first, second = (cast("Any", Answering()) for _ in range(2))
    await comparison(first).admit(None, None)

    def describes_again(*_: object) -> int:
        raise AssertionError("the type was described again")

    monkeypatch.setattr(Description, "message", describes_again)
    connection = comparison(second)
    await connection.admit(None, None)
    assert connection.admits(None)


def calls_to_compare(stored: Schema, declared: Schema) -> int:
    """Return the number of calls, also of functions in C, that it takes to compare two schemas."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        compare_schemas(stored, declared, both_ways=True)
    finally:
        sys.setprofile(before)
    return calls


def of_fields(number: int, oneof: str) -> Schema:
    row = [types_pb.Field(name=f"f{n}", number=n, kind="string", oneof=oneof) for n in range(1, number + 1)]
    return types_pb.ListResponse(types=[types_pb.ResourceType()], messages=[types_pb.Message(fields=row)])


def of_messages(number: int, values: int) -> Schema:
    """Return a chain of messages, each of which holds the same enum."""
    enum = types_pb.Enum(name="Color", values=[types_pb.EnumValue(name=f"v{n}", number=n) for n in range(values)])
    rows = [
        [
            types_pb.Field(name="next", number=1, kind="message", held=(place + 1) % number),
            types_pb.Field(name="color", number=2, kind="enum"),
        ]
        for place in range(number)
    ]
    messages = [types_pb.Message(fields=row) for row in rows]
    return types_pb.ListResponse(types=[types_pb.ResourceType()], messages=messages, enums=[enum])


def test_comparison_of_a_large_message_takes_a_time_in_proportion_to_its_fields() -> None:
    small, large = (calls_to_compare(of_fields(n, "one"), of_fields(n, "one")) for n in (200, 400))
    assert large < 3 * small


def test_differences_without_number_are_not_all_looked_for() -> None:
    """Each two fields of a oneof exclude each other. The other schema has none."""
    small, large = (calls_to_compare(of_fields(n, ""), of_fields(n, "one")) for n in (200, 400))
    assert large < 3 * small
    assert len(compare_schemas(of_fields(400, ""), of_fields(400, "one"))) == MOST_PROBLEMS


def test_enum_of_many_messages_is_compared_once() -> None:
    few, many = (calls_to_compare(of_messages(30, n), of_messages(31, n)) for n in (100, 200))
    # Each pair of messages would compare every value again.
    assert many - few < 100 * 30
