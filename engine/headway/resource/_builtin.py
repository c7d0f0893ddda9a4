"""The types that every registry has: tombstones, partitions and namespaces."""

from __future__ import annotations

from typing import Any

from headway._gen.headway.resource.v1 import Tombstone
from headway._gen.headway.tenancy.v1 import Namespace, Partition
from headway.resource._resource import Resource
from headway.resource._tenancy import Scope
from headway.resource._types import Hooks, ResourceType

DEFAULT_UNIT = "default"
"""The partition, and in every partition the namespace, that is there without being a resource."""

EMPTIED_FINALIZER = "headway.tenancy"
"""Holds a partition or namespace that is being deleted until nothing is left in it."""


def _refuse_by_hand(_: Resource[Any]) -> None:
    raise ValueError("tombstones are written by the service alone, when it deletes the owner of something; use Delete")


def _hold(unit: Resource[Any]) -> None:
    # From its first write on: deleted a moment later it is emptied all the same. Only a deletion may let go of it.
    if not unit.is_deleting:
        unit.finalizers = unit.finalizers | {EMPTIED_FINALIZER}


def _check_unit(unit: Resource[Any]) -> None:
    kind = unit.type.name.kind.lower()
    if unit.name == DEFAULT_UNIT:
        raise ValueError(f"the {kind} 'default' is always there and can't be written")
    if unit.owner is not None:
        raise ValueError(f"owner must be empty: a {kind} is owned by nobody, so that it goes only when it is deleted")


_UNIT_HOOKS: Hooks[Any] = Hooks(mutate=_hold, validate=_check_unit)

TOMBSTONE = ResourceType(
    "internal", "v1", "Tombstone", Tombstone, scope=Scope.UNDEFINED, hooks=Hooks(validate=_refuse_by_hand)
)
"""Stands for a deleted owner until what it owned is deleted too."""

PARTITION = ResourceType("tenancy", "v1", "Partition", Partition, scope=Scope.CLUSTER, hooks=_UNIT_HOOKS)
"""A partition; ``default`` is there without one."""

NAMESPACE = ResourceType("tenancy", "v1", "Namespace", Namespace, scope=Scope.PARTITION, hooks=_UNIT_HOOKS)
"""A namespace of the partition it is in; ``default`` is there without one wherever its partition is."""

BUILTIN_TYPES: tuple[ResourceType[Any], ...] = (TOMBSTONE, PARTITION, NAMESPACE)
RESERVED_GROUPS = frozenset(type.name.group for type in BUILTIN_TYPES)
