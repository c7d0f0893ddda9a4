"""The messages of health statuses and health checks."""

from __future__ import annotations

import datetime
from enum import IntEnum

from catalog.messages.selector import WorkloadSelector
from headway import field, message

_PACKAGE = "hashicorp.consul.catalog.v2beta1"


class Health(IntEnum):
    """The health of a workload or a node. Of two, the one with the higher number is the worse."""

    HEALTH_ANY = 0
    HEALTH_PASSING = 1
    HEALTH_WARNING = 2
    HEALTH_CRITICAL = 3
    HEALTH_MAINTENANCE = 4


@message(name=f"{_PACKAGE}.HealthStatus")
class HealthStatus:
    """The result of one check of the workload that owns it."""

    type: str = field(1)
    status: Health = field(2)
    description: str = field(3)
    output: str = field(4)


@message(name=f"{_PACKAGE}.NodeHealthStatus")
class NodeHealthStatus:
    """The result of one check of the node that owns it."""

    type: str = field(1)
    status: Health = field(2)
    description: str = field(3)
    output: str = field(4)


@message(name=f"{_PACKAGE}.CheckTLSConfig")
class CheckTLSConfig:
    """How a check uses TLS."""

    tls_server_name: str = field(1)
    tls_skip_verify: bool = field(2)
    use_tls: bool = field(3)


@message(name=f"{_PACKAGE}.HTTPCheck")
class HTTPCheck:
    """A check by an HTTP request."""

    url: str = field(1)
    header: dict[str, str] = field(2)
    method: str = field(3)
    body: str = field(4)
    disable_redirects: bool = field(5)
    tls: CheckTLSConfig | None = field(6)


@message(name=f"{_PACKAGE}.TCPCheck")
class TCPCheck:
    """A check by a TCP connection."""

    address: str = field(1)


@message(name=f"{_PACKAGE}.UDPCheck")
class UDPCheck:
    """A check by a UDP packet."""

    address: str = field(1)


@message(name=f"{_PACKAGE}.GRPCCheck")
class GRPCCheck:
    """A check by gRPC's health service."""

    address: str = field(1)
    tls: CheckTLSConfig | None = field(2)


@message(name=f"{_PACKAGE}.OSServiceCheck")
class OSServiceCheck:
    """A check of a service of the operating system."""

    address: str = field(1)


@message(name=f"{_PACKAGE}.HealthCheck")
class HealthCheck:
    """One check, which exactly one of the fields from ``http`` to ``os_service`` defines."""

    name: str = field(1)
    http: HTTPCheck | None = field(2, oneof="definition")
    tcp: TCPCheck | None = field(3, oneof="definition")
    udp: UDPCheck | None = field(4, oneof="definition")
    grpc: GRPCCheck | None = field(5, oneof="definition")
    os_service: OSServiceCheck | None = field(6, oneof="definition")
    interval: datetime.timedelta | None = field(7)
    timeout: datetime.timedelta | None = field(8)
    deregister_critical_after: datetime.timedelta | None = field(9)


@message(name=f"{_PACKAGE}.HealthChecks")
class HealthChecks:
    """The checks of the workloads that it selects. It has no type that a server serves."""

    workloads: WorkloadSelector | None = field(1)
    health_checks: list[HealthCheck] = field(2)
