"""The conditions of routes and destination policies: accepted, or everything that is wrong with their references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import headway
from catalog.checks.references import service_id
from catalog.computed import condition, id_text
from catalog.messages import Protocol, Service
from catalog.ports import find_port, port_number, port_text
from mesh.checks.routes import Route
from mesh.messages import BackendReference, DestinationPolicy
from mesh.routing.binding import Holders, mesh_port_of, wanted_ports
from mesh.routing.targets import find_backend
from mesh.routing.view import View, parents

_MOST: Final = 50
"""The most conditions of a status. A store refuses one with more than 100 conditions, or with too much text."""

Fault = tuple[str, str]
"""A reason and a message."""


def conditions(faults: Iterator[Fault], kind: str) -> list[headway.Condition]:
    """Return the condition for each fault, in a fixed order, or the one that accepts."""
    found = sorted(set(faults))[:_MOST]
    if not found:
        return [condition("accepted", True, f"{kind} was accepted", "Ok")]
    return [condition("accepted", False, message, reason) for reason, message in found]


def of_routes(routes: Sequence[headway.Resource[Any]], view: View) -> list[list[headway.Condition]]:
    """Return the conditions of each route, which depend on all of its parents and backends."""
    holders = Holders(view)
    return [conditions(_route(route, view, holders), "xRoute") for route in routes]


def of_policy(
    policy: headway.Resource[DestinationPolicy], id: headway.ResourceId, view: View
) -> list[headway.Condition]:
    """Return the conditions of the destination policy of the service with an id."""
    return conditions(_policy(policy.data, id, view.service(id)), "destination policy")


def _route(route: headway.Resource[Any], view: View, holders: Holders) -> Iterator[Fault]:
    data: Route = route.data
    bound: set[str] = set()
    for id in parents(route):
        service = view.service(id)
        ports = [each.port for each in data.parent_refs if each.ref and service_id(each.ref, route.id) == id]
        yield from _service(id, service, "Parent")
        if service is None or not mesh_port_of(service):
            continue
        yield from _ports(id, service, [each for each in ports if each], "Parent")
        bound.update(wanted_ports(route, id, service))
        for port in holders.lost_ports(route, id, service):
            text = f"another route has the port {port} of the parent {id_text(id)}"
            yield "ConflictNotBoundToParentRef", text
    for rule in data.rules:
        yield from _backends([each.backend_ref for each in rule.backend_refs], route.id, sorted(bound), view)


def _service(id: headway.ResourceId, service: Service | None, role: str) -> Iterator[Fault]:
    if service is None:
        yield f"Missing{role}Ref", f"{role.lower()} service does not exist: {id_text(id)}"
    elif not mesh_port_of(service):
        yield f"{role}RefOutsideMesh", f"{role.lower()} service has no mesh port: {id_text(id)}"


def _ports(id: headway.ResourceId, service: Service, ports: Sequence[str], role: str) -> Iterator[Fault]:
    """Yield the faults of port ids of a service, each of which should mean another of its ports."""
    taken: set[str] = set()
    for each in ports:
        port = find_port(service, each)
        if port is None:
            yield f"Unknown{role}RefPort", f"{role.lower()} service has no such port: {each} on {id_text(id)}"
        elif port.protocol == Protocol.PROTOCOL_MESH:
            yield f"{role}RefUsingMeshPort", f"{role.lower()} port is the mesh port: {each} on {id_text(id)}"
        elif port.target_port in taken:
            yield f"Conflict{role}RefPort", f"several references mean one port: {port_text(port)} on {id_text(id)}"
        else:
            taken.add(port.target_port)


def _backends(
    backends: Sequence[BackendReference | None], beside: headway.ResourceId, bound: Sequence[str], view: View
) -> Iterator[Fault]:
    """Yield the faults of the backends of one rule. A backend without a port has each port that the route wants."""
    ports: dict[headway.ResourceId, list[str]] = {}
    for backend in backends:
        if backend is not None and backend.ref is not None:
            ports.setdefault(service_id(backend.ref, beside), []).append(backend.port)
    for id, named in ports.items():
        service = view.service(id)
        yield from _service(id, service, "Backend")
        if service is None or not mesh_port_of(service):
            continue
        yield from _ports(id, service, [each for each in named if each], "Backend")
        if "" in named:
            for port in bound:
                found = find_backend(service, "", port)
                if found is None:
                    yield "UnknownBackendRefPort", f"backend service has no such port: {port} on {id_text(id)}"
                elif found.protocol == Protocol.PROTOCOL_MESH:
                    yield "BackendRefUsingMeshPort", f"backend port is the mesh port: {port} on {id_text(id)}"


def _policy(policy: DestinationPolicy, id: headway.ResourceId, service: Service | None) -> Iterator[Fault]:
    if service is None:
        yield "DestinationServiceNotFound", f"destination service does not exist: {id_text(id)}"
        return
    taken: set[str] = set()
    for key in sorted(policy.port_configs, key=lambda each: (port_number(each) is not None, each)):
        port = find_port(service, key)
        if port is None:
            yield "UnknownDestinationPort", f"destination service has no such port: {key} on {id_text(id)}"
        elif port.target_port in taken:
            yield "ConflictDestinationPort", f"several keys mean one port: {port_text(port)} on {id_text(id)}"
        else:
            taken.add(port.target_port)
