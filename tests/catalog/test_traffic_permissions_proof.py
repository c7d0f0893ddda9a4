"""Traffic permissions under every fault, and after any changes of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

import headway
from catalog.controllers.traffic_permissions import KEY
from catalog.types import (
    COMPUTED_TRAFFIC_PERMISSIONS,
    NAMESPACE_TRAFFIC_PERMISSIONS,
    PARTITION_TRAFFIC_PERMISSIONS,
    TRAFFIC_PERMISSIONS,
    WORKLOAD_IDENTITY,
)
from headway.testing import simulation
from tests.catalog.permissions import in_namespace, in_partition, senders, to_identity
from tests.catalog.policies import FEWER, alone, conditions, explored, running

APP = alone("traffic-permissions")


async def permissions_move_and_come_again(world: simulation.World) -> None:
    """Several permissions are deleted, created again and moved, which a test of Consul's skips as flaky (W-5, W-28)."""
    client = world.client
    await client.apply(WORKLOAD_IDENTITY.new("api"))
    await client.apply(to_identity("one", "api"))
    await client.apply(to_identity("two", "api"))
    await world.wait_idle()
    await client.delete(TRAFFIC_PERMISSIONS.id("one"))
    await client.apply(to_identity("one", "api"))
    await client.apply(to_identity("two", "web"))
    await client.apply(WORKLOAD_IDENTITY.new("web"))
    await world.wait_idle()


async def tenancies_and_identities_change(world: simulation.World) -> None:
    """Permissions of a namespace and a partition come and go, and an identity is created again."""
    client = world.client
    await client.apply(in_namespace("one"))
    await client.apply(WORKLOAD_IDENTITY.new("api"))
    await world.wait_idle()
    await client.apply(in_partition("two"))
    await client.delete(NAMESPACE_TRAFFIC_PERMISSIONS.id("one"))
    await world.wait_idle()
    await client.delete(WORKLOAD_IDENTITY.id("api"))
    await client.apply(WORKLOAD_IDENTITY.new("api"))
    await world.wait_idle()


test_permissions_move_and_come_again_with_a_second_process = explored(APP, permissions_move_and_come_again, processes=2)
test_permissions_move_and_come_again = explored(APP, permissions_move_and_come_again)
test_tenancies_and_identities_change = explored(APP, tenancies_and_identities_change)

NAMES, IDENTITIES = ("a", "b"), ("x", "y")
CREATED = st.one_of(
    st.builds(to_identity, st.sampled_from(NAMES), st.sampled_from(IDENTITIES)),
    st.builds(in_namespace, st.sampled_from(NAMES)),
    st.builds(in_partition, st.sampled_from(NAMES)),
    st.builds(WORKLOAD_IDENTITY.new, st.sampled_from(IDENTITIES)),
)
CHANGES = st.lists(
    st.tuples(CREATED, st.sampled_from(["apply", "apply", "delete"]), st.booleans()), min_size=6, max_size=15
)


@given(CHANGES)
@FEWER
def test_end_state_follows_from_the_identities_and_permissions(
    changes: Sequence[tuple[headway.Resource[Any], str, bool]],
) -> None:
    """Whatever has changed before, and whether the controller was idle between the changes."""
    trio.run(end_state, changes)


async def end_state(changes: Sequence[tuple[headway.Resource[Any], str, bool]]) -> None:
    """Make the changes, and compare the computed permissions with those that are expected."""
    with trio.fail_after(30):
        async with running("traffic-permissions") as engine:
            for resource, verb, waits in changes:
                await (engine.client.apply(resource) if verb == "apply" else engine.client.delete(resource.id))
                if waits:
                    await engine.wait_idle()
            await engine.wait_idle()
            await agrees(engine.client)


async def agrees(client: headway.Client) -> None:
    """Assert that the computed permissions and all statuses are those that the stored resources ask for."""
    identities = [each.name for each in await client.list(WORKLOAD_IDENTITY)]
    single = await client.list(TRAFFIC_PERMISSIONS)
    shared = [*await client.list(PARTITION_TRAFFIC_PERMISSIONS), *await client.list(NAMESPACE_TRAFFIC_PERMISSIONS)]
    computed = {each.name: each for each in await client.list(COMPUTED_TRAFFIC_PERMISSIONS)}
    assert sorted(computed) == sorted(identities)
    for name in identities:
        own = [each for each in single if each.data.destination and each.data.destination.identity_name == name]
        wanted = [each.name for each in (*own, *shared)]
        found = computed[name]
        assert senders(found.data.allow_permissions) == wanted
        assert found.data.is_default == (not wanted)
        ((_, state, _, text),) = conditions(found, KEY)
        assert (state, text) == ("TRUE", f"Workload identity {name} has {'new' if wanted else 'no'} permissions")
        for each in (*own, *shared):
            assert [state for _, state, _, _ in conditions(each, KEY)] == ["TRUE"]
