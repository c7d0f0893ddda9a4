"""Computed proxy configurations: facts PC-1 to PC-5, with W-19 done better."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

import headway
from catalog.messages import WorkloadSelector
from catalog.types import WORKLOAD
from headway.testing import one_shot, simulation
from mesh.controllers.proxy_configuration import KEY, merged
from mesh.messages import (
    BootstrapConfig,
    ConnectionConfig,
    DynamicConfig,
    InboundConnectionsConfig,
    ProxyConfiguration,
)
from mesh.types import COMPUTED_PROXY_CONFIGURATION, PROXY_CONFIGURATION
from tests.catalog.policies import FEWER, conditions, settled
from tests.helpers.catalogs import workload
from tests.mesh.routed import HTTP, MESH, alone, at, explored

APP = alone("proxy-configuration")
WEB = COMPUTED_PROXY_CONFIGURATION.id("web-1")


def meshed(name: str, is_meshed: bool = True, **given: Any) -> headway.Resource[Any]:
    ports = {"http": HTTP, "mesh": MESH} if is_meshed else {"http": HTTP}
    return workload(name, ports=ports, identity="web", **given)


def limited(
    name: str, most: int, *, prefixes: Sequence[str] = (), names: Sequence[str] = (), red: bool = False
) -> headway.Resource[ProxyConfiguration]:
    """Return a configuration with a limit, a tag and a timeout that tell where they come from."""
    selector = WorkloadSelector(
        prefixes=list(prefixes), names=list(names), filter="metadata.color == red" if red else ""
    )
    timeout = ConnectionConfig(connect_timeout=datetime.timedelta(seconds=1 + most))
    dynamic = DynamicConfig(
        inbound_connections=InboundConnectionsConfig(max_inbound_connections=most),
        local_connection={"http": timeout, name: timeout},
    )
    bootstrap = BootstrapConfig(stats_tags=[name])
    data = ProxyConfiguration(workloads=selector, dynamic_config=dynamic, bootstrap_config=bootstrap)
    return PROXY_CONFIGURATION.new(name, data)


def content(found: headway.Resource[Any]) -> tuple[int, list[str], dict[str, int]]:
    """Return the limit, the tags and the seconds of a computed configuration."""
    dynamic = found.data.dynamic_config
    seconds = {port: int(each.connect_timeout.total_seconds()) for port, each in dynamic.local_connection.items()}
    return (
        dynamic.inbound_connections.max_inbound_connections,
        list(found.data.bootstrap_config.stats_tags),
        seconds,
    )


async def test_pc1_changes_reconcile_the_workloads_that_are_or_were_selected() -> None:
    async with one_shot(APP, "proxy-configuration") as shot:
        await shot.given(meshed("web-1"), meshed("api-1"))
        old, new = limited("c", 1, prefixes=["web"]), limited("c", 1, names=["api-1"])
        moved = await shot.mapped(PROXY_CONFIGURATION, old=old, new=new)
        assert sorted(id.name for id in moved) == ["api-1", "web-1"]
        assert await shot.mapped(WORKLOAD, new=meshed("web-1")) == [WEB]


async def test_pc2_computed_configuration_needs_a_mesh_port_and_a_configuration() -> None:
    """Scenarios 11 and 12. The workload owns it."""
    async with one_shot(APP, "proxy-configuration") as shot:
        stored, *_ = await shot.given(meshed("web-1"), limited("c", 1, prefixes=["web"]))
        await settled(shot, WEB)
        assert (await shot.client.read(COMPUTED_PROXY_CONFIGURATION, "web-1")).owner == stored.id
        await shot.given(meshed("web-1", False))
        assert [each.what for each in await settled(shot, WEB)] == ["delete"]
        await shot.given(meshed("web-1"))
        await settled(shot, WEB)
        await shot.client.delete(PROXY_CONFIGURATION.id("c"))
        assert [each.what for each in await settled(shot, WEB)] == ["delete"]


async def test_pc3_pc4_better_configurations_win_and_lists_and_maps_are_joined() -> None:
    """A name beats a prefix, and a longer prefix a shorter one. A value of 0 wins over nothing."""
    async with one_shot(APP, "proxy-configuration") as shot:
        await shot.given(meshed("web-1", metadata={"color": "red"}))
        await shot.given(limited("short", 1, prefixes=["w"]), limited("long", 2, prefixes=["web", "x"]))
        await shot.given(limited("zero", 0, names=["web-1"]), limited("other", 9, prefixes=["web-1-"]))
        await settled(shot, WEB)
        found = content(await shot.client.read(COMPUTED_PROXY_CONFIGURATION, "web-1"))
        assert found == (2, ["short", "long", "zero"], {"http": 1, "short": 2, "long": 3, "zero": 1})


def test_pc3_of_equal_configurations_the_older_one_wins() -> None:
    # A prefix of other workloads does not count.
    old, new = at(1, limited("b", 1, prefixes=["web"])), at(2, limited("a", 2, prefixes=["web", "other-"]))
    for found in ([old, new], [new, old]):
        dynamic = merged(found, meshed("web-1")).dynamic_config
        assert dynamic is not None
        assert dynamic.inbound_connections == InboundConnectionsConfig(max_inbound_connections=1)


def test_pc3_prefix_beside_a_name_makes_a_configuration_no_better() -> None:
    old, new = at(1, limited("b", 1, names=["web-1"])), at(2, limited("a", 2, names=["web-1"], prefixes=["web"]))
    dynamic = merged([new, old], meshed("web-1")).dynamic_config
    assert dynamic is not None
    assert dynamic.inbound_connections == InboundConnectionsConfig(max_inbound_connections=1)


async def test_pc5_w19_prefix_begins_the_name_and_a_status_says_if_it_selects() -> None:
    """Consul also takes a prefix in the middle of a name, and writes no status."""
    async with one_shot(alone("proxy-configuration-status"), "proxy-configuration-status") as shot:
        await shot.given(meshed("my-web"), limited("c", 1, prefixes=["web"]))
        id = PROXY_CONFIGURATION.id("c")
        for reason in ("NoWorkloadsFound", "WorkloadsFound"):
            await settled(shot, id)
            found = conditions(await shot.client.read(PROXY_CONFIGURATION, "c"), KEY)
            assert [each for _, _, each, _ in found] == [reason]
            await shot.requests()
            await shot.given(meshed("web-1"))
            assert id in [each.id.without_uid() for each in await shot.requests()] or reason == "WorkloadsFound"


async def test_status_that_another_writer_replaces_is_written_again() -> None:
    async with one_shot(alone("proxy-configuration-status"), "proxy-configuration-status") as shot:
        stored, *_ = await shot.given(limited("c", 1, prefixes=["web"]))
        await settled(shot, PROXY_CONFIGURATION.id("c"))
        await shot.requests()
        await shot.client.write_status(stored, KEY, [headway.Condition(type="Wrong")])
        assert [each.id.name for each in await shot.requests()] == ["c"]


async def configurations_come_and_go(world: simulation.World) -> None:
    """A configuration comes before its workload, a better one comes, and the first one goes."""
    client = world.client
    await client.apply(limited("a", 1, prefixes=["web"]))
    await client.apply(meshed("web-1"))
    await world.wait_idle()
    await client.apply(limited("b", 2, names=["web-1"]))
    await world.wait_idle()
    await client.delete(PROXY_CONFIGURATION.id("a"))
    await world.wait_idle()


test_configurations_come_and_go = explored(
    alone("proxy-configuration", "proxy-configuration-status"), configurations_come_and_go
)

NAMES = st.sampled_from(["web-1", "web-2", "api"])
CHANGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        lambda name, most, prefix, names, red: limited(name, most, prefixes=[prefix], names=names, red=red),
        st.sampled_from(["a", "b"]),
        st.integers(0, 3),
        st.sampled_from(["web", "we", "nobody"]),
        st.lists(NAMES, max_size=1),
        st.booleans(),
    ),
    st.builds(
        lambda name, is_meshed, metadata: meshed(name, is_meshed, metadata=metadata),
        NAMES,
        st.sampled_from([True, True, False]),
        st.sampled_from([{}, {"color": "red"}]),
    ),
    st.sampled_from([PROXY_CONFIGURATION.id("a"), PROXY_CONFIGURATION.id("b"), WORKLOAD.id("web-1")]),
)


@given(st.lists(st.tuples(CHANGES, st.booleans()), min_size=4, max_size=12))
@FEWER
def test_end_state_follows_from_the_inputs(changes: Sequence[tuple[Any, bool]]) -> None:
    """Whatever has changed before, and whether the controllers were idle between the changes."""
    trio.run(end_state, [(meshed("web-1"), False), *changes])


async def end_state(changes: Sequence[tuple[Any, bool]]) -> None:
    """Make the changes, and compare computed configurations and statuses with those that are expected."""
    with trio.fail_after(30):
        app = alone("proxy-configuration", "proxy-configuration-status")
        async with headway.open_engine("memory:", app) as engine:
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
    workloads = await client.list(WORKLOAD)
    wanted: dict[str, tuple[int, list[str], dict[str, int]]] = {}
    selecting: set[str] = set()
    given = await client.list(PROXY_CONFIGURATION)
    for own in workloads:
        ranked = []
        for each in given:
            selector = each.data.workloads
            assert selector is not None
            is_named, prefix = own.name in selector.names, selector.prefixes[0]
            if (is_named or own.name.startswith(prefix)) and (not selector.filter or own.metadata):
                selecting.add(each.name)
                ranked.append((99 if is_named else len(prefix), each))
        if not ranked or "mesh" not in own.data.ports:
            continue
        ranked.sort(key=lambda pair: (pair[1].uid[:10], pair[1].name), reverse=True)
        ranked.sort(key=lambda pair: pair[0])
        limit = 0
        tags: list[str] = []
        seconds: dict[str, int] = {}
        for _, each in ranked:
            most, tag, timeouts = content(each)
            limit, tags, seconds = most or limit, tags + tag, seconds | timeouts
        wanted[own.name] = (limit, tags, seconds)
    assert {each.name: content(each) for each in await client.list(COMPUTED_PROXY_CONFIGURATION)} == wanted
    for each in given:
        found = [reason for _, _, reason, _ in conditions(each, KEY)]
        assert found == ["WorkloadsFound" if each.name in selecting else "NoWorkloadsFound"]
