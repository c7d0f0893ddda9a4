"""Describe types on the wire, and build types from such a description."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from typing_extensions import override

from headway._gen.headway.types import v1 as types_pb
from headway.errors import PayloadError
from headway.protobuf import Description, rebuild_messages
from headway.resource._ids import Scope, type_name
from headway.resource._registry import Registry
from headway.resource._types import ResourceType

_DESCRIBED: WeakKeyDictionary[ResourceType[Any], types_pb.ListResponse] = WeakKeyDictionary()


class DescribedTopic(NamedTuple):
    """A topic of a program, as clients need to know it.

    Attributes:
        wildcard: True if a subscription may ask for every subject.
        payload_name: the full name of the message of its events.
        payload: the class of that message; None if the events are bytes.
    """

    name: str
    wildcard: bool
    payload_name: str
    payload: type[Any] | None


class _ForeignType(ResourceType[Any]):
    """A described type of another system. Only its server knows the rules for its names."""

    __slots__ = ()

    foreign = True

    @override
    def type_problem(self, group: str, version: str, kind: str) -> str | None:
        return None

    @override
    def name_problem(self, name: object) -> str | None:
        return None if isinstance(name, str) and name else "name is required"


def describe(types: Iterable[ResourceType[Any]], topics: Iterable[DescribedTopic] = ()) -> types_pb.ListResponse:
    """Return a description of the types and topics, sorted by name, with every message and enum that they hold."""
    description = Description()
    for type in sorted(types, key=lambda each: each.name):
        described = types_pb.ResourceType(
            type=type.name.message(),
            scope=types_pb.Scope(type.scope.value),
            payload=type.type_url.rpartition("/")[2],
            message=description.message(type.payload),
            columns=[types_pb.Column(title=title, path=path) for title, path in type.columns.items()],
            owned_fields=type.owned_fields,
            foreign=type.foreign,
        )
        description.answer.types.append(described)
    for topic in sorted(topics, key=lambda each: each.name):
        described_topic = types_pb.Topic(name=topic.name, wildcard=topic.wildcard, payload=topic.payload_name)
        if topic.payload is not None:
            described_topic.message = description.message(topic.payload)
        description.answer.topics.append(described_topic)
    return description.answer


def described(type: ResourceType[Any]) -> types_pb.ListResponse:
    """Return the description of one type. It is made once and shared, so it must not be changed."""
    found = _DESCRIBED.get(type)
    if found is None:
        found = _DESCRIBED[type] = describe([type])
    return found


def rebuild(description: types_pb.ListResponse) -> tuple[Registry, list[DescribedTopic]]:
    """Return a registry of the described types, and the topics. Raises PayloadError if the description is invalid."""
    registry, topics = Registry(), []
    try:
        classes = rebuild_messages(description)
        for each in description.types:
            name = type_name(each.type)
            # Most built-in types are registered already, with their own classes.
            if name not in registry:
                columns = {column.title: column.path for column in each.columns}
                scope = Scope(int(each.scope))
                held, owned = classes[each.message], each.owned_fields
                made = _ForeignType if each.foreign else ResourceType
                type = made(*name, held, scope=scope, columns=columns, owned_fields=owned)
                registry.register(type, reserved=True)
        for topic in description.topics:
            payload = None if topic.message is None else classes[topic.message]
            topics.append(DescribedTopic(topic.name, topic.wildcard, topic.payload, payload))
    except (LookupError, TypeError, ValueError) as error:
        raise PayloadError(f"the server's description of its types can't be read: {error}") from error
    return registry, topics
