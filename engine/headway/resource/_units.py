"""The rules for partitions and namespaces, which apply to all versions of these kinds."""

from __future__ import annotations

from typing import Any

from headway.resource._ids import Kind
from headway.resource._resource import Resource

DEFAULT_UNIT = "default"
"""The name of the partition, and of the namespace in each partition, that exists without a resource."""

EMPTIED_FINALIZER = "headway.tenancy"
"""The finalizer that keeps a partition or namespace, while it is being deleted, until it is empty."""

PARTITION_KIND: Kind = ("tenancy", "Partition")
NAMESPACE_KIND: Kind = ("tenancy", "Namespace")
UNIT_KINDS = (PARTITION_KIND, NAMESPACE_KIND)


def hold_unit(unit: Resource[Any]) -> None:
    """Add the finalizer to a unit that is not being deleted, and an empty payload to a unit without one."""
    # Every write adds it, so that a unit is emptied even if it is deleted at once. Only a deletion may remove it.
    if not unit.is_deleting:
        unit.finalizers = unit.finalizers | {EMPTIED_FINALIZER}
    if unit._message.data is None:
        # Consul stores an empty payload too: its clients cannot decode a missing one.
        unit.data = unit.type.payload()


def check_unit(unit: Resource[Any]) -> None:
    """Raise ValueError if a unit has an owner, or the name of the default unit."""
    kind = unit.type.name.kind.lower()
    if unit.name == DEFAULT_UNIT:
        raise ValueError(f"the {kind} 'default' always exists and cannot be written")
    if unit.owner is not None:
        raise ValueError(
            f"owner must be empty: a {kind} cannot have an owner, so that it is only removed by its own deletion"
        )
