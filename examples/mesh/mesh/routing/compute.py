"""The computed routes of one service."""

from __future__ import annotations

from typing import Any

import headway
from catalog.messages import Protocol, ServicePort
from mesh.messages import (
    ComputedGRPCRoute,
    ComputedHTTPRoute,
    ComputedPortRoutes,
    ComputedRoutes,
    ComputedTCPRoute,
    GRPCRoute,
    HTTPRoute,
    ParentReference,
)
from mesh.routing import rules
from mesh.routing.binding import bound_routes, mesh_port_of, routable_ports
from mesh.routing.targets import Targets
from mesh.routing.view import View


def computed_routes(id: headway.ResourceId, view: View) -> ComputedRoutes | None:
    """Return the routing of each port of the service with an id, or None if traffic cannot be sent to it.

    Everything is in a fixed order, so that the same input always gives the same result.
    """
    service = view.service(id)
    if service is None or not mesh_port_of(service):
        return None
    used = {id}
    ported: dict[str, ComputedPortRoutes] = {}
    bound = bound_routes(view.routes(id), id, service)
    for port in sorted(routable_ports(service), key=lambda each: each.target_port):
        routes = bound.get(port.target_port, [])
        targets = Targets(view, id, port.target_port)
        config = _routed(port, routes, targets) if routes else _by_default(id, port, targets)
        if config is None:
            continue
        config.parent_ref = ParentReference(ref=id.reference(), port=port.target_port)
        config.targets = {key: targets.details[key] for key in sorted(targets.details)}
        ported[port.target_port] = config
        used |= targets.used | {route.id.without_uid() for route in routes}
    if not ported:
        return None
    ordered = sorted(used, key=lambda each: (str(each.type), each.key))
    return ComputedRoutes(ported_configs=ported, bound_references=[each.reference() for each in ordered])


def _routed(port: ServicePort, routes: list[headway.Resource[Any]], targets: Targets) -> ComputedPortRoutes:
    """Return the routing of a port by routes, which are all of one kind."""
    data = [route.data for route in routes]
    if isinstance(data[0], HTTPRoute):
        protocol = Protocol.PROTOCOL_HTTP if port.protocol == Protocol.PROTOCOL_TCP else port.protocol
        return ComputedPortRoutes(http=rules.http(data, targets), protocol=protocol)
    if isinstance(data[0], GRPCRoute):
        return ComputedPortRoutes(grpc=rules.grpc(data, targets), protocol=Protocol.PROTOCOL_GRPC)
    return ComputedPortRoutes(tcp=rules.tcp(data, targets), protocol=Protocol.PROTOCOL_TCP)


def _by_default(id: headway.ResourceId, port: ServicePort, targets: Targets) -> ComputedPortRoutes | None:
    """Return the routing of a port without routes, to the service itself, or None if its protocol is unknown."""
    key = targets.add_service(id, port.target_port)
    config = ComputedPortRoutes(using_default_config=True, protocol=port.protocol)
    if port.protocol in (Protocol.PROTOCOL_HTTP, Protocol.PROTOCOL_HTTP2):
        config.http = ComputedHTTPRoute(rules=[rules.http_rule(key, targets)])
    elif port.protocol == Protocol.PROTOCOL_GRPC:
        config.grpc = ComputedGRPCRoute(rules=[rules.grpc_rule(key, targets)])
    elif port.protocol == Protocol.PROTOCOL_TCP:
        config.tcp = ComputedTCPRoute(rules=[rules.tcp_rule(key)])
    else:
        return None
    return config
