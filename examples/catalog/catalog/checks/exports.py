"""The rules of exported services."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.checks.faults import Faults
from catalog.checks.permissions import LOCAL
from catalog.messages import (
    ComputedExportedServices,
    ExportedServices,
    ExportedServicesConsumer,
    NamespaceExportedServices,
    PartitionExportedServices,
)
from headway import Resource

GLOBAL = "global"
"""The name of the computed exports of each partition."""


def of_services(resource: Resource[ExportedServices]) -> Faults:
    """Yield the faults of an export of some services. They need not exist."""
    if not resource.data.services:
        yield "data.services is empty: name at least one service"
    yield from _consumers(resource.data.consumers)


def of_tenancy(resource: Resource[NamespaceExportedServices] | Resource[PartitionExportedServices]) -> Faults:
    """Yield the faults of an export of all services of a namespace or a partition."""
    yield from _consumers(resource.data.consumers)


def computed(resource: Resource[ComputedExportedServices]) -> Faults:
    """Yield the faults of computed exports."""
    if resource.name != GLOBAL:
        yield f"name {resource.name!r} must be {GLOBAL!r}: a partition has one such resource"
    for index, each in enumerate(resource.data.services):
        for number, consumer in enumerate(each.consumers):
            path = f"data.services[{index}].consumers[{number}]"
            yield from _consumer(path, consumer.peer, {"partition": consumer.partition})


def _consumers(consumers: Sequence[ExportedServicesConsumer]) -> Faults:
    for index, each in enumerate(consumers):
        path = f"data.consumers[{index}]"
        yield from _consumer(path, each.peer, {"partition": each.partition, "sameness_group": each.sameness_group})
        if each.peer == LOCAL:
            yield f"{path}.peer {LOCAL!r} is this cluster: name another one"


def _consumer(path: str, peer: str | None, others: dict[str, str | None]) -> Faults:
    if peer is None and all(other is None for other in others.values()):
        # Consul accepts it, and then fails to compute any export of the partition.
        yield f"{path} is empty: set peer"
    if peer == "":
        yield f"{path}.peer is empty: give the name of a peer, such as 'east'"
    for name, other in others.items():
        if other is not None:
            yield f"{path}.{name} {other!r} is not supported: export to a peer"
