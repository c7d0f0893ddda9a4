"""Conversion of workloads to endpoints of a service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import headway
from catalog.messages import Endpoint, Health, Protocol, ServicePort, Workload, WorkloadAddress, WorkloadPort
from catalog.statuses import WORKLOAD_HEALTH, find_healthy, named_health


def endpoint_of(workload: headway.Resource[Workload], ports: Iterable[ServicePort]) -> Endpoint | None:
    """Return the endpoint of a workload for these ports of a service, or None if no address serves any of them."""
    data = workload.data
    served = _served_ports(data.ports, ports)
    addresses = [address for each in data.addresses if (address := _serving(each, served)) is not None]
    if not addresses:
        return None
    return Endpoint(
        target_ref=workload.id.message(),
        addresses=addresses,
        ports=served,
        health_status=health_of(workload),
        identity=data.identity,
        dns=data.dns,
    )


def health_of(workload: headway.Resource[Workload]) -> Health:
    """Return the health in the status of a workload. Without a known one, the workload is critical."""
    condition = find_healthy(workload.status.get(WORKLOAD_HEALTH))
    health = None if condition is None else named_health(condition.reason)
    return Health.HEALTH_CRITICAL if health is None else health


def is_outdated(workload: headway.Resource[Workload]) -> bool:
    """Return True if the status of a workload belongs to an earlier generation of it."""
    status = workload.status.get(WORKLOAD_HEALTH)
    return status is not None and status.observed_generation != workload.generation


def _served_ports(
    of_workload: Mapping[str, WorkloadPort], of_service: Iterable[ServicePort]
) -> dict[str, WorkloadPort]:
    """Return the ports of a workload that a service has too, with the same protocol, by their names."""
    served: dict[str, WorkloadPort] = {}
    for wanted in of_service:
        port = of_workload.get(wanted.target_port)
        if port is None:
            continue
        protocol = wanted.protocol if port.protocol == Protocol.PROTOCOL_UNSPECIFIED else port.protocol
        if protocol == wanted.protocol:
            same = port.protocol == protocol
            served[wanted.target_port] = port if same else WorkloadPort(port=port.port, protocol=protocol)
    return served


def _serving(address: WorkloadAddress, served: Mapping[str, WorkloadPort]) -> WorkloadAddress | None:
    """Return an address with the names of the ports that it serves, or None if it serves none."""
    names = sorted(name for name in address.ports if name in served) if address.ports else sorted(served)
    if names == address.ports:
        return address if names else None
    return WorkloadAddress(host=address.host, ports=names, external=address.external) if names else None
