"""The rules of workloads, nodes and their health."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Final

from catalog.checks import values
from catalog.checks.faults import Faults
from catalog.messages import (
    DNSPolicy,
    HealthStatus,
    Node,
    NodeHealthStatus,
    Protocol,
    Workload,
    WorkloadAddress,
    WorkloadPort,
)
from headway import Resource
from headway.resource import TypeName, quoted

_LONGEST_CACHED: Final = 15
"""The length of the longest port name that is valid. Longer ones would fill the cache with what callers send."""

WORKLOAD_NAME = TypeName("catalog", "v2beta1", "Workload")
NODE_NAME = TypeName("catalog", "v2beta1", "Node")


def workload(resource: Resource[Workload]) -> Faults:
    """Yield the faults of a workload."""
    data = resource.data
    yield from ports("data.ports", data.ports)
    meshed = sorted(name for name, port in data.ports.items() if port.protocol == Protocol.PROTOCOL_MESH)
    if len(meshed) > 1:
        yield f"data.ports has several mesh ports, {', '.join(meshed)}: a workload has at most one"
    if meshed and not data.identity:
        yield f"data.identity is required for the mesh port {meshed[0]}, such as 'api'"
    if data.identity:
        yield from values.dns_label("data.identity", data.identity)
    if data.node_name:
        yield from values.dns_label("data.node_name", data.node_name)
    if data.locality is not None and data.locality.zone and not data.locality.region:
        yield f"data.locality.region is required for the zone {quoted(data.locality.zone)}, such as 'eu-west'"
    if not data.addresses:
        yield "data.addresses is empty: give at least one address"
    for index, each in enumerate(data.addresses):
        yield from address(f"data.addresses[{index}]", each, data.ports)
    yield from dns_policy("data.dns", data.dns)


def ports(path: str, given: Mapping[str, WorkloadPort]) -> Faults:
    """Yield the faults of the ports of a workload or of an endpoint."""
    if not given:
        yield f"{path} is empty: give at least one port"
    for name, port in given.items():
        if len(name) <= _LONGEST_CACHED and _is_valid_port(name, port.port, port.protocol):
            continue
        yield from values.port_name(f"{path} key", name)
        at = f"{path}[{quoted(name)}]"
        yield from values.number(f"{at}.port", port.port, 1)
        yield from values.member(f"{at}.protocol", port.protocol)


@lru_cache(maxsize=1024)
def _is_valid_port(name: str, number: int, protocol: Protocol) -> bool:
    """Return True if a port has no fault. The endpoints of a service have the same few ports."""
    return not any(chain(values.port_name("", name), values.number("", number, 1), values.member("", protocol)))


def address(path: str, given: WorkloadAddress, known: Mapping[str, WorkloadPort]) -> Faults:
    """Yield the faults of an address of a workload or of an endpoint with the ports ``known``."""
    yield from values.workload_host(f"{path}.host", given.host)
    if values.is_socket(given.host) and (len(given.ports) > 1 or (not given.ports and len(known) > 1)):
        yield f"{path}.ports: a Unix socket serves one port: name it, such as ports: ['http']"
    for index, name in enumerate(given.ports):
        if name not in known:
            yield f"{path}.ports[{index}] {quoted(name)} is not one of the ports: declare it there, or leave it out"


def dns_policy(path: str, policy: DNSPolicy | None) -> Faults:
    """Yield the faults of a DNS policy, which may be absent."""
    weights = None if policy is None else policy.weights
    if weights is not None:
        yield from values.number(f"{path}.weights.passing", weights.passing, 1)
        yield from values.number(f"{path}.weights.warning", weights.warning, 0)


def node(resource: Resource[Node]) -> Faults:
    """Yield the faults of a node."""
    if not resource.data.addresses:
        yield "data.addresses is empty: give at least one address"
    for index, each in enumerate(resource.data.addresses):
        yield from values.node_host(f"data.addresses[{index}].host", each.host)


def health_status(resource: Resource[HealthStatus]) -> Faults:
    """Yield the faults of a health status of a workload."""
    return _health(resource, resource.data, WORKLOAD_NAME)


def node_health_status(resource: Resource[NodeHealthStatus]) -> Faults:
    """Yield the faults of a health status of a node."""
    return _health(resource, resource.data, NODE_NAME)


def _health(
    resource: Resource[HealthStatus] | Resource[NodeHealthStatus], data: HealthStatus | NodeHealthStatus, of: TypeName
) -> Faults:
    if not data.type:
        yield "data.type is required, such as 'http'"
    yield from values.member("data.status", data.status, 1)
    if resource.owner is None:
        yield f"owner is required: the {of.kind.lower()} that was checked"
    elif resource.owner.type != of:
        yield f"owner.type {resource.owner.type} must be {of}"
