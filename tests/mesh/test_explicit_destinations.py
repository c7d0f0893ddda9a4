"""Explicit destinations: facts ED-1 to ED-6, with W-13 done better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import headway
from catalog.messages import Protocol, Service, WorkloadSelector
from catalog.types import SERVICE, WORKLOAD
from headway.testing import one_shot, simulation
from mesh.explicit import KEY
from mesh.messages import (
    ComputedPortRoutes,
    ComputedRoutes,
    ComputedTCPRoute,
    Destination,
    Destinations,
    IPPortAddress,
    UnixSocketAddress,
)
from mesh.types import COMPUTED_EXPLICIT_DESTINATIONS, COMPUTED_ROUTES, DESTINATIONS
from tests.catalog.policies import FEWER, conditions, settled
from tests.helpers.catalogs import workload
from tests.mesh.refs import ref
from tests.mesh.routed import HTTP, MESH, alone, explored, service

APP = alone("explicit-destinations")
STATUSES = alone("destinations-status")
MESHED = {"http": HTTP, "mesh": MESH}
WEB = COMPUTED_EXPLICIT_DESTINATIONS.id("web-1")
ACCEPTED = ["AllListenAddressesAreUnique", "AllDestinationServicesValid"]


def meshed(name: str, ports: dict[str, Protocol] | None = None, **given: Any) -> headway.Resource[Any]:
    return workload(name, ports=MESHED if ports is None else ports, identity="web", **given)


def to(name: str, number: int = 1234, port: str = "http", path: str = "") -> Destination:
    listens: dict[str, Any] = {"ip_port": IPPortAddress(ip="127.0.0.1", port=number)}
    if path:
        listens = {"unix": UnixSocketAddress(path=path)}
    return Destination(destination_ref=ref(name), destination_port=port, **listens)


def of(name: str, *to: Destination, prefix: str = "web", filter: str = "") -> headway.Resource[Destinations]:
    selector = WorkloadSelector(prefixes=[prefix], filter=filter)
    return DESTINATIONS.new(name, Destinations(workloads=selector, destinations=list(to)))


def routes(name: str, *ports: str) -> headway.Resource[ComputedRoutes]:
    config = ComputedPortRoutes(tcp=ComputedTCPRoute())
    return COMPUTED_ROUTES.new(name, ComputedRoutes(ported_configs=dict.fromkeys(ports or ("http",), config)))


API: list[headway.Resource[Any]] = [SERVICE.new("api", service()), routes("api")]


def listed(found: headway.Resource[Any] | None) -> list[tuple[str, str, int]] | None:
    """Return the services, ports and numbers of computed destinations."""
    if found is None:
        return None
    return [
        (each.destination_ref.name, each.destination_port, each.ip_port.port if each.ip_port else 0)
        for each in found.data.destinations
    ]


async def reasons(client: headway.Client, name: str) -> list[str]:
    return [reason for _, _, reason, _ in conditions(await client.read(DESTINATIONS, name), KEY)]


async def test_ed1_changes_reconcile_the_workloads_that_they_concern() -> None:
    """A filter of now or before selects; a service and its routes reach all workloads that have it."""
    async with one_shot(APP, "explicit-destinations") as shot:
        red = meshed("web-2", metadata={"color": "red"})
        await shot.given(meshed("web-1"), red, meshed("other"), of("d", to("api"), filter="metadata.color == red"))
        assert await shot.mapped(WORKLOAD, new=red) == [WEB._replace(name="web-2")]
        for changed in API:
            assert [id.name for id in await shot.mapped(changed.type, new=changed)] == ["web-2"]
        moved = await shot.mapped(DESTINATIONS, old=of("d", to("api")), new=of("d", to("api"), prefix="other"))
        assert sorted(id.name for id in moved) == ["other", "web-1", "web-2"]


async def test_ed2_ed5_destinations_are_joined_by_name_and_go_with_the_mesh_port() -> None:
    """Scenario 12."""
    async with one_shot(APP, "explicit-destinations") as shot:
        stored, *_ = await shot.given(meshed("web-1"), *API, of("b", to("api", 2)), of("a", to("api", 1)))
        await shot.given(of("c", to("missing", 3)))
        await settled(shot, WEB)
        made = await shot.client.read(COMPUTED_EXPLICIT_DESTINATIONS, "web-1")
        assert listed(made) == [("api", "http", 1), ("api", "http", 2)]
        assert made.owner == stored.id
        await shot.given(meshed("web-1", {"http": HTTP}))
        assert [each.what for each in await settled(shot, WEB)] == ["delete"]


async def test_ed3_resources_that_conflict_are_left_out_whole() -> None:
    """Scenario 14. A third resource stays."""
    async with one_shot(APP, "explicit-destinations") as shot:
        await shot.given(meshed("web-1"), *API, of("a", to("api", 1), to("api", 9)), of("b", to("api", 1)))
        await shot.given(of("c", to("api", 2)), of("d", to("api", path="/a"), to("api", path="/a")))
        await settled(shot, WEB)
        made = await shot.client.read(COMPUTED_EXPLICIT_DESTINATIONS, "web-1")
        assert listed(made) == [("api", "http", 2)]


@pytest.mark.parametrize(
    ("api", "ports", "port", "reason"),
    [
        (None, None, "http", "ServiceNotFound"),
        (service(http=HTTP), None, "http", "MeshPortProtocolNotFound"),
        (service(), ["http"], "mesh", "DestinationWithMeshPortProtocol"),
        (service(), None, "http", "ComputedRoutesNotFound"),
        (service(), ["other"], "http", "ComputedRoutesPortNotFound"),
        (service(), ["http"], "grpc", "ComputedRoutesPortNotFound"),
        (service(), ["http"], "8080", "AllDestinationServicesValid"),
    ],
)
async def test_ed4_ed6_resource_is_valid_as_a_whole(
    api: Service | None, ports: list[str] | None, port: str, reason: str
) -> None:
    """Scenario 13. A virtual port is valid here, and means its target port."""
    present: list[headway.Resource[Any]] = [] if api is None else [SERVICE.new("api", api)]
    if ports is not None:
        present.append(routes("api", *ports))
    given = [meshed("web-1"), SERVICE.new("ok", service()), routes("ok"), of("d", to("ok", 1), to("api", 2, port))]
    async with one_shot(APP, "explicit-destinations") as shot:
        await shot.given(*given, *present)
        await settled(shot, WEB)
        made = listed(await shot.client.get(COMPUTED_EXPLICIT_DESTINATIONS, "web-1"))
        is_valid = reason == "AllDestinationServicesValid"
        assert made == ([("ok", "http", 1), ("api", "http", 2)] if is_valid else None)
    async with one_shot(STATUSES, "destinations-status") as shot:
        await shot.given(*given, *present)
        await settled(shot, DESTINATIONS.id("d"))
        assert await reasons(shot.client, "d") == ["AllListenAddressesAreUnique", reason]


async def test_ed6_w13_status_is_that_of_all_workloads_and_has_one_writer() -> None:
    """A conflict for one workload is a conflict. It ends when the other resource gets another address.

    One that has the address for other workloads is not reconciled.
    """
    async with one_shot(STATUSES, "destinations-status") as shot:
        await shot.given(meshed("web-1"), meshed("web-2"), *API)
        await shot.given(of("a", to("api")), of("b", to("api"), prefix="web-2"), of("c", to("api"), prefix="x"))
        for name, found in (("a", "ConflictingListenAddress"), ("b", "ConflictingListenAddress")):
            await settled(shot, DESTINATIONS.id(name))
            assert await reasons(shot.client, name) == [found]
        await settled(shot, DESTINATIONS.id("c"))
        assert await reasons(shot.client, "c") == ACCEPTED
        await shot.requests()
        await shot.given(of("b", to("api", 1), prefix="web-2"))
        assert {each.id.name for each in await shot.requests()} == {"a", "b"}
        await settled(shot, DESTINATIONS.id("a"))
        assert await reasons(shot.client, "a") == ACCEPTED


async def test_addresses_of_a_workload_without_a_mesh_port_do_not_conflict() -> None:
    """It has no proxy that would listen on them."""
    async with one_shot(STATUSES, "destinations-status") as shot:
        await shot.given(meshed("web-1", {"http": HTTP}), *API, of("a", to("api")), of("b", to("api")))
        await settled(shot, DESTINATIONS.id("a"))
        assert await reasons(shot.client, "a") == ACCEPTED


async def test_status_that_another_writer_replaces_is_written_again() -> None:
    async with one_shot(STATUSES, "destinations-status") as shot:
        stored, *_ = await shot.given(of("a", to("api")))
        await settled(shot, DESTINATIONS.id("a"))
        await shot.requests()
        await shot.client.write_status(stored, KEY, [headway.Condition(type="Wrong")])
        assert [each.id.name for each in await shot.requests()] == ["a"]


async def destinations_come_and_go(world: simulation.World) -> None:
    """Destinations come before their service; then another resource conflicts, and goes."""
    client = world.client
    await client.apply(of("a", to("api")))
    await client.apply(meshed("web-1"))
    await world.wait_idle()
    for each in API:
        await client.apply(each)
    await world.wait_idle()
    await client.apply(of("b", to("api")))
    await world.wait_idle()
    await client.delete(DESTINATIONS.id("b"))
    await world.wait_idle()


test_destinations_come_and_go = explored(
    alone("explicit-destinations", "destinations-status"), destinations_come_and_go
)

SERVICES = ("api", "db")
TARGETS = st.builds(
    to, st.sampled_from(SERVICES), st.sampled_from([1, 2, 3]), st.sampled_from(["http", "8080", "mesh"])
)
CHANGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        lambda name, targets, prefix, red: of(name, *targets, prefix=prefix, filter=red),
        st.sampled_from(["a", "b", "c"]),
        st.lists(TARGETS, max_size=2),
        st.sampled_from(["web", "web-1", ""]),
        st.sampled_from(["", "metadata.color == red"]),
    ),
    st.builds(
        lambda name, ports, metadata: meshed(name, ports, metadata=metadata),
        st.sampled_from(["web-1", "web-2", "other"]),
        st.sampled_from([MESHED, MESHED, {"http": HTTP}]),
        st.sampled_from([{}, {"color": "red"}]),
    ),
    st.builds(SERVICE.new, st.sampled_from(SERVICES), st.sampled_from([service(), service(), service(http=HTTP)])),
    st.builds(routes, st.sampled_from(SERVICES)),
    st.sampled_from([type.id(name) for type in (SERVICE, COMPUTED_ROUTES) for name in SERVICES]),
    st.sampled_from([DESTINATIONS.id("a"), DESTINATIONS.id("b"), WORKLOAD.id("web-1")]),
)


@given(st.lists(st.tuples(CHANGES, st.booleans()), min_size=5, max_size=15))
@FEWER
def test_end_state_follows_from_the_inputs(changes: Sequence[tuple[Any, bool]]) -> None:
    """Whatever has changed before, and whether the controllers were idle between the changes."""
    trio.run(end_state, [*((each, False) for each in (meshed("web-1"), *API)), *changes])


async def end_state(changes: Sequence[tuple[Any, bool]]) -> None:
    """Make the changes, and compare computed destinations and statuses with those that are expected."""
    with trio.fail_after(30):
        async with headway.open_engine("memory:", alone("explicit-destinations", "destinations-status")) as engine:
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
    """Compare what is stored with a plain computation of it."""
    services = {each.name: each.data for each in await client.list(SERVICE)}
    routed = {each.name for each in await client.list(COMPUTED_ROUTES)}
    given = sorted(await client.list(DESTINATIONS), key=lambda each: each.name)

    def valid(each: Destination) -> bool:
        name = each.destination_ref.name if each.destination_ref else ""
        is_meshed = name in services and any(port.protocol == MESH for port in services[name].ports)
        return is_meshed and name in routed and each.destination_port != "mesh"

    conflicts: set[str] = set()
    for each in given:
        numbers = [to.ip_port.port for to in each.data.destinations if to.ip_port]
        if len(set(numbers)) < len(numbers):
            conflicts.add(each.name)
    wanted: dict[str, list[tuple[str, str, int]]] = {}
    for own in await client.list(WORKLOAD):
        if "mesh" not in own.data.ports:
            continue
        together = []
        for one in given:
            selector = one.data.workloads
            assert selector is not None
            if own.name.startswith(selector.prefixes[0]) and (not selector.filter or own.metadata):
                together.append(one)
        numbers = [to.ip_port.port for one in together for to in one.data.destinations if to.ip_port]
        found: list[tuple[str, str, int]] = []
        for one in together:
            if any(to.ip_port and numbers.count(to.ip_port.port) > 1 for to in one.data.destinations):
                conflicts.add(one.name)
            elif all(map(valid, one.data.destinations)):
                found += [
                    (to.destination_ref.name, "http", to.ip_port.port)
                    for to in one.data.destinations
                    if to.destination_ref and to.ip_port
                ]
        if found:
            wanted[own.name] = found
    made = {each.name: listed(each) for each in await client.list(COMPUTED_EXPLICIT_DESTINATIONS)}
    assert made == wanted
    for one in given:
        if one.name in conflicts:
            assert await reasons(client, one.name) == ["ConflictingListenAddress"]
        else:
            is_accepted = (await reasons(client, one.name)) == ACCEPTED
            assert is_accepted == all(map(valid, one.data.destinations))
