"""The messages of services, workloads, endpoints, nodes and virtual IPs."""

from __future__ import annotations

from enum import IntEnum

from catalog.messages.health import Health
from catalog.messages.selector import WorkloadSelector
from headway import field, message
from headway.resource import pb

_PACKAGE = "hashicorp.consul.catalog.v2beta1"


class Protocol(IntEnum):
    """The protocol of a port."""

    PROTOCOL_UNSPECIFIED = 0
    PROTOCOL_TCP = 1
    PROTOCOL_HTTP = 2
    PROTOCOL_HTTP2 = 3
    PROTOCOL_GRPC = 4
    PROTOCOL_MESH = 5


@message(name=f"{_PACKAGE}.ServicePort")
class ServicePort:
    """A port of a service: the workloads' port ``target_port``, under ``virtual_port`` if that is not 0."""

    virtual_port: int = field(1, kind="uint32")
    target_port: str = field(2)
    protocol: Protocol = field(3)


@message(name=f"{_PACKAGE}.Service")
class Service:
    """A service: its workloads and its ports."""

    workloads: WorkloadSelector | None = field(1)
    ports: list[ServicePort] = field(2)
    virtual_ips: list[str] = field(3)


@message(name=f"{_PACKAGE}.WorkloadAddress")
class WorkloadAddress:
    """An address of a workload. Without port names, it serves all ports of the workload."""

    host: str = field(1)
    ports: list[str] = field(2)
    external: bool = field(3)


@message(name=f"{_PACKAGE}.WorkloadPort")
class WorkloadPort:
    """A port of a workload, under its name."""

    port: int = field(1, kind="uint32")
    protocol: Protocol = field(2)


@message(name=f"{_PACKAGE}.Locality")
class Locality:
    """The place of a workload."""

    region: str = field(1)
    zone: str = field(2)


@message(name=f"{_PACKAGE}.Weights")
class Weights:
    """The weights of a workload in DNS answers, while its checks pass and while they warn."""

    passing: int = field(1, kind="uint32")
    warning: int = field(2, kind="uint32")


@message(name=f"{_PACKAGE}.DNSPolicy")
class DNSPolicy:
    """The part that a workload has in DNS answers."""

    weights: Weights | None = field(1)


@message(name=f"{_PACKAGE}.Workload")
class Workload:
    """An instance of a service: a process, a container or a virtual machine."""

    addresses: list[WorkloadAddress] = field(1)
    ports: dict[str, WorkloadPort] = field(2)
    node_name: str = field(3)
    identity: str = field(4)
    locality: Locality | None = field(5)
    # Deprecated in Consul.
    tags: list[str] = field(6)
    enable_tag_override: bool = field(7)
    connect_native: bool = field(8)
    dns: DNSPolicy | None = field(9)


@message(name=f"{_PACKAGE}.Endpoint")
class Endpoint:
    """One way to reach a service. Its target is a workload, or absent for an external service."""

    target_ref: pb.Id | None = field(1)
    addresses: list[WorkloadAddress] = field(2)
    ports: dict[str, WorkloadPort] = field(3)
    health_status: Health = field(4)
    identity: str = field(5)
    dns: DNSPolicy | None = field(6)


@message(name=f"{_PACKAGE}.ServiceEndpoints")
class ServiceEndpoints:
    """The endpoints of the service of the same name."""

    endpoints: list[Endpoint] = field(1)


@message(name=f"{_PACKAGE}.NodeAddress")
class NodeAddress:
    """An address of a node."""

    host: str = field(1)
    external: bool = field(3)


@message(name=f"{_PACKAGE}.Node")
class Node:
    """A machine that workloads run on."""

    addresses: list[NodeAddress] = field(1)


@message(name=f"{_PACKAGE}.IP")
class IP:
    """A virtual IP address."""

    address: str = field(1)
    generated: bool = field(2)


@message(name=f"{_PACKAGE}.VirtualIPs")
class VirtualIPs:
    """The virtual IP addresses of a service. It has no type."""

    ips: list[IP] = field(1)
