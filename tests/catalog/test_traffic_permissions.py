"""The traffic permissions controller: TP-1 to TP-8 of Consul's, with W-3 to W-5, W-14 and W-18 done better."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

import headway
from catalog.controllers.traffic_permissions import KEY, collect
from catalog.messages import (
    Action,
    NamespaceTrafficPermissions,
    Permission,
    Source,
)
from catalog.types import (
    COMPUTED_TRAFFIC_PERMISSIONS,
    NAMESPACE_TRAFFIC_PERMISSIONS,
    PARTITION_TRAFFIC_PERMISSIONS,
    TRAFFIC_PERMISSIONS,
    WORKLOAD_IDENTITY,
)
from headway.testing import one_shot
from tests.catalog.permissions import in_namespace, in_partition, senders, to_identity
from tests.catalog.policies import alone, conditions, running, settled

APP, NAME = alone("traffic-permissions"), "traffic-permissions"
API, WEB = COMPUTED_TRAFFIC_PERMISSIONS.id("api"), COMPUTED_TRAFFIC_PERMISSIONS.id("web")
IDENTITY = WORKLOAD_IDENTITY.new("api")
PROCESSED = ("Traffic permissions have been computed", "TRUE", "", "Traffic Permission processed successfully")


def said(text: str) -> tuple[str, str, str, str]:
    """Return the condition of computed permissions."""
    return ("Traffic permissions have been computed", "TRUE", "", f"Workload identity api has {text} permissions")


async def test_tp1_changes_of_identities_and_permissions_reconcile_the_computed_ones() -> None:
    async with one_shot(APP, NAME) as shot:
        await shot.given(headway.PARTITION.new("lab"), headway.NAMESPACE.new("app"))
        await shot.given(IDENTITY, WORKLOAD_IDENTITY.new("web"), WORKLOAD_IDENTITY.new("api", namespace="app"))
        await shot.given(WORKLOAD_IDENTITY.new("api", partition="lab"))
        other = COMPUTED_TRAFFIC_PERMISSIONS.id("api", namespace="app")
        assert await shot.mapped(WORKLOAD_IDENTITY, new=IDENTITY) == [API]
        assert await shot.mapped(TRAFFIC_PERMISSIONS, new=to_identity("one", "api")) == [API]
        assert await shot.mapped(NAMESPACE_TRAFFIC_PERMISSIONS, new=in_namespace("one")) == [API, WEB]
        assert await shot.mapped(PARTITION_TRAFFIC_PERMISSIONS, new=in_partition("one")) == [other, API, WEB]


async def test_tp2_permissions_that_move_reconcile_both_identities() -> None:
    async with one_shot(APP, NAME) as shot:
        old, new = to_identity("one", "api"), to_identity("one", "web")
        assert await shot.mapped(TRAFFIC_PERMISSIONS, old=old, new=new) == [API, WEB]
        assert await shot.mapped(TRAFFIC_PERMISSIONS, old=old) == [API]


async def test_tp3_without_an_identity_nothing_is_computed() -> None:
    """The name in the permissions may even be one that no identity can have."""
    async with one_shot(APP, NAME) as shot:
        await shot.given(to_identity("one", "api"), to_identity("two", "Not A Name"), IDENTITY)
        await settled(shot, API)
        assert senders((await shot.client.read(COMPUTED_TRAFFIC_PERMISSIONS, "api")).data.allow_permissions) == ["one"]
        await shot.client.delete(WORKLOAD_IDENTITY.id("api"))
        await headway.until_gone(shot.client, COMPUTED_TRAFFIC_PERMISSIONS, "api")
        assert await settled(shot, API) == ()
        assert await shot.client.list(COMPUTED_TRAFFIC_PERMISSIONS) == []


async def test_tp4_w3_collects_by_kind_and_then_by_name() -> None:
    """The order is: identity, partition, namespace. Permissions of another tenancy are left out."""
    async with one_shot(APP, NAME) as shot:
        await shot.given(headway.PARTITION.new("lab"), headway.NAMESPACE.new("app"), IDENTITY)
        for name in ("b", "a"):
            await shot.given(in_namespace(f"n-{name}"), in_partition(f"p-{name}"), to_identity(f"t-{name}", "api"))
        await shot.given(in_namespace("n-app", namespace="app"), in_partition("p-lab", partition="lab"))
        await shot.given(to_identity("t-app", "api", namespace="app"), to_identity("t-web", "web"))
        await settled(shot, API)
        computed = (await shot.client.read(COMPUTED_TRAFFIC_PERMISSIONS, "api")).data
        assert senders(computed.allow_permissions) == ["t-a", "t-b", "p-a", "p-b", "n-a", "n-b"]
        assert computed.deny_permissions == []


def test_tp4_whatever_does_not_allow_denies() -> None:
    """Validation accepts ALLOW alone, as in Consul's community edition."""
    permission = Permission(sources=[Source(identity_name="x")])
    given = [
        NamespaceTrafficPermissions(action=action, permissions=[permission])
        for action in (Action.ACTION_DENY, Action.ACTION_ALLOW, Action.ACTION_UNSPECIFIED)
    ]
    computed = collect(given)
    assert (len(computed.allow_permissions), len(computed.deny_permissions)) == (1, 2)


@pytest.mark.parametrize("one", [to_identity("one", "api", senders=0), in_namespace("one"), in_partition("one")])
async def test_tp5_is_default_unless_something_contributes_even_without_permissions(one: Any) -> None:
    async with one_shot(APP, NAME) as shot:
        await shot.given(IDENTITY)
        await settled(shot, API)
        assert (await shot.client.read(COMPUTED_TRAFFIC_PERMISSIONS, "api")).data.is_default
        await shot.given(one)
        await settled(shot, API)
        assert not (await shot.client.read(COMPUTED_TRAFFIC_PERMISSIONS, "api")).data.is_default


async def test_tp6_tp7_writes_the_computed_ones_and_then_the_statuses() -> None:
    """First of each that contributes, and last of the computed ones, which the identity owns."""
    async with one_shot(APP, NAME) as shot:
        identity, *_ = await shot.given(IDENTITY)
        await settled(shot, API)
        computed = await shot.client.read(COMPUTED_TRAFFIC_PERMISSIONS, "api")
        assert computed.owner == identity.id
        assert conditions(computed, KEY) == [said("no")]

        given = await shot.given(to_identity("t", "api"), in_partition("p"), in_namespace("n"))
        done = await settled(shot, API)
        assert [(each.what, each.id.name) for each in done] == [
            ("write", "api"),
            ("status", "t"),
            ("status", "p"),
            ("status", "n"),
            ("status", "api"),
        ]
        assert done[0].request.resource.version == computed.version  # W-14
        for each in given:
            assert conditions(await shot.client.read(each.type, each.id), KEY) == [PROCESSED]
        assert conditions(await shot.client.read(COMPUTED_TRAFFIC_PERMISSIONS, "api"), KEY) == [said("new")]


async def test_tp8_permissions_that_move_change_both_and_the_last_leaves_the_default() -> None:
    async with one_shot(APP, NAME) as shot:
        await shot.given(IDENTITY, WORKLOAD_IDENTITY.new("web"), to_identity("one", "api"))
        await settled(shot, API)
        await shot.given(to_identity("one", "web"))
        for id in (API, WEB):
            await settled(shot, id)
        read = shot.client.read
        assert (await read(COMPUTED_TRAFFIC_PERMISSIONS, "api")).data.is_default
        assert senders((await read(COMPUTED_TRAFFIC_PERMISSIONS, "web")).data.allow_permissions) == ["one"]


@pytest.mark.wide
async def test_w18_status_of_a_partition_is_written_once_however_many_identities_it_has() -> None:
    async with running("traffic-permissions") as engine:
        for number in range(100):
            await engine.client.apply(WORKLOAD_IDENTITY.new(f"i{number}"))
        await engine.wait_idle()
        versions = list[str]()
        async with engine.client.watch(PARTITION_TRAFFIC_PERMISSIONS) as events, trio.open_nursery() as nursery:

            async def collect_versions() -> None:
                async for event in events:
                    if isinstance(event, headway.client.Upserted):
                        versions.append(event.resource.version)

            nursery.start_soon(collect_versions)
            await engine.client.apply(in_partition("one"))
            await engine.wait_idle()
            last = await engine.client.read(PARTITION_TRAFFIC_PERMISSIONS, "one")
            while last.version not in versions:
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert len(versions) == 2, "it is created, and its status is written once"
        assert len(await engine.client.list(COMPUTED_TRAFFIC_PERMISSIONS)) == 100
