"""Exports of services for the tests."""

from __future__ import annotations

from collections.abc import Sequence

import headway
from catalog.messages import (
    ComputedExportedServices,
    ExportedServices,
    ExportedServicesConsumer,
    NamespaceExportedServices,
    PartitionExportedServices,
)
from catalog.types import EXPORTED_SERVICES, NAMESPACE_EXPORTED_SERVICES, PARTITION_EXPORTED_SERVICES


def to_peers(peers: Sequence[str]) -> list[ExportedServicesConsumer]:
    """Return peers as consumers."""
    return [ExportedServicesConsumer(peer=peer) for peer in peers]


def of_services(
    name: str, *services: str, namespace: str = "default", peers: Sequence[str] = ()
) -> headway.Resource[ExportedServices]:
    """Return an export of some services."""
    data = ExportedServices(services=list(services), consumers=to_peers(peers))
    return EXPORTED_SERVICES.new(name, data, namespace=namespace)


def from_namespace(
    name: str, *, namespace: str = "default", peers: Sequence[str] = ()
) -> headway.Resource[NamespaceExportedServices]:
    """Return an export of all services of a namespace."""
    data = NamespaceExportedServices(consumers=to_peers(peers))
    return NAMESPACE_EXPORTED_SERVICES.new(name, data, namespace=namespace)


def from_partition(
    name: str, *, partition: str = "default", peers: Sequence[str] = ()
) -> headway.Resource[PartitionExportedServices]:
    """Return an export of all services of a partition."""
    data = PartitionExportedServices(consumers=to_peers(peers))
    return PARTITION_EXPORTED_SERVICES.new(name, data, partition=partition)


def listed(computed: ComputedExportedServices) -> dict[str, list[str | None]]:
    """Return the peers of each exported service, by namespace and name, in the order of the computed exports."""
    found: dict[str, list[str | None]] = {}
    for each in computed.services:
        assert each.target_ref is not None
        assert each.target_ref.tenancy is not None
        found[f"{each.target_ref.tenancy.namespace}/{each.target_ref.name}"] = [one.peer for one in each.consumers]
    return found
