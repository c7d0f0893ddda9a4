"""A scenario in which a new program replaces the old one on the same store, at once or one process after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import trio

import headway
from headway import field
from headway.testing import simulation
from tests.helpers.versions import V1, V2, Member, Roster, down, up


@headway.message
class Team:
    members: list[str] = field(1)


@headway.message(name="staff.Account")
class Account:
    login: str = field(1)
    quota: int = field(2)


Make = Callable[[simulation.Process], headway.App]


def old(_: simulation.Process) -> headway.App:
    """Give an account to each member except bea, and declare the team ready."""
    app = headway.App("staff")
    team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

    @app.controller(manages=team, watches=[headway.watch(account, headway.mappers.owner())])
    async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is None:
            return
        for login in found.data.members:
            if login != "bea":
                await rt.apply(account.new(login, Account(login=login, quota=1), owner=found))
        async with rt.conditions(found) as conditions:
            conditions.set("Ready", True)

    return app


def new(*, trusts_status: bool = False, trusts_mark: bool = False, migrates: str = "") -> Make:
    """Give an account with a larger quota to every member."""

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

        async def migrate(rt: headway.Runtime) -> None:
            for each in await rt.client.list(account):
                if migrates == "again and again" or each.data.quota < 10:
                    each.data.quota *= 10
                    await rt.client.write(each)

        @app.controller(
            manages=team,
            watches=[headway.watch(account, headway.mappers.owner())],
            initialiser=migrate if migrates else None,
        )
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            found = rt.resource(request)
            if found is None:
                return
            said = found.status.get(rt.controller)
            if trusts_status and said is not None and said.observed_generation == found.generation:
                return
            if trusts_mark and "migrated" in found.metadata:
                return
            for login in found.data.members:
                await rt.apply(account.new(login, Account(login=login, quota=10), owner=found))
            if trusts_mark:
                found.metadata["migrated"] = "yes"
                await rt.client.write(found)
            async with rt.conditions(found) as conditions:
                conditions.set("Ready", True)

        return app

    return make


async def one_team(world: simulation.World) -> None:
    await world.client.apply(world.type("Team").new("core", Team(members=["ada", "bea"])))
    await world.wait_idle()


def at_once(make: Make) -> simulation.Scenario:
    """Upgrade the program when the work of the old one is done."""

    async def scenario(world: simulation.World) -> None:
        await one_team(world)
        await world.upgrade(make)
        await world.wait_idle()

    return scenario


def rolling(make: Make) -> simulation.Scenario:
    """Upgrade one process after the other, while users go on."""

    async def scenario(world: simulation.World) -> None:
        await one_team(world)
        await world.upgrade(make, process=0)
        await world.client.apply(world.type("Team").new("tools", Team(members=["cyd"])))
        await world.wait_idle()
        await world.client.apply(world.type("Team").new("tools", Team(members=["cyd", "dan"])))
        await world.wait_idle()
        await world.upgrade(make, process=1)
        await world.wait_idle()

    return scenario


@pytest.mark.wide
def test_new_program_that_trusts_the_old_status_is_refuted() -> None:
    """The comparison with the new program running from the start shows it: every run of the scenario ends the same."""
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(old, at_once(new(trusts_status=True)), seconds=0)
    assert str(caught.value.findings[0]).startswith(
        "end state: Account bea absent after the upgrade; if the new program runs from the start: there\n"
    )
    simulation.explore(old, at_once(new(trusts_status=True)), seconds=0, without=["new_from_start"])


@pytest.mark.wide
def test_new_program_that_looks_at_the_outputs_passes() -> None:
    simulation.explore(old, at_once(new()), seconds=0)


def test_migration_that_runs_twice_is_refuted() -> None:
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(old, at_once(new(migrates="again and again")), seconds=0)
    assert caught.value.findings[0].oracle == "again"


@pytest.mark.parametrize("plan", ["crash_after(4)", pytest.param("replaced(2)", marks=pytest.mark.wide)])
def test_migration_that_says_where_it_is_survives_a_crash(plan: str) -> None:
    simulation.explore(old, at_once(new(migrates="once")), plan=plan)


@pytest.mark.wide
@pytest.mark.parametrize("processes", [1, 2])
def test_right_upgrade_passes_under_every_fault(processes: int) -> None:
    explored = simulation.explore(old, at_once(new(migrates="once")), processes=processes, seconds=600)
    assert explored.complete
    assert any(fault.name == "replaced" for fault in explored.struck)


@pytest.mark.parametrize(
    ("make", "quota"), [(new(trusts_mark=True), 1), pytest.param(new(), 10, marks=pytest.mark.wide)]
)
def test_old_program_leads_once_more_during_a_rolling_upgrade(make: Make, quota: int) -> None:
    """A new program that marks what it has done does not notice that the old one has undone it."""
    setting = simulation.Setting(app=old, scenario=rolling(make), processes=2)
    result = simulation.run(setting, simulation.Plan.parse("relay()"))
    assert not result.findings
    ada = next(fields for (_, key), fields in result.contents.items() if key[2] == "ada")
    assert ada["quota"] == str(quota)


@pytest.mark.deep
def test_rolling_upgrade_passes_under_every_fault() -> None:
    assert simulation.explore(old, rolling(new()), processes=2, seconds=600).complete


def test_process_killed_before_its_upgrade_starts_with_the_new_program_only() -> None:
    lives: list[str] = []

    def noted(name: str, make: Make) -> Make:
        def made(process: simulation.Process) -> headway.App:
            lives.append(name)
            return make(process)

        return made

    result = simulation.run(
        simulation.Setting(app=noted("old", old), scenario=at_once(noted("new", new()))),
        simulation.Plan.parse("replaced(1)"),
    )
    assert not result.findings
    assert [str(each) for each in result.struck] == ["replaced(1)"]
    # The world makes each program once more, to learn its types. The last life follows the check for late writes.
    assert lives == ["old", "old", "new", "new", "new"]


def stubborn(seconds: float, ended: list[float]) -> Make:
    """The old program with a source that ends some seconds after it is canceled, or when its process is killed."""

    def make(process: simulation.Process) -> headway.App:
        app = old(process)

        async def linger(_: headway.Runtime, __: object) -> None:
            try:
                await trio.sleep_forever()
            finally:
                began = trio.current_time()
                with trio.CancelScope(shield=True):
                    while not process.killed and trio.current_time() < began + seconds:  # noqa: ASYNC110  # a kill has no event
                        await trio.sleep(1)
                ended.append(trio.current_time() - began)

        app.controllers["accounts"] = dataclasses.replace(app.controllers["accounts"], sources={"linger": linger})
        return app

    return make


@pytest.mark.parametrize(("seconds", "took"), [(5.0, 5), (100.0, 30)])
def test_old_program_may_take_half_a_minute_to_end(seconds: float, took: int) -> None:
    ended: list[float] = []
    setting = simulation.Setting(app=stubborn(seconds, ended), scenario=at_once(new()))
    result = simulation.run(setting, simulation.Plan())
    assert not result.findings
    assert round(ended[0]) in (took, took + 1)


# --- two versions of a type ---


def versions(release: str, *, forgets: bool = False) -> Make:
    """Keep a badge with the number of members; the new program knows the second version of a team."""

    def make(_: simulation.Process) -> headway.App:
        app = headway.App("staff")
        app.registry.register(V1)
        badge = app.type("staff", "v1", "Account", Account)
        team: Any = V1
        if release == "new":
            app.registry.register(V2)
            team = V2
            if not forgets:
                app.converter(V1, V2, up=up, down=down)

        @app.controller(manages=team, watches=[headway.watch(badge, headway.mappers.same_name())])
        async def badges(rt: headway.Runtime, request: headway.Request[Any]) -> None:
            found = rt.resource(request)
            if found is None:
                await rt.client.delete(badge.id(request.id.name))
                return
            names = found.data.names if team is V1 else [each.name for each in found.data.members]
            await rt.apply(badge.new(request.id.name, Account(login=" ".join(names))))

        return app

    return make


def two_versions(make: Make) -> simulation.Scenario:
    """Let users write the first version before the upgrade, and either version after it."""

    async def scenario(world: simulation.World) -> None:
        await world.client.apply(world.type("Team", "v1").new("core", Roster(names=["ada"])))
        await world.wait_idle()
        await world.upgrade(make)
        await world.client.apply(world.type("Team").new("tools", _crew("bea")))
        await world.client.apply(world.type("Team", "v1").new("more", Roster(names=["cyd"])))
        await world.wait_idle()

    return scenario


def _crew(name: str) -> Any:
    return V2.payload(members=[Member(name=name)])


@pytest.mark.wide
def test_upgrade_to_another_version_of_a_type_passes_with_a_converter() -> None:
    simulation.explore(versions("old"), two_versions(versions("new")), seconds=0)


def test_upgrade_to_another_version_without_a_converter_is_refuted() -> None:
    """The new program sees none of the resources that the old version holds."""
    with pytest.raises(simulation.Refuted):
        simulation.explore(versions("old"), two_versions(versions("new", forgets=True)), seconds=0)
