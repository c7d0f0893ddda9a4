"""Exported services under every fault, and after any changes of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

import headway
from catalog.controllers.exported_services import KEY
from catalog.messages import ExportedServicesConsumer
from catalog.types import (
    COMPUTED_EXPORTED_SERVICES,
    EXPORTED_SERVICES,
    NAMESPACE_EXPORTED_SERVICES,
    PARTITION_EXPORTED_SERVICES,
    SERVICE,
)
from headway.testing import simulation
from tests.catalog.exports import from_namespace, from_partition, listed, of_services
from tests.catalog.policies import FEWER, alone, conditions, explored, running

APP = alone("exported-services")


async def services_and_exports_come_and_go(world: simulation.World) -> None:
    """A service is exported by name before it exists, then with its namespace, and then nothing is exported."""
    client = world.client
    await client.apply(of_services("one", "api", peers=["west", "east"]))
    await client.apply(SERVICE.new("web"))
    await world.wait_idle()
    await client.apply(SERVICE.new("api"))
    await client.apply(from_namespace("two", peers=["east"]))
    await world.wait_idle()
    await client.delete(EXPORTED_SERVICES.id("one"))
    await client.delete(NAMESPACE_EXPORTED_SERVICES.id("two"))
    await world.wait_idle()


async def a_partition_exports_its_services(world: simulation.World) -> None:
    """Services come, are replaced and go, while the consumers change."""
    client = world.client
    await client.apply(from_partition("one", peers=["east"]))
    await client.apply(SERVICE.new("api"))
    await world.wait_idle()
    await client.delete(SERVICE.id("api"))
    await client.apply(SERVICE.new("api"))
    await client.apply(from_partition("one", peers=["west"]))
    await client.apply(SERVICE.new("web"))
    await world.wait_idle()


test_services_and_exports_come_and_go_with_a_second_process = explored(
    APP, services_and_exports_come_and_go, processes=2
)
test_services_and_exports_come_and_go = explored(APP, services_and_exports_come_and_go, wide=True)
test_a_partition_exports_its_services = explored(APP, a_partition_exports_its_services)

NAMES, SPACES = st.sampled_from(["a", "b"]), st.sampled_from(["default", "app"])
PEERS = st.lists(st.sampled_from(["north", "east"]), unique=True, max_size=2)
CREATED = st.one_of(
    st.builds(lambda name, namespace: SERVICE.new(name, namespace=namespace), NAMES, SPACES),
    st.builds(
        lambda name, service, namespace, peers: of_services(name, service, namespace=namespace, peers=peers),
        NAMES,
        NAMES,
        SPACES,
        PEERS,
    ),
    st.builds(
        lambda name, namespace, peers: from_namespace(name, namespace=namespace, peers=peers), NAMES, SPACES, PEERS
    ),
    st.builds(lambda name, peers: from_partition(name, peers=peers), NAMES, PEERS),
)
CHANGES = st.lists(
    st.tuples(CREATED, st.sampled_from(["apply", "apply", "delete"]), st.booleans()), min_size=6, max_size=15
)


@given(CHANGES)
@FEWER
def test_end_state_follows_from_the_services_and_exports(
    changes: Sequence[tuple[headway.Resource[Any], str, bool]],
) -> None:
    """Whatever has changed before, and whether the controller was idle between the changes."""
    trio.run(end_state, changes)


async def end_state(changes: Sequence[tuple[headway.Resource[Any], str, bool]]) -> None:
    """Make the changes, and compare the computed exports with those that are expected."""
    with trio.fail_after(30):
        async with running("exported-services") as engine:
            await engine.client.apply(headway.NAMESPACE.new("app"))
            for resource, verb, waits in changes:
                await (engine.client.apply(resource) if verb == "apply" else engine.client.delete(resource.id))
                if waits:
                    await engine.wait_idle()
            await engine.wait_idle()
            computed = await engine.client.list(COMPUTED_EXPORTED_SERVICES)
            wanted = await expected(engine.client)
            assert [listed(each.data) for each in computed] == ([wanted] if wanted else [])
            for each in computed:
                assert [state for _, state, _, _ in conditions(each, KEY)] == ["TRUE"]


async def expected(client: headway.Client) -> dict[str, list[str]]:
    """Return the peers of each exported service, said plainly: every export is asked about every service."""
    found: dict[str, set[str]] = {}

    def add(service: headway.Resource[Any], consumers: Sequence[ExportedServicesConsumer]) -> None:
        peers = {each.peer for each in consumers if each.peer}
        found.setdefault(f"{service.id.namespace}/{service.name}", set()).update(peers)

    for service in await client.list(SERVICE):
        for one in await client.list(EXPORTED_SERVICES):
            if one.id.namespace == service.id.namespace and service.name in one.data.services:
                add(service, one.data.consumers)
        for two in await client.list(NAMESPACE_EXPORTED_SERVICES):
            if two.id.namespace == service.id.namespace:
                add(service, two.data.consumers)
        for three in await client.list(PARTITION_EXPORTED_SERVICES):
            add(service, three.data.consumers)
    return {name: sorted(found[name]) for name in sorted(found)}
