"""What `why` says about finalizers: who removes each, and what that waits for."""

from __future__ import annotations

from typing import Any

import trio

import headway
from headway import events
from headway.resource import NAMESPACE, PARTITION
from headway.why import Finalizer, sentences
from tests.helpers.why_programs import Account, Team, eventually


async def nothing(rt: headway.Runtime, request: headway.Request[Any]) -> None:
    """Reconcile without doing anything."""


async def told_of(engine: headway.Engine, id: headway.ResourceId, sign: str) -> list[str]:
    """Return the sentences about a resource, without indentation, once one of them has this sign."""

    async def ask() -> list[str] | None:
        told = [each.strip() for each in sentences(await engine.why(id))]
        return told if any(sign in each for each in told) else None

    return await eventually(ask)


async def test_namespace_that_waits_names_its_controller_and_what_is_left() -> None:
    """A partition that holds the namespace likewise. Nothing advises to remove a finalizer of Headway."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    async with headway.open_engine("memory:", app, report=events.ignore) as engine:
        await engine.client.write(PARTITION.new("east"))
        blue = await engine.client.write(NAMESPACE.new("blue", partition="east"))
        new = team.new("core", Team(), partition="east", namespace="blue", metadata={"finalizers": "billing"})
        core = await engine.client.write(new)
        await engine.client.delete(PARTITION.id("east"))

        told = await told_of(engine, blue.id, "Its condition Emptied says what is left.")
        assert (
            "Its finalizer headway.tenancy is removed by controller headway/namespaces once nothing is left in the "
            "namespace. Its condition Emptied says what is left." in told
        )
        assert any(each.startswith("Condition Emptied is FALSE") and "1 staff.v1.Team" in each for each in told)
        assert not any("by hand" in each for each in told)
        told = await told_of(engine, PARTITION.id("east"), "Its condition Emptied says what is left.")
        assert any("is removed by controller headway/partitions once nothing is left" in each for each in told)
        assert not any("by hand" in each for each in told)

        core = await engine.client.read(team, core.id)
        core.finalizers = frozenset()
        await engine.client.write(core)
        with trio.fail_after(60):
            await headway.until_gone(engine.client, PARTITION, PARTITION.id("east"))


async def test_finalizer_is_of_the_controller_that_manages_the_type() -> None:
    """Another app may have a controller of the same name, and Headway has one of a program's free name."""
    staff, bills = headway.App("staff"), headway.App("bills")
    team = staff.type("staff", "v1", "Team", Team)
    account = bills.type("staff", "v1", "Account", Account)
    staff.controller(manages=team, name="cleanup")(nothing)
    bills.controller(manages=account, name="cleanup")(nothing)
    for apps in ([staff, bills], [bills, staff]):
        async with headway.open_engine("memory:", *apps, report=events.ignore) as engine:
            core = await engine.client.write(team.new("core", metadata={"finalizers": "cleanup reaper"}))
            stored = (await engine.why(core.id)).stored
            assert stored is not None
            assert stored.finalizers == [Finalizer("cleanup", "staff/cleanup"), Finalizer("reaper")]


async def test_finalizer_in_the_domain_of_its_group_is_of_the_only_controller() -> None:
    """On a cluster, each finalizer has a domain. Other domains are those of other programs."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    app.controller(manages=team, name="teams")(nothing)
    held = "bills/dns staff/dns staffs/dns"
    async with headway.open_engine("memory:", app, report=events.ignore) as engine:
        core = await engine.client.write(team.new("core", metadata={"finalizers": held}))
        stored = (await engine.why(core.id)).stored
        assert stored is not None
        assert [each.controller for each in stored.finalizers] == ["", "staff/teams", ""]
        told = [each.strip() for each in sentences(await engine.why(core.id))]
        assert "Its finalizer staff/dns is removed by controller staff/teams." in told
    other = headway.App("bills")
    other.add_type(team)
    other.controller(manages=team, name="bills")(nothing)
    async with headway.open_engine("memory:", app, other, report=events.ignore) as engine:
        core = await engine.client.write(team.new("core", metadata={"finalizers": held}))
        stored = (await engine.why(core.id)).stored
        assert stored is not None
        assert [each.controller for each in stored.finalizers] == ["", "", ""]
