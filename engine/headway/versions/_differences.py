"""Compare a program's types and topics with a description that another program has sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway._gen.headway.types import v1 as types_pb
from headway.errors import PayloadError, SchemaProblem
from headway.resource import DescribedTopic, ResourceType, describe, described, is_builtin, type_name
from headway.versions._schema import compare_schemas


def differences(
    found: types_pb.ListResponse,
    types: Iterable[ResourceType[Any]],
    topics: Iterable[DescribedTopic] = (),
    *,
    other: str = "server",
) -> list[SchemaProblem]:
    """Return the differences through which a program and another with this description would misread each other.

    Types and topics that only one of them has are not compared. ``other`` is what the texts call the other program.

    Raises PayloadError for an invalid description.
    """
    their_types = {type_name(each.type): each for each in found.types}
    their_topics = {each.name: each for each in found.topics}
    problems: list[SchemaProblem] = []
    their = types_pb.ListResponse(messages=found.messages, enums=found.enums)
    try:
        for type in types:
            if type.name in their_types and not is_builtin(type):
                their.types = [their_types[type.name]]
                problems += compare_schemas(their, described(type), both_ways=True, other=other)
        for topic in topics:
            if topic.name in their_topics:
                their.topics = [their_topics[topic.name]]
                problems += compare_schemas(their, describe([], [topic]), both_ways=True, other=other)
    except (LookupError, ValueError) as error:
        raise PayloadError(f"the {other}'s description of its types can't be read: {error}") from error
    return problems
