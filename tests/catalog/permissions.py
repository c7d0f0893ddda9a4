"""Traffic permissions for the tests. The sender of a permission is the name of its resource."""

from __future__ import annotations

from collections.abc import Iterable

import headway
from catalog.messages import (
    Action,
    Destination,
    NamespaceTrafficPermissions,
    PartitionTrafficPermissions,
    Permission,
    Source,
    TrafficPermissions,
)
from catalog.types import NAMESPACE_TRAFFIC_PERMISSIONS, PARTITION_TRAFFIC_PERMISSIONS, TRAFFIC_PERMISSIONS

ALLOW = Action.ACTION_ALLOW


def allowing(sender: str, times: int = 1) -> list[Permission]:
    """Return permissions for this sender."""
    return [Permission(sources=[Source(identity_name=sender, namespace="default")]) for _ in range(times)]


def to_identity(
    name: str, identity: str, *, namespace: str = "default", senders: int = 1
) -> headway.Resource[TrafficPermissions]:
    """Return permissions to send traffic to one identity."""
    data = TrafficPermissions(
        destination=Destination(identity_name=identity), action=ALLOW, permissions=allowing(name, senders)
    )
    return TRAFFIC_PERMISSIONS.new(name, data, namespace=namespace)


def in_namespace(name: str, *, namespace: str = "default") -> headway.Resource[NamespaceTrafficPermissions]:
    """Return permissions to send traffic to a namespace."""
    data = NamespaceTrafficPermissions(action=ALLOW, permissions=allowing(name))
    return NAMESPACE_TRAFFIC_PERMISSIONS.new(name, data, namespace=namespace)


def in_partition(name: str, *, partition: str = "default") -> headway.Resource[PartitionTrafficPermissions]:
    """Return permissions to send traffic to a partition."""
    data = PartitionTrafficPermissions(action=ALLOW, permissions=allowing(name))
    return PARTITION_TRAFFIC_PERMISSIONS.new(name, data, partition=partition)


def senders(permissions: Iterable[Permission]) -> list[str]:
    """Return the senders of permissions, in order."""
    return [source.identity_name for each in permissions for source in each.sources]
