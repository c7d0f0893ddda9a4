"""The types that every registry has: tombstones, tenancies, events, and those of add-ons."""

from __future__ import annotations

from typing import Any, TypeVar

from headway._gen.headway.resource.v1 import Tombstone
from headway._gen.headway.tenancy.v1 import Namespace, Partition
from headway.protobuf import Payload
from headway.resource._controller_record import CONTROLLER_RECORD
from headway.resource._event import EVENT
from headway.resource._hooks import UNIT_KINDS, Hooks
from headway.resource._ids import Scope
from headway.resource._resource import Resource
from headway.resource._types import ResourceType

T = TypeVar("T", bound=Payload)


def _refuse_by_hand(_: Resource[Any]) -> None:
    raise ValueError("only the service writes tombstones, when it deletes an owner; use Delete")


TOMBSTONE = ResourceType(
    "internal", "v1", "Tombstone", Tombstone, scope=Scope.UNDEFINED, hooks=Hooks(validate=_refuse_by_hand)
)
"""The type of tombstones. A tombstone represents a deleted owner until its owned resources are deleted too."""

PARTITION = ResourceType("tenancy", "v1", "Partition", Partition, scope=Scope.CLUSTER)
"""The type of partitions. The partition ``default`` exists without a resource."""

NAMESPACE = ResourceType("tenancy", "v1", "Namespace", Namespace, scope=Scope.PARTITION)
"""The type of namespaces. The namespace ``default`` of each partition exists without a resource."""

BUILTIN_TYPES: dict[tuple[str, str, str], ResourceType[Any]] = {
    each.name: each for each in (TOMBSTONE, PARTITION, NAMESPACE, EVENT, CONTROLLER_RECORD)
}
"""The types by name. Every registry looks here, too: an add-on may be imported after a program has made its app."""

RESERVED_GROUPS = frozenset({"internal", "tenancy", "pause", "event", "peering"})
"""The groups in which programs cannot declare types: those of the built-in types, also of add-ons not yet imported."""


def builtin(type: ResourceType[T]) -> ResourceType[T]:
    """Add an add-on's own type, in a reserved group, to all registries, and return it."""
    BUILTIN_TYPES[type.name] = type
    return type


def is_builtin(type: ResourceType[Any]) -> bool:
    """Return True for a type of Headway, which every registry has."""
    return type.name.group in RESERVED_GROUPS and (type.name in BUILTIN_TYPES or type.kind not in UNIT_KINDS)
