"""Scopes, and the default partition and namespace of a name. Pure."""

from __future__ import annotations

import enum


class Scope(enum.Enum):
    """The scope of a type: the tenancy units that its resources have. The values are those on the wire.

    Only tombstones have the scope UNDEFINED: they take the tenancy of their owner, in any scope.
    """

    UNDEFINED = 0
    CLUSTER = 1
    PARTITION = 2
    NAMESPACE = 3


DEFAULT_TENANCY = {
    Scope.UNDEFINED: ("", ""),
    Scope.CLUSTER: ("", ""),
    Scope.PARTITION: ("default", ""),
    Scope.NAMESPACE: ("default", "default"),
}


def tenancy_within(scope: Scope, given: tuple[str, str], parent: tuple[str, str]) -> tuple[str, str]:
    """Return the complete (partition, namespace) of a reference.

    An empty unit is inherited from the parent, or else gets the scope's default. The namespace is inherited only if the
    partition equals the parent's. Units that the scope doesn't have are always empty.

    Args:
        scope: the scope of the referenced type.
        given: the units in the reference; they may be empty.
        parent: the units of the resource that contains the reference.
    """
    default_partition, default_namespace = DEFAULT_TENANCY[scope]
    if scope is Scope.UNDEFINED:
        return given
    partition = (given[0] or parent[0] or default_partition) if default_partition else ""
    inherited = parent[1] if partition == parent[0] else ""
    return partition, (given[1] or inherited or default_namespace) if default_namespace else ""
