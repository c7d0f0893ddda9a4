"""Services and routes for the tests of routing, and a view of them without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

import catalog
import headway
import mesh
from catalog.messages import ComputedFailoverPolicy, Protocol, Service, ServicePort
from catalog.types import COMPUTED_FAILOVER_POLICY, SERVICE
from headway.resource import Resource
from headway.testing import simulation
from mesh.messages import ComputedPortRoutes, DestinationPolicy
from mesh.routing.view import parents
from mesh.types import DESTINATION_POLICY

HTTP, HTTP2, GRPC, TCP, MESH, UNKNOWN = (
    Protocol.PROTOCOL_HTTP,
    Protocol.PROTOCOL_HTTP2,
    Protocol.PROTOCOL_GRPC,
    Protocol.PROTOCOL_TCP,
    Protocol.PROTOCOL_MESH,
    Protocol.PROTOCOL_UNSPECIFIED,
)
NUMBERS = {"http": 8080, "grpc": 9090, "tcp": 7070}


def service(**ports: Protocol) -> Service:
    """Return a service with these ports, or with HTTP and a mesh port. Virtual ports are those of `NUMBERS`."""
    given = ports or {"http": HTTP, "mesh": MESH}
    return Service(
        ports=[
            ServicePort(target_port=name, virtual_port=NUMBERS.get(name, 0), protocol=protocol)
            for name, protocol in given.items()
        ]
    )


def alone(*controllers: str) -> headway.App:
    """Return an app with the types of the catalog and the mesh, and these controllers of them."""
    app = headway.App("mesh")
    for type in {each.name: each for each in (*catalog.app.registry, *mesh.app.registry)}.values():
        if type.name.group in ("auth", "catalog", "mesh"):
            app.add_type(type)
    app.controllers = {name: (catalog.app.controllers | mesh.app.controllers)[name] for name in controllers}
    return app


def explored(app: headway.App, scenario: simulation.Scenario) -> Callable[[], None]:
    """Return the deep test that tries every fault in a scenario."""
    test = simulation.explored(app, seconds=60.0)(scenario)
    marked: Callable[[], None] = pytest.mark.deep(pytest.mark.timeout(300)(test))
    return marked


class Given:
    """A view of resources in a list. Routes are created in its order."""

    def __init__(self, *resources: Resource[Any]) -> None:
        self._found = {each.id.without_uid(): each for each in resources}

    def service(self, id: headway.ResourceId) -> Service | None:
        found = self._found.get(id._replace(type=SERVICE.name))
        return None if found is None else found.data

    def failover(self, service: headway.ResourceId) -> Resource[ComputedFailoverPolicy] | None:
        return self._found.get(service._replace(type=COMPUTED_FAILOVER_POLICY.name))

    def policy(self, service: headway.ResourceId) -> Resource[DestinationPolicy] | None:
        return self._found.get(service._replace(type=DESTINATION_POLICY.name))

    def routes(self, parent: headway.ResourceId) -> Sequence[Resource[Any]]:
        kinds = ("HTTPRoute", "GRPCRoute", "TCPRoute")
        return [each for each in self._found.values() if each.id.type.kind in kinds and parent in parents(each)]


def at(age: int, route: Resource[Any]) -> Resource[Any]:
    """Return a route that was created at a time."""
    made = route.message()
    assert made.id is not None
    made.id.uid = f"{age:010}{'0' * 16}"
    return route.type.view(made)


def key(name: str, port: str = "http") -> str:
    """Return the key of a target."""
    return f"catalog.v2beta1.Service/default.default/{name}?port={port}"


def backends(rules: Iterable[Any]) -> list[list[tuple[str, int]]]:
    """Return the targets and weights of each rule."""
    return [[(each.backend_target, each.weight) for each in rule.backend_refs] for rule in rules]


def rules_of(config: ComputedPortRoutes) -> list[Any]:
    """Return the rules of a port, of whatever kind."""
    for routing in (config.http, config.grpc, config.tcp):
        if routing is not None:
            return list(routing.rules)
    raise AssertionError("no routing")
