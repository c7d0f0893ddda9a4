"""The routes controller: facts RT-1 to RT-5, RT-17 and RT-18, with W-10 done better."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

import trio
from typing_extensions import override

import headway
from catalog.messages import ComputedFailoverPolicy, FailoverConfig, FailoverDestination
from catalog.types import COMPUTED_FAILOVER_POLICY, SERVICE
from headway.api import Call, Wrapper
from headway.engine import Extension
from headway.testing import one_shot
from mesh.controllers.routes import KEY
from mesh.messages import DestinationConfig, DestinationPolicy
from mesh.routing.accepting import of_routes
from mesh.types import COMPUTED_ROUTES, DESTINATION_POLICY, HTTP_ROUTE, TCP_ROUTE
from tests.catalog.policies import conditions, settled
from tests.mesh.refs import http, parent, tcp, to_http, to_tcp
from tests.mesh.routed import HTTP, MESH, Given, alone, backends, key, rules_of, service

APP = alone("routes")
API = COMPUTED_ROUTES.id("api")
OK = ("accepted", "TRUE", "Ok", "xRoute was accepted")


def services(*names: str) -> list[headway.Resource[Any]]:
    return [SERVICE.new(name, service()) for name in names]


def failover(of: str, to: str) -> headway.Resource[ComputedFailoverPolicy]:
    config = FailoverConfig(destinations=[FailoverDestination(ref=SERVICE.id(to).reference(), port="http")])
    return COMPUTED_FAILOVER_POLICY.new(of, ComputedFailoverPolicy(port_configs={"http": config}))


def names(ids: list[headway.ResourceId]) -> list[str]:
    assert {id.type for id in ids} <= {COMPUTED_ROUTES.name}
    return sorted(id.name for id in ids)


async def test_rt1_rt2_route_reconciles_its_parents_of_now_and_before() -> None:
    old = HTTP_ROUTE.new("r", http(to_http("foo"), parents=[parent("api"), parent("bar")]))
    new = HTTP_ROUTE.new("r", http(to_http("foo"), parents=[parent("api"), parent("web")]))
    async with one_shot(APP, "routes") as shot:
        assert names(await shot.mapped(HTTP_ROUTE, new=new)) == ["api", "web"]
        assert names(await shot.mapped(HTTP_ROUTE, old=old, new=new)) == ["api", "bar", "web"]
        assert names(await shot.mapped(TCP_ROUTE, new=TCP_ROUTE.new("t", tcp(to_tcp("foo"))))) == ["api"]


async def test_rt3_w10_service_and_its_policies_reconcile_every_route_that_they_are_part_of() -> None:
    """A policy of a service that only stands in reconciles the routes, too, which Consul misses."""
    policy = DESTINATION_POLICY.new("backup", DestinationPolicy(port_configs={"http": DestinationConfig()}))
    async with one_shot(APP, "routes") as shot:
        await shot.given(HTTP_ROUTE.new("r", http(to_http("foo"))), failover("foo", "backup"))
        for changed in (*services("foo"), failover("foo", "other")):
            assert names(await shot.mapped(changed.type, new=changed)) == ["api", "foo"]
        for changed in (policy, *services("backup")):
            assert names(await shot.mapped(changed.type, new=changed)) == ["api", "backup", "foo"]
        assert names(await shot.mapped(SERVICE, new=services("other")[0])) == ["other"]


async def test_rt4_w10_one_reconcile_writes_the_routes_of_one_service() -> None:
    """Consul computes everything that the routes of a service have to do with, each time."""
    route = HTTP_ROUTE.new("r", http(to_http("foo"), parents=[parent("api"), parent("bar")]))
    async with one_shot(APP, "routes") as shot:
        await shot.given(*services("api", "bar", "foo"), route)
        written = await settled(shot, API)
        assert [(each.what, each.id.type.kind, each.id.name) for each in written] == [
            ("write", "ComputedRoutes", "api"),
            ("status", "HTTPRoute", "r"),
        ]
        assert [each.what for each in await settled(shot, COMPUTED_ROUTES.id("bar"))] == ["write"]


async def test_rt5_service_that_leaves_the_mesh_loses_its_routes_and_returns() -> None:
    """Scenario 7."""
    async with one_shot(APP, "routes") as shot:
        await shot.given(*services("api"), HTTP_ROUTE.new("r", http(to_http("api"))))
        await settled(shot, API)
        made = await shot.client.read(COMPUTED_ROUTES, "api")
        assert conditions(await shot.client.read(HTTP_ROUTE, "r"), KEY) == [OK]

        await shot.given(SERVICE.new("api", service(http=HTTP)))
        assert [each.what for each in await settled(shot, API)] == ["delete", "status"]
        found = conditions(await shot.client.read(HTTP_ROUTE, "r"), KEY)
        assert [reason for _, _, reason, _ in found] == ["BackendRefOutsideMesh", "ParentRefOutsideMesh"]

        await shot.given(*services("api"))
        await settled(shot, API)
        assert (await shot.client.read(COMPUTED_ROUTES, "api")).data == made.data


async def test_rt17_rt18_service_owns_its_routes_and_both_routes_and_policy_have_a_status() -> None:
    """Scenario 8: a removed parent has its default again."""
    policy = DESTINATION_POLICY.new("api", DestinationPolicy(port_configs={"http": DestinationConfig()}))
    async with one_shot(APP, "routes") as shot:
        stored, *_ = await shot.given(*services("api", "bar"), policy)
        await shot.given(HTTP_ROUTE.new("r", http(to_http("foo"), parents=[parent("api"), parent("bar")])))
        for name in ("api", "bar"):
            await settled(shot, COMPUTED_ROUTES.id(name))
        assert (await shot.client.read(COMPUTED_ROUTES, "api")).owner == stored.id
        assert [reason for _, _, reason, _ in conditions(await shot.client.read(HTTP_ROUTE, "r"), KEY)] == [
            "MissingBackendRef"
        ]
        assert conditions(await shot.client.read(DESTINATION_POLICY, "api"), KEY) == [
            ("accepted", "TRUE", "Ok", "destination policy was accepted")
        ]
        await shot.requests()
        await shot.given(HTTP_ROUTE.new("r", http(to_http("foo"), parents=[parent("api")])))
        assert sorted(each.id.name for each in await shot.requests()) == ["api", "bar"]
        await settled(shot, COMPUTED_ROUTES.id("bar"))
        config = (await shot.client.read(COMPUTED_ROUTES, "bar")).data.ported_configs["http"]
        assert config.using_default_config
        assert backends(rules_of(config)) == [[(key("bar"), 0)]]


async def test_status_of_a_service_reconciles_nothing() -> None:
    async with one_shot(APP, "routes") as shot:
        stored, *_ = await shot.given(*services("api"))
        await shot.requests()
        await shot.client.write_status(stored, "other", [headway.Condition(type="Seen")])
        assert await shot.requests() == []


async def test_computed_routes_that_a_user_deletes_are_written_again() -> None:
    async with one_shot(APP, "routes") as shot:
        await shot.given(*services("api"))
        await settled(shot, API)
        await shot.requests()
        await shot.client.delete(await shot.client.read(COMPUTED_ROUTES, "api"))
        assert [each.id for each in await shot.requests()] == [API]


class Held(Wrapper):
    """Hold the first write of a status after `held` was made an event."""

    held: ClassVar[trio.Event | None] = None
    arrived: ClassVar[trio.Event] = trio.Event()

    @override
    async def unary(self, path: str, answer: Callable[[Call, Any], Awaitable[Any]], call: Call, request: Any) -> Any:
        held = Held.held
        if path.endswith("WriteStatus") and held is not None:
            Held.held = None
            Held.arrived.set()
            await held.wait()
        return await answer(call, request)


async def test_rt18_status_that_one_parent_writes_late_is_written_again() -> None:
    """Each parent's reconcile writes the status of a route, so an older one may arrive after a newer one."""
    route = HTTP_ROUTE.new("r", http(to_http("foo"), parents=[parent("api", "http"), parent("bar", "http")]))
    extension = Extension(wraps=[Held])
    async with headway.open_engine("memory:", APP, extensions=[extension]) as engine:
        for each in (*services("api", "bar", "foo"), route):
            await engine.client.apply(each)
        await engine.wait_idle()
        released = Held.held = trio.Event()
        await engine.client.apply(SERVICE.new("api", service(other=HTTP, mesh=MESH)))
        await Held.arrived.wait()
        await engine.client.apply(SERVICE.new("bar", service(other=HTTP, mesh=MESH)))

        def has_both(stored: headway.Resource[Any] | None) -> bool:
            return stored is not None and len(stored.status[KEY].conditions) == 2

        await headway.until(engine.client, HTTP_ROUTE, "r", has_both)
        released.set()
        await engine.wait_idle()
        assert has_both(await engine.client.read(HTTP_ROUTE, "r"))


def test_w10_every_service_is_looked_at_once_for_the_statuses_of_its_routes() -> None:
    """Of 1,000 routes of one service, each would look at all of them."""
    asked: list[headway.ResourceId] = []

    class Counting(Given):
        @override
        def routes(self, parent: headway.ResourceId) -> Sequence[headway.Resource[Any]]:
            asked.append(parent)
            return super().routes(parent)

    routes = [
        HTTP_ROUTE.new(f"r{each}", http(to_http("foo"), parents=[parent("api"), parent("bar")])) for each in "abc"
    ]
    found = of_routes(routes, Counting(*services("api", "bar", "foo"), *routes))
    assert [[each.reason for each in conditions] for conditions in found] == [["Ok"]] * 3
    assert [id.name for id in asked] == ["api", "bar"]


async def test_status_of_a_policy_that_another_writer_replaces_is_written_again() -> None:
    async with one_shot(APP, "routes") as shot:
        policy = DestinationPolicy(port_configs={"http": DestinationConfig()})
        stored, *_ = await shot.given(DESTINATION_POLICY.new("api", policy))
        await settled(shot, API)
        await shot.requests()
        await shot.client.write_status(stored, KEY, [headway.Condition(type="Wrong")])
        assert [each.id for each in await shot.requests()] == [API]
