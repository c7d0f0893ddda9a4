"""The rules of services, their endpoints, their health checks and virtual IPs."""

from __future__ import annotations

from catalog import metadata_filter
from catalog.checks import values
from catalog.checks.faults import Faults
from catalog.checks.workloads import WORKLOAD_NAME, address, dns_policy, ports
from catalog.messages import (
    Endpoint,
    HealthChecks,
    Protocol,
    Service,
    ServiceEndpoints,
    VirtualIPs,
    WorkloadSelector,
)
from headway import Resource, ResourceId
from headway.resource import TypeName, quoted, resource_id

SERVICE_NAME = TypeName("catalog", "v2beta1", "Service")
_DEFINITIONS = ("http", "tcp", "udp", "grpc", "os_service")


def fill_in_service(resource: Resource[Service]) -> None:
    """Make TCP the protocol of a port without one."""
    for port in resource.data.ports:
        if port.protocol == Protocol.PROTOCOL_UNSPECIFIED:
            port.protocol = Protocol.PROTOCOL_TCP


def service(resource: Resource[Service]) -> Faults:
    """Yield the faults of a service."""
    data = resource.data
    yield from selector("data.workloads", data.workloads, may_be_empty=True)
    taken: dict[int, int] = {}
    for index, port in enumerate(data.ports):
        path = f"data.ports[{index}]"
        if port.virtual_port and (first := taken.setdefault(port.virtual_port, index)) != index:
            yield f"{path}.virtual_port {port.virtual_port} is that of data.ports[{first}]: use each only once"
        yield from values.port_name(f"{path}.target_port", port.target_port)
        yield from values.member(f"{path}.protocol", port.protocol)
        yield from values.number(f"{path}.virtual_port", port.virtual_port, 0)
    for index, each in enumerate(data.virtual_ips):
        yield from values.ip_address(f"data.virtual_ips[{index}]", each)


def selector(path: str, given: WorkloadSelector | None, *, may_be_empty: bool) -> Faults:
    """Yield the faults of a selector. An empty prefix is valid: it selects every workload."""
    if given is None or not (given.names or given.prefixes):
        if not may_be_empty:
            yield f"{path} is empty: select workloads by name or prefix, such as prefixes: ['api-']"
        if given is not None and given.filter:
            yield f"{path}.filter {quoted(given.filter)} selects from nothing: give names or prefixes, too"
        return
    for index, name in enumerate(given.names):
        if not name:
            yield f"{path}.names[{index}] is empty: give the name of a workload, such as 'api-1'"
    if given.filter:
        try:
            metadata_filter.parse(given.filter)
        except ValueError as error:
            yield f"{path}.filter {quoted(given.filter)}: {error}"


def fill_in_endpoints(resource: Resource[ServiceEndpoints]) -> None:
    """Make the service of the same name the owner of endpoints without one."""
    if resource.owner is None:
        id = resource.id
        resource.owner = ResourceId(SERVICE_NAME, id.name, id.partition, id.namespace)


def endpoints(resource: Resource[ServiceEndpoints]) -> Faults:
    """Yield the faults of endpoints."""
    id, owner = resource.id, resource.owner
    if owner is None or owner.type != SERVICE_NAME:
        yield f"owner.type {owner.type if owner else 'none'} must be {SERVICE_NAME}"
    if owner is not None and (owner.partition, owner.namespace) != (id.partition, id.namespace):
        yield f"owner.tenancy {owner.partition}/{owner.namespace} must be that of the endpoints"
    if owner is not None and owner.name != id.name:
        yield f"owner.name {owner.name!r} must be {id.name!r}: endpoints have the name of their service"
    for index, each in enumerate(resource.data.endpoints):
        yield from _endpoint(f"data.endpoints[{index}]", each, id)


def _endpoint(path: str, given: Endpoint, within: ResourceId) -> Faults:
    if given.target_ref is not None:
        target = resource_id(given.target_ref)
        if target.type != WORKLOAD_NAME:
            yield f"{path}.target_ref.type {target.type} must be {WORKLOAD_NAME}"
        if (target.partition, target.namespace) != (within.partition, within.namespace):
            yield f"{path}.target_ref.tenancy {target.partition}/{target.namespace} must be that of the endpoints"
    for index, each in enumerate(given.addresses):
        yield from address(f"{path}.addresses[{index}]", each, given.ports)
    yield from values.member(f"{path}.health_status", given.health_status)
    yield from ports(f"{path}.ports", given.ports)
    yield from dns_policy(f"{path}.dns", given.dns)


def health_checks(resource: Resource[HealthChecks]) -> Faults:
    """Yield the faults of health checks."""
    data = resource.data
    yield from selector("data.workloads", data.workloads, may_be_empty=False)
    for index, check in enumerate(data.health_checks):
        path = f"data.health_checks[{index}]"
        if not check.name:
            yield f"{path}.name is required, such as 'api-http'"
        else:
            yield from values.dns_label(f"{path}.name", check.name)
        if all(getattr(check, name) is None for name in _DEFINITIONS):
            yield f"{path} says nothing about what to check: set one of {', '.join(_DEFINITIONS)}"


def virtual_ips(resource: Resource[VirtualIPs]) -> Faults:
    """Yield the faults of virtual IPs."""
    for index, each in enumerate(resource.data.ips):
        yield from values.ip_address(f"data.ips[{index}].address", each.address)
