"""The ports that each route has: where several want one, the oldest route decides on the kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import headway
from catalog.checks.references import service_id
from catalog.messages import Protocol, Service, ServicePort
from catalog.ports import find_port
from mesh.checks.routes import Route
from mesh.messages import TCPRoute
from mesh.routing.view import View

CREATED = 10
"""The characters of a uid that say when the resource was created."""


def precedence(route: headway.Resource[Any]) -> tuple[str, str, str, str]:
    """Return the key by which routes are ordered: the oldest first. A change of a route does not move it."""
    return (route.uid[:CREATED], route.id.namespace, route.name, route.id.type.kind)


def mesh_port_of(service: Service | None) -> str:
    """Return the target port of a service that speaks the mesh protocol, or an empty string."""
    ports = () if service is None else service.ports
    return next((port.target_port for port in ports if port.protocol == Protocol.PROTOCOL_MESH), "")


def routable_ports(service: Service) -> list[ServicePort]:
    """Return the ports that traffic can be sent to, each name once."""
    found: dict[str, ServicePort] = {}
    for port in service.ports:
        if port.protocol != Protocol.PROTOCOL_MESH:
            found.setdefault(port.target_port, port)
    return list(found.values())


def wanted_ports(route: headway.Resource[Any], parent: headway.ResourceId, service: Service) -> list[str]:
    """Return the target ports of a service that a route wants, sorted."""
    data: Route = route.data
    wanted: set[str] = set()
    for each in data.parent_refs:
        if each.ref is None or service_id(each.ref, route.id) != parent:
            continue
        if not each.port:
            wanted.update(port.target_port for port in routable_ports(service))
            continue
        port = find_port(service, each.port)
        if port is not None and port.protocol != Protocol.PROTOCOL_MESH:
            wanted.add(port.target_port)
    return sorted(wanted)


def bound_routes(
    routes: Iterable[headway.Resource[Any]], parent: headway.ResourceId, service: Service
) -> dict[str, list[headway.Resource[Any]]]:
    """Return the routes of each port, the oldest first, without those that lose it.

    The oldest route decides on the kind. Nothing tells TCP connections apart, so only one TCP route has a port.
    """
    bound: dict[str, list[headway.Resource[Any]]] = {}
    for route in sorted(routes, key=precedence):
        for port in wanted_ports(route, parent, service):
            others = bound.setdefault(port, [])
            if not others or (others[0].type == route.type and not isinstance(route.data, TCPRoute)):
                others.append(route)
    return bound


class Holders:
    """The routes that have each port of a service. Each service is looked at once, however many routes it has."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._of: dict[headway.ResourceId, dict[str, set[headway.ResourceId]]] = {}

    def lost_ports(self, route: headway.Resource[Any], parent: headway.ResourceId, service: Service) -> list[str]:
        """Return the ports of a service that a route wants and another one has."""
        held = self._of.get(parent)
        if held is None:
            bound = bound_routes(self._view.routes(parent), parent, service)
            held = self._of[parent] = {port: {each.id for each in routes} for port, routes in bound.items()}
        return [port for port in wanted_ports(route, parent, service) if route.id not in held.get(port, ())]
