"""The types that every registry has: tombstones, tenancies, quotas, peerings, pauses, events, controller records."""

from __future__ import annotations

from typing import Any

from headway._gen.headway.resource.v1 import Tombstone
from headway._gen.headway.tenancy.v1 import Namespace, Partition
from headway.resource._controller_record import CONTROLLER_RECORD
from headway.resource._event import EVENT
from headway.resource._hooks import Hooks
from headway.resource._ids import Scope
from headway.resource._pause import PAUSE
from headway.resource._peering import PEERING
from headway.resource._quota import QUOTA
from headway.resource._resource import Resource
from headway.resource._types import ResourceType


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

BUILTIN_TYPES: tuple[ResourceType[Any], ...] = (
    TOMBSTONE,
    PARTITION,
    NAMESPACE,
    QUOTA,
    PEERING,
    PAUSE,
    EVENT,
    CONTROLLER_RECORD,
)
RESERVED_GROUPS = frozenset(type.name.group for type in BUILTIN_TYPES)
"""The groups in which programs cannot declare types."""


def is_builtin(type: ResourceType[Any]) -> bool:
    """Return True if every registry has the type."""
    return type in BUILTIN_TYPES
