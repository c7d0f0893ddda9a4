"""Computed routes under every fault, and after any changes of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

import headway
from catalog.messages import FailoverConfig, FailoverDestination, FailoverPolicy, Protocol
from catalog.types import COMPUTED_FAILOVER_POLICY, FAILOVER_POLICY, SERVICE
from headway.testing import simulation
from mesh.controllers.routes import KEY
from mesh.messages import DestinationConfig, DestinationPolicy, HTTPBackendRef, HTTPRouteRule
from mesh.routing.accepting import of_policy, of_routes
from mesh.routing.compute import computed_routes
from mesh.types import COMPUTED_ROUTES, DESTINATION_POLICY, GRPC_ROUTE, HTTP_ROUTE, TCP_ROUTE
from tests.catalog.policies import FEWER
from tests.mesh.refs import backend, grpc, http, parent, tcp, to_grpc, to_http, to_tcp
from tests.mesh.routed import GRPC, HTTP, MESH, TCP, Given, alone, explored, service


async def services_come_and_go(world: simulation.World) -> None:
    """A route comes before its services. Then its backend leaves the mesh, and its parent goes."""
    client = world.client
    await client.apply(HTTP_ROUTE.new("r", http(to_http("foo"))))
    await world.wait_idle()
    await client.apply(SERVICE.new("foo", service()))
    await client.apply(SERVICE.new("api", service()))
    await world.wait_idle()
    await client.apply(SERVICE.new("foo", service(http=HTTP)))
    await client.delete(SERVICE.id("api"))
    await world.wait_idle()


async def route_moves(world: simulation.World) -> None:
    """A route gets another parent, and its service a policy."""
    client = world.client
    await client.apply(SERVICE.new("api", service()))
    await client.apply(SERVICE.new("web", service()))
    await client.apply(HTTP_ROUTE.new("r", http(to_http("web"))))
    await world.wait_idle()
    await client.apply(HTTP_ROUTE.new("r", http(to_http("api"), parents=[parent("web")])))
    policy = DestinationPolicy(port_configs={"http": DestinationConfig()})
    await client.apply(DESTINATION_POLICY.new("api", policy))
    await world.wait_idle()


test_services_come_and_go = explored(alone("routes"), services_come_and_go)
test_route_moves = explored(alone("routes"), route_moves)

NAMES = ("a", "b", "c")
TEXTS = st.sampled_from(["", "http", "grpc", "8080", "mesh"])
PORTS: st.SearchStrategy[dict[str, Protocol]] = st.dictionaries(
    st.sampled_from(["http", "grpc", "mesh"]), st.sampled_from([HTTP, GRPC, TCP]), min_size=1
).map(lambda ports: {name: MESH if name == "mesh" else protocol for name, protocol in ports.items()})
BACKENDS = st.lists(st.sampled_from([*NAMES, "missing"]), min_size=1, max_size=2, unique=True)


@st.composite
def routes(draw: st.DrawFn) -> headway.Resource[Any]:
    name, to = draw(st.sampled_from(["r", "s"])), draw(BACKENDS)
    kind: headway.ResourceType[Any] = draw(st.sampled_from([HTTP_ROUTE, GRPC_ROUTE, TCP_ROUTE]))
    parents = [parent(each, draw(TEXTS)) for each in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))]
    if kind is GRPC_ROUTE:
        route: Any = grpc(to_grpc(*to))
    elif kind is TCP_ROUTE:
        route = tcp(to_tcp(*to))
    else:
        refs = [HTTPBackendRef(backend_ref=backend(each, draw(TEXTS)), weight=1) for each in to]
        route = http(HTTPRouteRule(backend_refs=refs))
    route.parent_refs = parents
    return kind.new(name, route)


def failover(of: str, to: Sequence[str]) -> headway.Resource[FailoverPolicy]:
    named = [FailoverDestination(ref=SERVICE.id(each).reference()) for each in to]
    return FAILOVER_POLICY.new(of, FailoverPolicy(config=FailoverConfig(destinations=named)))


def policy(of: str, port: str) -> headway.Resource[DestinationPolicy]:
    return DESTINATION_POLICY.new(of, DestinationPolicy(port_configs={port: DestinationConfig()}))


SERVICES = st.builds(lambda name, ports: SERVICE.new(name, service(**ports)), st.sampled_from(NAMES), PORTS)
CHANGES: st.SearchStrategy[Any] = st.one_of(
    SERVICES,
    routes(),
    st.builds(failover, st.sampled_from(NAMES), BACKENDS),
    st.builds(policy, st.sampled_from(NAMES), st.sampled_from(["http", "8080", "grpc"])),
    st.sampled_from(NAMES).map(SERVICE.id),
    st.sampled_from(NAMES).map(FAILOVER_POLICY.id),
    st.sampled_from(NAMES).map(DESTINATION_POLICY.id),
    st.sampled_from([kind.id(name) for kind in (HTTP_ROUTE, GRPC_ROUTE, TCP_ROUTE) for name in ("r", "s")]),
)


@given(
    st.lists(SERVICES, min_size=2, max_size=4),
    st.lists(routes(), min_size=1, max_size=2),
    st.lists(st.tuples(CHANGES, st.booleans()), min_size=2, max_size=10),
)
@FEWER
def test_end_state_follows_from_services_routes_and_policies(
    first: list[Any], then: list[Any], changes: list[tuple[Any, bool]]
) -> None:
    """Whatever has changed before, and whether the controllers were idle between the changes."""
    trio.run(end_state, [*((each, False) for each in (*first, *then)), *changes])


async def end_state(changes: Sequence[tuple[Any, bool]]) -> None:
    """Make the changes, and compare what is stored with the routing that is computed from it at once."""
    with trio.fail_after(30):
        async with headway.open_engine("memory:", alone("routes", "failover-policy")) as engine:
            for change, waits in changes:
                if isinstance(change, headway.ResourceId):
                    await engine.client.delete(change)
                else:
                    await engine.client.apply(change)
                if waits:
                    await engine.wait_idle()
            await engine.wait_idle()
            await compare(engine.client)


async def compare(client: headway.Client) -> None:
    """Compare every computed route and every status with what follows from all other resources."""
    kinds = (SERVICE, COMPUTED_FAILOVER_POLICY, DESTINATION_POLICY, HTTP_ROUTE, GRPC_ROUTE, TCP_ROUTE)
    stored: list[headway.Resource[Any]] = [each for kind in kinds for each in await client.list(kind)]
    view = Given(*stored)
    found = {each.name: each.data for each in await client.list(COMPUTED_ROUTES)}
    wanted = {name: computed_routes(SERVICE.id(name), view) for name in NAMES}
    assert found == {name: routing for name, routing in wanted.items() if routing is not None}
    for each in stored:
        if each.type == DESTINATION_POLICY:
            conditions = of_policy(each, SERVICE.id(each.name), view)
        elif each.type in (HTTP_ROUTE, GRPC_ROUTE, TCP_ROUTE):
            conditions = of_routes([each], view)[0]
        else:
            continue
        status = each.status[KEY]
        assert (status.observed_generation, status.conditions) == (each.generation, conditions)
