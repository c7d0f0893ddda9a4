"""Describe types on the wire, and build types from such a description."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway._gen.headway.types import v1 as types_pb
from headway.errors import PayloadError
from headway.protobuf import Description, rebuild_messages
from headway.resource._ids import Scope, type_name
from headway.resource._registry import Registry
from headway.resource._types import ResourceType


def describe(types: Iterable[ResourceType[Any]], messages: Iterable[type[Any]] = ()) -> types_pb.ListResponse:
    """Return a description of the types, sorted by name, with every message and enum that they hold.

    It describes further ``messages`` as well, which are payloads of something else.
    """
    description = Description()
    for type in sorted(types, key=lambda each: each.name):
        described = types_pb.ResourceType(
            type=type.name.message(),
            scope=types_pb.Scope(type.scope.value),
            payload=type.type_url.rpartition("/")[2],
            message=description.message(type.payload),
            columns=[types_pb.Column(title=title, path=path) for title, path in type.columns.items()],
        )
        description.answer.types.append(described)
    for each in messages:
        description.message(each)
    return description.answer


def rebuild(description: types_pb.ListResponse) -> Registry:
    """Return a registry of the described types. Raises PayloadError if the description is invalid."""
    registry = Registry()
    try:
        classes = rebuild_messages(description)
        for each in description.types:
            name = type_name(each.type)
            # Built-in types are registered already, with their own classes.
            if name not in registry:
                columns = {column.title: column.path for column in each.columns}
                scope = Scope(int(each.scope))
                registry.register(ResourceType(*name, classes[each.message], scope=scope, columns=columns))
    except (LookupError, TypeError, ValueError) as error:
        raise PayloadError(f"the server's description of its types can't be read: {error}") from error
    return registry
