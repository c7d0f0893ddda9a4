"""The rules of partitions and namespaces, of which any version of their kinds may be declared."""

from __future__ import annotations

from typing import Any

from headway.resource._ids import Kind
from headway.resource._resource import Resource

DEFAULT_UNIT = "default"
"""The partition, and in every partition the namespace, that is there without being a resource."""

EMPTIED_FINALIZER = "headway.tenancy"
"""Holds a partition or namespace that is being deleted until nothing is left in it."""

PARTITION_KIND: Kind = ("tenancy", "Partition")
NAMESPACE_KIND: Kind = ("tenancy", "Namespace")
UNIT_KINDS = (PARTITION_KIND, NAMESPACE_KIND)


def hold_unit(unit: Resource[Any]) -> None:
    """Put the finalizer on a unit that is not being deleted, and an empty payload where it has none."""
    # From its first write on: deleted a moment later it is emptied all the same. Only a deletion may let go of it.
    if not unit.is_deleting:
        unit.finalizers = unit.finalizers | {EMPTIED_FINALIZER}
    if unit._message.data is None:
        # As Consul stores it: its clients can't decode what isn't there.
        unit.data = unit.type.payload()


def check_unit(unit: Resource[Any]) -> None:
    """Refuse a unit that has an owner, or bears the name of the one that is always there."""
    kind = unit.type.name.kind.lower()
    if unit.name == DEFAULT_UNIT:
        raise ValueError(f"the {kind} 'default' is always there and can't be written")
    if unit.owner is not None:
        raise ValueError(f"owner must be empty: a {kind} is owned by nobody, so that it goes only when it is deleted")
