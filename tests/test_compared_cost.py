"""The cost of comparing the types of a program with those of a server."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from headway.engine import Comparison
from headway.protobuf import Description, compare_schemas, field, message
from headway.resource import ResourceType, describe, types_pb


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


def calls_to_compare(fields: int) -> int:
    """Return the number of Python calls that it takes to compare a message of this many fields with itself."""
    row = [types_pb.Field(name=f"f{n}", number=n, kind="string", oneof=f"o{n // 3}") for n in range(1, fields + 1)]
    schema = types_pb.ListResponse(types=[types_pb.ResourceType()], messages=[types_pb.Message(fields=row)])
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert compare_schemas(schema, schema) == []
    finally:
        sys.setprofile(before)
    return calls


def test_comparison_of_a_large_message_takes_a_time_in_proportion_to_its_fields() -> None:
    assert calls_to_compare(400) < 3 * calls_to_compare(200)
