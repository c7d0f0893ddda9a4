"""Scenarios: invalid and failing ones are reported, and a fault affects nothing but its target."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headway
from headway.errors import DeclarationError, HistoryCompacted
from headway.testing import simulation
from headway.testing.simulation import Setting, _run, run
from tests.helpers.corpus.staff import Account, Team


class Cloud:
    def __init__(self) -> None:
        self.disks: list[str] = []

    async def make(self, name: str) -> None:
        if name in self.disks:
            raise ValueError(f"there is a disk {name} already")
        self.disks.append(name)


def twice(process: simulation.Process) -> headway.App:
    """Create a disk again if the process was killed after creating it."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=team)
    async def disks(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is not None and rt.controller not in found.status:
            await process.outside.make(request.id.name)
            async with rt.conditions(found) as conditions:
                conditions.set("Made", True)

    return app


async def in_haste(world: simulation.World) -> None:
    """Wait for nothing."""
    await world.client.apply(world.type("Team").new("core", Team(members=["ada"])))


def test_scenario_that_waits_for_nothing_is_still_explored() -> None:
    with pytest.raises(simulation.Refuted):
        simulation.explore(twice, in_haste, outside=Cloud)


def marks(_: simulation.Process) -> headway.App:
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=team)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is not None:
            async with rt.conditions(found) as conditions:
                conditions.set("Ready", True)

    return app


async def waits_for_readiness(world: simulation.World) -> None:
    await in_haste(world)
    await headway.until_condition(world.client, world.type("Team"), "core", "Ready")


def test_waits_of_users_outlast_a_restart_of_the_server() -> None:
    """Users meet no faults. The server restarts while they wait for what the controller is about to write."""
    explored = simulation.explore(marks, waits_for_readiness, plan="server_restart(1)")
    assert explored.complete


def test_watch_of_users_says_that_the_server_has_restarted() -> None:
    async def watches(world: simulation.World) -> None:
        async with world.client.watch(world.type("Team")) as events:
            async for event in events:
                if isinstance(event, headway.client.SnapshotEnd):
                    await world.restart_server()

    with pytest.raises(HistoryCompacted, match="the simulated server has restarted: open the watch again"):
        simulation.explore(marks, watches, plan="none")


def test_scenario_that_waits_for_what_never_comes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The renewals of leases would let time pass without an end."""
    monkeypatch.setattr(_run, "_PATIENCE", 600.0)

    async def waits(world: simulation.World) -> None:
        await in_haste(world)
        await headway.until(world.client, world.type("Team"), "nobody", lambda team: team is not None)

    with pytest.raises(simulation.Refuted, match=r"converges: the scenario waits for .*\n.*in waits\n"):
        simulation.explore(twice, waits, plan="none")


def test_scenario_without_events_is_refused() -> None:
    async def nothing(world: simulation.World) -> None:
        await world.wait_idle()

    with pytest.raises(headway.errors.DeclarationError, match="gives no controller anything to do"):
        simulation.explore(twice, nothing, outside=Cloud)


def test_reconciler_that_makes_no_call_is_refused_by_its_name() -> None:
    """The scenario is right, and the program is not: the write is never awaited."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=team)
    async def teams(rt: headway.Runtime, request: headway.Request) -> None:
        rt.client.apply(team.new(f"{request.id.name}-too", Team())).close()

    with pytest.raises(DeclarationError, match=r"^controller teams: its reconciler is called, but .* await each call"):
        simulation.explore(app, in_haste)


def test_scenario_that_forgets_an_await_is_refused_with_its_line() -> None:
    """Nothing happens, and every run would agree on that. A later error may be a consequence."""

    async def forgets(world: simulation.World) -> None:
        await in_haste(world)
        world.client.delete(world.type("Team").id("core"))  # type: ignore[unused-coroutine]

    async def fails(world: simulation.World) -> None:
        world.client.apply(world.type("Team").new("core"))  # type: ignore[unused-coroutine]
        await world.client.read(world.type("Team"), "core")

    async def waits(world: simulation.World) -> None:
        await in_haste(world)
        world.wait_idle()  # type: ignore[unused-coroutine]

    for scenario, name, line in (
        (forgets, "Client.delete", 2),
        (waits, "World.wait_idle", 2),
        (fails, "Client.apply", 1),
    ):
        with pytest.raises(DeclarationError) as caught:
            simulation.explore(twice, scenario, outside=Cloud)
        assert str(caught.value).startswith("the scenario, or a function that it calls, forgets an await: coroutine ")
        assert f"'{name}' was never awaited, at " in str(caught.value)
        assert f"{__file__}:{scenario.__code__.co_firstlineno + line}: world." in str(caught.value)


def test_decorator_that_is_used_wrongly_is_refused_at_the_declaration() -> None:
    """Pytest would report a missing fixture, and the engine an error in its own code."""
    explored: Any = simulation.explored

    with pytest.raises(
        DeclarationError, match=r"explored requires an app, .* the form is @simulation\.explored\(app\)"
    ):
        explored(in_haste)
    with pytest.raises(DeclarationError, match=r"must be an async function \(`async def`\): the form is @simulation"):
        explored(twice)(lambda _: None)


def test_plan_without_effect_is_reported() -> None:
    with pytest.warns(UserWarning, match=r"every fault of the plan 'crash_after\(99\)' struck"):
        explored = simulation.explore(twice, in_haste, outside=Cloud, plan="crash_after(99)")
    assert [str(plan) for plan in explored.unmet] == ["crash_after(99)"]
    assert "some faults never struck: crash_after(99)" in str(explored)


def test_exception_of_the_outside_world_is_in_the_story() -> None:
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(twice, in_haste, outside=Cloud, plan="crash_after(1)")
    assert "call outside.make('core'): ValueError: there is a disk core already" in str(caught.value)


def test_scenario_that_fails_without_faults_is_reported() -> None:
    async def fails(world: simulation.World) -> None:
        await in_haste(world)
        raise KeyError("core")

    with pytest.raises(KeyError) as caught:
        simulation.explore(twice, fails, outside=Cloud)
    assert "in a simulation under: none" in caught.value.__notes__[0]


def test_scenario_that_awaits_asyncio_is_told_what_to_write_instead() -> None:
    async def sleeps(world: simulation.World) -> None:
        await in_haste(world)
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match="no running event loop") as caught:
        simulation.explore(twice, sleeps, outside=Cloud)
    assert "use trio.sleep()" in caught.value.__notes__[0]


def noted(*, watch: bool) -> headway.App:
    """Return a program that ignores conflicts, and that watches its accounts or not."""
    app = headway.App("staff")
    team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

    def nothing(*_: object) -> list[headway.ResourceId]:
        return []

    @app.controller(manages=team, watches=[headway.watch(account, headway.mappers.owner() if watch else nothing)])
    async def notes(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is not None:
            try:
                await rt.apply(account.new("note", Account(login=found.data.note), owner=found))
            except headway.Conflict:
                return

    return app


async def notes_change(world: simulation.World) -> None:
    for note in ("x", "y"):
        await world.client.apply(world.type("Team").new("core", Team(note=note)))
        await world.wait_idle()


def test_conflict_reaches_a_watcher_of_the_resource() -> None:
    """Another writer's change arrives by the stream."""
    result = run(Setting(app=noted(watch=True), scenario=notes_change), simulation.Plan.parse("conflict(2)"))
    assert result.findings == ()
    result = run(Setting(app=noted(watch=False), scenario=notes_change), simulation.Plan.parse("conflict(2)"))
    assert [each.oracle for each in result.findings] == ["again"]


def test_killed_process_reaches_the_outside_world_by_no_plain_method() -> None:
    """A ``finally`` block is an example: a real kill would not run it."""

    class Sign:
        def __init__(self) -> None:
            self.words: list[str] = []

        async def light(self) -> None:
            self.words.append("on")

        def put_out(self) -> None:
            self.words.append("off")

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team = app.type("staff", "v1", "Team", Team)

        @app.controller(manages=team)
        async def signs(_: headway.Runtime, __: headway.Request[Team]) -> None:
            try:
                await process.outside.light()
            finally:
                process.outside.put_out()

        return app

    plan = simulation.Plan.parse("crash_after(1)")
    result = run(Setting(app=make, scenario=in_haste, outside=Sign, quiet=None), plan)
    assert result.outside["words"][:2] == ["on", "on"]


@pytest.mark.parametrize("plan", ["none", "server_restart(1)", "restore(1, 5)"])
def test_client_that_a_scenario_keeps_outlasts_restarts_of_the_server(plan: str) -> None:
    names: list[str] = []

    class Tolerant(Cloud):
        async def make(self, name: str) -> None:
            self.disks = sorted({*self.disks, name})

    async def keeps_its_client(world: simulation.World) -> None:
        client, team = world.client, world.type("Team")
        for name in ("core", "web"):
            await client.apply(team.new(name, Team(members=["ada"])))
            await world.wait_idle()
        names[:] = [each.name for each in await client.list(team)]

    result = run(Setting(app=twice, scenario=keeps_its_client, outside=Tolerant), simulation.Plan.parse(plan))
    assert names == ["core", "web"]
    assert len(result.struck) == (plan != "none")
