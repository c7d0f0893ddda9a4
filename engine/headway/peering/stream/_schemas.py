"""The schemas of exported types: described by the exporting side, and compared by the importing side. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headway._gen.headway.peering import v1 as wire
from headway.base import plain
from headway.errors import PayloadError
from headway.peering.stream._rules import Exported, PeerLimits
from headway.protobuf import decode, encode
from headway.resource import (
    Registry,
    ResourceType,
    TypeName,
    described,
    is_builtin,
    type_name,
    types_pb,
)
from headway.versions import differences

_SHOWN = 3
_LONGEST = 1000
"""The numbers of differences and of characters in the reason why a type is refused."""


class Schemas:
    """The schemas of a program's types."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._described: dict[TypeName, bytes] = {}
        # The last description that was compared with each type, and the answer. A peer may send it very often.
        self._compared: dict[TypeName, tuple[bytes, str | None]] = {}

    def describe(self, exports: Iterable[Exported], limits: PeerLimits) -> list[wire.TypeSchema]:
        """Return the schemas of the exported types, without those that are too large for a peer."""
        found: list[wire.TypeSchema] = []
        room = limits.schemas_size
        for name in sorted({each.type for each in exports}):
            type = self._registry.find(name)
            if type is None or is_builtin(type):
                continue
            description = self._description(type)
            if len(description) <= min(room, limits.schema_size):
                room -= len(description)
                found.append(wire.TypeSchema(type=name.message(), description=description))
        return found

    def problem(self, name: TypeName, description: bytes) -> str | None:
        """Return why resources of a type would be misread here, by a peer's description; None if they would not."""
        type = self._registry.find(name)
        if type is None or description == self._description(type):
            return None
        compared, answer = self._compared.get(name, (None, None))
        if compared != description:
            answer = self._differences(name, type, description)
            self._compared[name] = description, answer
        return answer

    def _differences(self, name: TypeName, type: ResourceType[Any], description: bytes) -> str | None:
        try:
            found = decode(types_pb.ListResponse, description)
            if [type_name(each.type) for each in found.types] != [name]:
                raise PayloadError(f"expected a description of {name} alone, got {len(found.types)} types")
            problems = differences(found, [type], other="exporting side")
        except PayloadError as error:
            return plain(f"its schema cannot be compared: {error}")[:_LONGEST]
        if not problems:
            return None
        text = "; ".join(map(str, problems[:_SHOWN])) + ("; and more differences" if len(problems) > _SHOWN else "")
        return plain(f"its schema differs here: {text}")[:_LONGEST]

    def _description(self, type: ResourceType[Any]) -> bytes:
        # A program's types stay the same while it runs.
        found = self._described.get(type.name)
        if found is None:
            found = self._described[type.name] = encode(described(type))
        return found


def schema_problems(
    exports: Iterable[Exported],
    sent: Iterable[wire.TypeSchema],
    compare: Callable[[TypeName, bytes], str | None],
    limits: PeerLimits,
) -> dict[TypeName, str]:
    """Return why types of these exports are refused, by the schemas that a peer has sent of them."""
    schemas = {type_name(each.type): each.description for each in sent}
    problems: dict[TypeName, str] = {}
    room = limits.schemas_size
    for type in sorted({each.type for each in exports} & schemas.keys()):
        size = len(schemas[type])
        if size > limits.schema_size:
            problems[type] = f"its schema has {size} bytes, and at most {limits.schema_size} are accepted"
            continue
        if size > room:
            problems[type] = f"the schemas of all exports have more than {limits.schemas_size} bytes"
            continue
        room -= size
        why = compare(type, schemas[type])
        if why is not None:
            problems[type] = why
    return problems
