"""Which partition and namespace are meant where a name leaves them out. Pure."""

from __future__ import annotations

import enum


class Scope(enum.Enum):
    """Which tenancy units a resource of a type has. The values are the wire's.

    UNDEFINED is for tombstones alone: they are where their owner was, whatever its scope.
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
    """The (partition, namespace) of what a resource in ``parent`` refers to, where ``given`` is what it says of them.

    What it leaves empty is the parent's; a namespace only where the partition is the parent's too. What neither says is
    the scope's default, and units that the scope doesn't have are empty whatever is said.
    """
    default_partition, default_namespace = DEFAULT_TENANCY[scope]
    if scope is Scope.UNDEFINED:
        return given
    partition = (given[0] or parent[0] or default_partition) if default_partition else ""
    inherited = parent[1] if partition == parent[0] else ""
    return partition, (given[1] or inherited or default_namespace) if default_namespace else ""
