"""The messages of the services that workloads reach through listeners of their proxies."""

from __future__ import annotations

import headway
from catalog.messages import WorkloadSelector
from headway import field, message

_PACKAGE = "hashicorp.consul.mesh.v2beta1"


@message(name=f"{_PACKAGE}.IPPortAddress")
class IPPortAddress:
    """An IP address and a port that a proxy listens on."""

    ip: str = field(1)
    port: int = field(2, kind="uint32")


@message(name=f"{_PACKAGE}.UnixSocketAddress")
class UnixSocketAddress:
    """A Unix socket that a proxy listens on, and its mode, such as ``0600``."""

    path: str = field(1)
    mode: str = field(2)


@message(name=f"{_PACKAGE}.Destination")
class Destination:
    """A port of a service, and the address at which the workload reaches it."""

    destination_ref: headway.Reference | None = field(1)
    destination_port: str = field(2)
    datacenter: str = field(3)
    ip_port: IPPortAddress | None = field(4, oneof="listen_addr")
    unix: UnixSocketAddress | None = field(5, oneof="listen_addr")


@message(name=f"{_PACKAGE}.PreparedQueryDestination")
class PreparedQueryDestination:
    """A destination that a query finds. Validation refuses it."""


@message(name=f"{_PACKAGE}.Destinations")
class Destinations:
    """Destinations of the workloads that it selects."""

    workloads: WorkloadSelector | None = field(1)
    destinations: list[Destination] = field(2)
    pq_destinations: list[PreparedQueryDestination] = field(3)


@message(name=f"{_PACKAGE}.ComputedExplicitDestinations")
class ComputedExplicitDestinations:
    """All destinations of the workload of the same name."""

    destinations: list[Destination] = field(1)
