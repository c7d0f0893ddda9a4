"""The messages of computed routes: the complete routing of each port of a service."""

from __future__ import annotations

from enum import IntEnum

import headway
from catalog.messages import FailoverMode, Protocol
from headway import field, message
from mesh.messages.destination_policy import DestinationConfig
from mesh.messages.routes import (
    BackendReference,
    GRPCRouteFilter,
    GRPCRouteMatch,
    HTTPRouteFilter,
    HTTPRouteMatch,
    HTTPRouteRetries,
    HTTPRouteTimeouts,
    ParentReference,
)

_PACKAGE = "hashicorp.consul.mesh.v2beta1"


class BackendTargetDetailsType(IntEnum):
    """The reason why a target is in computed routes."""

    BACKEND_TARGET_DETAILS_TYPE_UNSPECIFIED = 0
    BACKEND_TARGET_DETAILS_TYPE_DIRECT = 1
    BACKEND_TARGET_DETAILS_TYPE_INDIRECT = 2


@message(name=f"{_PACKAGE}.ComputedHTTPBackendRef")
class ComputedHTTPBackendRef:
    """The key of a target and its share of the traffic."""

    backend_target: str = field(1)
    weight: int = field(2, kind="uint32")
    filters: list[HTTPRouteFilter] = field(3)


@message(name=f"{_PACKAGE}.ComputedHTTPRouteRule")
class ComputedHTTPRouteRule:
    """The targets of the requests that meet one of the matches."""

    matches: list[HTTPRouteMatch] = field(1)
    filters: list[HTTPRouteFilter] = field(2)
    backend_refs: list[ComputedHTTPBackendRef] = field(3)
    timeouts: HTTPRouteTimeouts | None = field(4)
    retries: HTTPRouteRetries | None = field(5)


@message(name=f"{_PACKAGE}.ComputedHTTPRoute")
class ComputedHTTPRoute:
    """The rules of a port that speaks HTTP. The first one that matches decides."""

    rules: list[ComputedHTTPRouteRule] = field(2)


@message(name=f"{_PACKAGE}.ComputedGRPCBackendRef")
class ComputedGRPCBackendRef:
    """The key of a target and its share of the calls."""

    backend_target: str = field(1)
    weight: int = field(2, kind="uint32")
    filters: list[GRPCRouteFilter] = field(3)


@message(name=f"{_PACKAGE}.ComputedGRPCRouteRule")
class ComputedGRPCRouteRule:
    """The targets of the calls that meet one of the matches."""

    matches: list[GRPCRouteMatch] = field(1)
    filters: list[GRPCRouteFilter] = field(2)
    backend_refs: list[ComputedGRPCBackendRef] = field(3)
    timeouts: HTTPRouteTimeouts | None = field(4)
    retries: HTTPRouteRetries | None = field(5)


@message(name=f"{_PACKAGE}.ComputedGRPCRoute")
class ComputedGRPCRoute:
    """The rules of a port that speaks gRPC. The first one that matches decides."""

    rules: list[ComputedGRPCRouteRule] = field(2)


@message(name=f"{_PACKAGE}.ComputedTCPBackendRef")
class ComputedTCPBackendRef:
    """The key of a target and its share of the connections."""

    backend_target: str = field(1)
    weight: int = field(2, kind="uint32")


@message(name=f"{_PACKAGE}.ComputedTCPRouteRule")
class ComputedTCPRouteRule:
    """The targets of all connections."""

    backend_refs: list[ComputedTCPBackendRef] = field(1)


@message(name=f"{_PACKAGE}.ComputedTCPRoute")
class ComputedTCPRoute:
    """The rules of a port that speaks TCP."""

    rules: list[ComputedTCPRouteRule] = field(1)


@message(name=f"{_PACKAGE}.ComputedFailoverDestination")
class ComputedFailoverDestination:
    """The key of a target that stands in for another."""

    backend_target: str = field(1)


@message(name=f"{_PACKAGE}.ComputedFailoverConfig")
class ComputedFailoverConfig:
    """The targets that stand in for another, in order."""

    destinations: list[ComputedFailoverDestination] = field(1)
    mode: FailoverMode = field(2)
    regions: list[str] = field(3)
    sameness_group: str = field(4)


@message(name=f"{_PACKAGE}.BackendTargetDetails")
class BackendTargetDetails:
    """A port of a service that traffic goes to."""

    type: BackendTargetDetailsType = field(1)
    backend_ref: BackendReference | None = field(2)
    mesh_port: str = field(3)
    failover_config: ComputedFailoverConfig | None = field(4)
    destination_config: DestinationConfig | None = field(5)


@message(name=f"{_PACKAGE}.ComputedPortRoutes")
class ComputedPortRoutes:
    """The routing of one port, and the targets that its rules name."""

    http: ComputedHTTPRoute | None = field(1, oneof="config")
    grpc: ComputedGRPCRoute | None = field(2, oneof="config")
    tcp: ComputedTCPRoute | None = field(3, oneof="config")
    using_default_config: bool = field(4)
    parent_ref: ParentReference | None = field(5)
    protocol: Protocol = field(6)
    targets: dict[str, BackendTargetDetails] = field(7)


@message(name=f"{_PACKAGE}.ComputedRoutes")
class ComputedRoutes:
    """The routing of each port of the service of the same name, by target port."""

    ported_configs: dict[str, ComputedPortRoutes] = field(1)
    bound_references: list[headway.Reference] = field(2)
