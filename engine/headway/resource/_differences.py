"""Compare a program's types with a description that another program has sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway._gen.headway.types import v1 as types_pb
from headway.errors import PayloadError, SchemaProblem
from headway.protobuf import compare_schemas
from headway.resource._builtin_types import is_builtin
from headway.resource._description import described
from headway.resource._ids import type_name
from headway.resource._types import ResourceType


def differences(
    found: types_pb.ListResponse, types: Iterable[ResourceType[Any]], other: str = "server"
) -> list[SchemaProblem]:
    """Return the differences through which a program and another with this description would misread each other.

    Types that only one of them has are not compared. ``other`` is what the texts call the other program.

    Raises PayloadError for an invalid description.
    """
    theirs = {type_name(each.type): each for each in found.types}
    problems: list[SchemaProblem] = []
    try:
        for type in types:
            if type.name in theirs and not is_builtin(type):
                their = types_pb.ListResponse(types=[theirs[type.name]], messages=found.messages, enums=found.enums)
                problems += compare_schemas(their, described(type), both_ways=True, other=other)
    except (LookupError, ValueError) as error:
        raise PayloadError(f"the {other}'s description of its types can't be read: {error}") from error
    return problems
