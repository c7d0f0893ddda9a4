"""Deletions that never end, controllers that undo each other's changes, and states of the world outside."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from headway.resource import Key, Kind, pb
from headway.testing import simulation
from headway.testing.simulation import Committed, Result, Setting, Trace, run
from tests.helpers.corpus.staff import Account, Cloud, Team, come_and_go, one_team


def app_of(*declare: Any) -> headway.App:
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    app.type("staff", "v1", "Account", Account)
    for each in declare:
        each(app, team)
    return app


def keeping(app: headway.App, team: Any) -> None:
    @app.controller(manages=team)
    async def keeper(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        """Add a finalizer that nothing removes."""
        found = rt.resource(request)
        if found is not None and not found.is_deleting:
            async with rt.finalizer(found):
                pass


def result_of(app: Any, scenario: simulation.Scenario, plan: str = "none", **settings: Any) -> Result:
    return run(Setting(app=app, scenario=scenario, quiet=60.0, **settings), simulation.Plan.parse(plan))


def test_deletion_that_waits_for_ever_is_found() -> None:
    result = result_of(app_of(keeping), come_and_go)
    assert [str(each) for each in result.findings] == [
        "deletion: Team core is marked for deletion and waits for the finalizer keeper, which nothing removes"
    ]


def noting(name: str, text: str) -> Any:
    def declare(app: headway.App, team: Any) -> None:
        @app.controller(manages=team, name=name)
        async def notes(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            found = rt.resource(request)
            if found is not None and found.data.note != text:
                await rt.client.apply(team.new(found.name, Team(members=found.data.members, note=text)))

    return declare


def test_controllers_that_undo_each_others_changes_are_named() -> None:
    result = run(
        Setting(app=app_of(noting("one", "x"), noting("other", "y")), scenario=one_team),
        simulation.Plan(),
        most_steps=60,
    )
    first = str(result.findings[0])
    assert first.startswith("fight: "), first
    assert "one" in first
    assert "other undo each other's changes of Team core again and again" in first or "one undo" in first


def creating(_: simulation.Process) -> headway.App:
    """Return an app with a controller that creates an account for each team, and one that deletes it."""
    app = headway.App("staff")
    team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)
    watches = [headway.watch(account, headway.mappers.same_name())]

    @app.controller(manages=team, watches=watches)
    async def one(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        await rt.client.apply(account.new(request.id.name, Account()))

    @app.controller(manages=team, watches=watches)
    async def other(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        if (found := rt.cache.get(account, request.id.name)) is not None:
            await rt.client.delete(found)

    return app


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda _: app_of(noting("one", "x"), noting("other", "y")), "Team core again and again: note is "),
        (creating, "Account core again and again: existence is "),
    ],
)
def test_exploration_refutes_a_fight_and_names_both_and_the_field(make: Any, what: str) -> None:
    with pytest.raises(simulation.Refuted) as raised:
        simulation.explore(make, one_team)
    first = str(raised.value).partition("\n")[0]
    assert f" undo each other's changes of {what}" in first
    assert first.startswith(("fight: one and other ", "fight: other and one "))


def agreeing(app: headway.App, team: Any) -> None:
    """Write other notes until the third turn."""

    @app.controller(manages=team)
    async def agrees(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is not None and found.data.note == "x" and len(found.data.members) < 3:
            await rt.client.apply(team.new(found.name, Team(members=[*found.data.members, "y"], note="y")))


def test_controllers_that_agree_after_a_few_turns_are_accepted() -> None:
    assert not result_of(app_of(noting("one", "x"), agreeing), one_team).findings


TEAM: Kind = ("staff", "Team")
CORE: Key = ("default", "default", "core")


def changes(*by: str) -> Trace:
    """Return a trace in which each of these writers changes the resource from x to y, or back."""
    trace = Trace()
    states = [pb.Resource(metadata={"state": text}) for text in "xy"]
    for at, writer in enumerate(by):
        trace.add(Committed(0.0, at + 1, TEAM, CORE, states[at % 2], states[(at + 1) % 2], writer, 1))
    return trace


def never_two_disks(stored: simulation.Stored) -> None:
    disks = sorted(stored.outside.disks)
    assert disks in ([], ["x"], ["y"]), f"there are {disks}"


def replacing(*, remove_first: bool) -> Any:
    def make(process: simulation.Process) -> headway.App:
        def declare(app: headway.App, team: Any) -> None:
            @app.controller(manages=team)
            async def disks(rt: headway.Runtime, request: headway.Request[Team]) -> None:
                found = rt.resource(request)
                if found is None or found.data.note in process.outside.disks:
                    return
                if remove_first:
                    for each in list(process.outside.disks):
                        await process.outside.remove(each)
                await process.outside.put(found.data.note)
                for each in set(process.outside.disks) - {found.data.note}:
                    await process.outside.remove(each)

        return app_of(declare)

    return make


async def another_disk(world: simulation.World) -> None:
    for note in ("x", "y"):
        await world.client.apply(world.type("Team").new("core", Team(note=note)))
        await world.wait_idle()


def test_state_of_the_outside_that_lasts_for_a_moment_is_found() -> None:
    result = result_of(replacing(remove_first=False), another_disk, outside=Cloud, always=[never_two_disks])
    assert [str(each).split("\n")[0] for each in result.findings] == [
        "never_two_disks: when the store was at 7, after the call outside.put('y'): there are ['x', 'y']"
    ]
    assert not result_of(replacing(remove_first=True), another_disk, outside=Cloud, always=[never_two_disks]).findings
