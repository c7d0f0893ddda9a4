"""The types that every registry has: tombstones, partitions and namespaces."""

from __future__ import annotations

from typing import Any

from headway._gen.headway.resource.v1 import Tombstone
from headway._gen.headway.tenancy.v1 import Namespace, Partition
from headway.resource._resource import Resource
from headway.resource._tenancy import Scope
from headway.resource._types import Hooks, ResourceType


def _refuse_by_hand(_: Resource[Any]) -> None:
    raise ValueError("tombstones are written by the service alone, when it deletes the owner of something; use Delete")


TOMBSTONE = ResourceType(
    "internal", "v1", "Tombstone", Tombstone, scope=Scope.UNDEFINED, hooks=Hooks(validate=_refuse_by_hand)
)
"""Stands for a deleted owner until what it owned is deleted too."""

PARTITION = ResourceType("tenancy", "v1", "Partition", Partition, scope=Scope.CLUSTER)
"""A partition; ``default`` is there without one."""

NAMESPACE = ResourceType("tenancy", "v1", "Namespace", Namespace, scope=Scope.PARTITION)
"""A namespace of the partition it is in; ``default`` is there without one wherever its partition is."""

BUILTIN_TYPES: tuple[ResourceType[Any], ...] = (TOMBSTONE, PARTITION, NAMESPACE)
RESERVED_GROUPS = frozenset(type.name.group for type in BUILTIN_TYPES)
