"""The rights that a caller needs because of what a resource refers to, in addition to those on the resource itself.

Consul asks for rights on names of services, nodes and identities. Here they are rights on the resources of these names:

| Consul | Headway |
|---|---|
| service | `Workload`, `Service` |
| node | `Node` |
| identity | `WorkloadIdentity` |
| traffic-permissions | `ComputedTrafficPermissions`, which has the name of the identity |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from catalog.checks.references import service_id
from catalog.checks.services import SERVICE_NAME
from catalog.checks.workloads import NODE_NAME, WORKLOAD_NAME
from catalog.messages import (
    ComputedFailoverPolicy,
    ExportedServices,
    FailoverPolicy,
    HealthStatus,
    NodeHealthStatus,
    Service,
    TrafficPermissions,
    Workload,
)
from catalog.ports import destinations
from headway import Need, Resource, ResourceId, Scope
from headway.resource import TypeName, tenancy_within

Verb = Literal["read", "write"]
IDENTITY_NAME = TypeName("auth", "v2beta1", "WorkloadIdentity")
PERMISSIONS_NAME = TypeName("auth", "v2beta1", "ComputedTrafficPermissions")


def _beside(resource: Resource[Any], type: TypeName, name: str) -> ResourceId:
    """Return the id of this name in the tenancy of a resource, which has a namespace."""
    return ResourceId(type, name, resource.id.partition, resource.id.namespace)


def service(verb: Verb, resource: Resource[Service]) -> Iterator[Need]:
    """Yield the rights to a service. Its writer must be able to read every workload that it may ever select."""
    selector = resource.data.workloads
    if verb == "write" and selector is not None:
        for each in (*selector.names, *selector.prefixes):
            yield Need("read", _beside(resource, WORKLOAD_NAME, each))


def workload(verb: Verb, resource: Resource[Workload]) -> Iterator[Need]:
    """Yield the rights to a workload. Its writer must be able to read its node and its identity."""
    # Consul does not ask for the identity of a workload that has a node.
    if verb == "write" and resource.data.node_name:
        yield Need("read", ResourceId(NODE_NAME, resource.data.node_name, resource.id.partition))
    if verb == "write" and resource.data.identity:
        yield Need("read", _beside(resource, IDENTITY_NAME, resource.data.identity))


def health(verb: Verb, resource: Resource[HealthStatus] | Resource[NodeHealthStatus]) -> Iterator[Need]:
    """Yield the rights to a health status. They are the rights to its workload or its node."""
    owner, id = resource.owner, resource.id
    if owner is not None:
        scope = Scope.NAMESPACE if id.namespace else Scope.PARTITION
        given, parent = (owner.partition, owner.namespace), (id.partition, id.namespace)
        partition, namespace = tenancy_within(scope, given, parent)
        yield Need(verb, ResourceId(owner.type, owner.name, partition, namespace))


def failover(verb: Verb, resource: Resource[FailoverPolicy] | Resource[ComputedFailoverPolicy]) -> Iterator[Need]:
    """Yield the rights to a failover policy. Its writer must be able to read the services that take over."""
    if verb == "write":
        for each in destinations(resource.data.config, resource.data.port_configs):
            if each.ref is not None:
                yield Need("read", service_id(each.ref, resource.id))


def traffic_permissions(verb: Verb, resource: Resource[TrafficPermissions]) -> Iterator[Need]:
    """Yield the rights to permissions. They are the rights to the computed permissions of their identity."""
    destination = resource.data.destination
    if destination is not None:
        yield Need(verb, _beside(resource, PERMISSIONS_NAME, destination.identity_name))


def exported_services(verb: Verb, resource: Resource[ExportedServices]) -> Iterator[Need]:
    """Yield the rights to an export. They are the rights to each service that it names."""
    for each in resource.data.services:
        yield Need(verb, _beside(resource, SERVICE_NAME, each))
