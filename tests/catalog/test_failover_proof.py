"""Failover under every fault, and after any changes of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from hypothesis import given
from hypothesis import strategies as st

import headway
from catalog.controllers.failover import KEY
from catalog.messages import FailoverPolicy, Service
from catalog.types import COMPUTED_FAILOVER_POLICY, FAILOVER_POLICY, SERVICE
from headway.testing import simulation
from tests.catalog.failovers import API, GRPC, HTTP, MESH, destinations, expected, policy, port, to
from tests.catalog.policies import FEWER, alone, conditions, explored, running

APP = alone("failover-policy")
DESTINATIONS = policy(to("b", "a"), http=to("a", "b", port="grpc"))


async def services_come_and_go(world: simulation.World) -> None:
    """The policy comes before its service and its destinations (W-1). Then a destination and a port go."""
    client = world.client
    await client.apply(FAILOVER_POLICY.new("api", DESTINATIONS))
    await client.apply(SERVICE.new("a", API))
    await world.wait_idle()
    await client.apply(SERVICE.new("api", API))
    await client.apply(SERVICE.new("b", API))
    await world.wait_idle()
    await client.delete(SERVICE.id("a"))
    await world.wait_idle()


async def policy_changes(world: simulation.World) -> None:
    """A policy gets another destination, and goes."""
    client = world.client
    await client.apply(SERVICE.new("api", API))
    await client.apply(FAILOVER_POLICY.new("api", policy(to("a"))))
    await world.wait_idle()
    await client.apply(FAILOVER_POLICY.new("api", policy(http=to("api", port="9090"))))
    await world.wait_idle()
    await client.delete(FAILOVER_POLICY.id("api"))
    await world.wait_idle()


test_services_come_and_go_with_a_second_process = explored(APP, services_come_and_go, processes=2)
test_services_come_and_go = explored(APP, services_come_and_go)
test_policy_changes = explored(APP, policy_changes, wide=True)

NAMES = ("a", "b", "c")
CONFIGS = st.builds(
    lambda names, text: to(*names, port=text),
    st.lists(st.sampled_from([*NAMES, "missing"]), min_size=1, max_size=3),
    st.sampled_from(["", "http", "grpc", "7070", "admin", "mesh"]),
)
PORTS = st.lists(
    st.sampled_from([HTTP, GRPC, MESH, port("web", 7070)]), max_size=3, unique_by=lambda each: each.target_port
)
POLICIES = st.builds(
    FailoverPolicy,
    config=st.none() | CONFIGS.map(lambda config: to(*[name for name, _ in destinations(config)])),
    port_configs=st.dictionaries(st.sampled_from(["http", "9090", "web", "mesh", "none"]), CONFIGS, max_size=3),
).filter(lambda given: given.config is not None or bool(given.port_configs))
CHANGES = st.lists(
    st.tuples(st.sampled_from(NAMES), PORTS | POLICIES | st.sampled_from([SERVICE, FAILOVER_POLICY]), st.booleans()),
    min_size=6,
    max_size=15,
)


@given(CHANGES)
@FEWER
def test_end_state_follows_from_the_services_and_policies(changes: Sequence[tuple[str, object, bool]]) -> None:
    """Whatever has changed before, and whether the controller was idle between the changes."""
    trio.run(end_state, changes)


async def end_state(changes: Sequence[tuple[str, object, bool]]) -> None:
    """Make the changes, and compare the computed policies with those that are expected."""
    with trio.fail_after(30):
        async with running("failover-policy") as engine:
            for name, change, waits in changes:
                await _change(engine.client, name, change)
                if waits:
                    await engine.wait_idle()
            await engine.wait_idle()
            client = engine.client
            services = {each.name: each.data for each in await client.list(SERVICE)}
            computed = {each.name: each for each in await client.list(COMPUTED_FAILOVER_POLICY)}
            policies = {each.name: each for each in await client.list(FAILOVER_POLICY)}
            assert set(computed) == set(policies) & set(services)
            for name, each in policies.items():
                if name not in services:
                    assert [reason for _, _, reason, _ in conditions(each, KEY)] == ["MissingService"]
                    continue
                made = computed[name]
                ported = {key: destinations(made.data.port_configs[key]) for key in made.data.port_configs}
                bound = [each.name for each in made.data.bound_references]
                assert (ported, bound) == expected(each.data, services, name)
                assert conditions(made, KEY) == conditions(each, KEY)


async def _change(client: headway.Client, name: str, change: object) -> None:
    if isinstance(change, FailoverPolicy):
        await client.apply(FAILOVER_POLICY.new(name, change))
    elif isinstance(change, list):
        await client.apply(SERVICE.new(name, Service(ports=change)))
    else:
        assert isinstance(change, headway.ResourceType)
        await client.delete(change.id(name))
