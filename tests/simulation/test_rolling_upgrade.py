"""Two programs on one store, each with its own server, while processes move from one to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import headway
from headway.base import Steps
from headway.client import Client
from headway.protobuf import field, message
from headway.resource import ResourceType
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.testing import simulation
from headway.testing.simulation import Setting, run
from headway.testing.simulation.oracles import shown_as
from headway.versions import _storing, migrate
from tests.helpers.versions import V1, V2, Crew, Member, Roster, down, up


@message(name="tests.Badge")
class Badge:
    text: str = field(1)


BADGE = ResourceType("tests", "v1", "Badge", Badge)


def program(release: str) -> headway.App:
    """Keep a badge for each team with the names of its members, and give each team a color in the program's version."""
    app = headway.App("staff")
    for type in (BADGE, V1) if release == "former" else (BADGE, V1, V2):
        app.registry.register(type)
    if release != "former":
        app.converter(V1, V2, up=up, down=down)
    if release == "step 1":
        app.store_as(V1)
    team: ResourceType[Any] = V2 if release == "step 2" else V1

    @app.controller(
        manages=team, watches=[headway.watch(BADGE, headway.mappers.same_name())], placement="every_process"
    )
    async def badges(rt: headway.Runtime, request: headway.Request) -> None:
        found = rt.cache.get(team, request.id)
        if found is None:
            await rt.client.delete(BADGE.id(request.id.name))
            return
        names = found.data.names if team is V1 else [member.name for member in found.data.members]
        if not found.data.color:
            found.data.color = "red"
            await rt.client.write(found)
        await rt.client.apply(BADGE.new(request.id.name, Badge(text=" ".join(names))))

    return app


def upgrade(before: str, after: str) -> Callable[[simulation.Process], headway.App]:
    """Run the old program in each process's first life, and the new one after that."""
    lives: WeakKeyDictionary[simulation.Process, int] = WeakKeyDictionary()

    def make(process: simulation.Process) -> headway.App:
        lives[process] = life = lives.get(process, 0) + 1
        # The world makes the first program only to learn its types. It gets the new program, so its client has the new
        # types.
        first = process.name == "p1" and life == 1
        old = life == (2 if process.name == "p1" else 1)
        return program(before if old and not first else after)

    return make


def rolling(before: str, after: str) -> simulation.Scenario:
    """Let users of both versions write while one process after the other is upgraded."""
    role = "lead" if after == "step 2" else ""

    async def scenario(world: simulation.World) -> None:
        former = program(before).registry
        users = Client(InProcessChannel(ResourceService(world.store, former)), former)
        for name in ("core", "gone"):
            await users.write(V1.new(name, Roster(names=["ada"])))
        await world.wait_idle()
        world.crash(1)
        await world.wait_idle()
        new = await world.client.read(V2, "core")
        new.data.members = [Member(name="ada", role=role), Member(name="bea", role=role)]
        new.data.room = role
        await world.client.apply(V2.new("core", new.data))
        await world.wait_idle()
        old = await world.client.read(V1, "core")
        await world.client.apply(V1.new("core", Roster(names=["bea", "cyd"], color=old.data.color)))
        await world.client.delete(V1.id("gone"))
        await world.wait_idle()
        world.crash(0)
        await world.wait_idle()
        await migrate(world.store, world.types)

    return scenario


def no_badge_is_lost(world: simulation.World) -> None:
    """Fail if the badge of an existing team is deleted."""
    lost = [each for each in world.trace.commits if each.kind == BADGE.kind and each.key[2] == "core" and not each.new]
    assert not lost, f"core lost its badge: {lost[0]}"


def no_role_is_lost(world: simulation.World) -> None:
    """Fail if a stored role or room is lost: each program and each user writes the team."""
    roles: dict[str, str] = {}
    for each in world.trace.commits:
        if each.kind == V2.kind and each.new is not None and each.key[2] == "core":
            data: Crew = V2.view(shown_as(V2, each.new, world.types)).data
            now = {member.name: member.role for member in data.members} | {"the room": data.room}
            lost = [name for name, role in roles.items() if role and now.get(name, role) != role]
            assert not lost, f"{', '.join(lost)} lost what {each} had"
            roles = now


async def all_is_well(world: simulation.World) -> None:
    stored = {(kind[1], key[2]): each for (kind, key), each in world.store.now.items() if kind[0] == "tests"}
    assert sorted(stored) == [("Badge", "core"), ("Team", "core")]
    assert BADGE.view(stored["Badge", "core"]).data.text == "bea cyd"


HOLDS: list[simulation.Invariant] = [all_is_well, no_badge_is_lost, no_role_is_lost]
STEPS = [("former", "step 1"), ("step 1", "step 2"), ("step 2", "step 1")]


def found(before: str, after: str, plan: str = "none") -> list[str]:
    """Return the findings of one upgrade under a plan."""
    setting = Setting(
        app=upgrade(before, after),
        scenario=rolling(before, after),
        processes=2,
        own_services=True,
        holds=HOLDS,
        quiet=120.0,
    )
    return [str(each) for each in run(setting, simulation.Plan.parse(plan), most_steps=100).findings]


@pytest.mark.parametrize(
    "plan", ["none", "crash_after(4)", pytest.param("commit_late(3, 30.0)", marks=pytest.mark.wide)]
)
@pytest.mark.parametrize(("before", "after"), STEPS)
def test_each_step_of_an_upgrade_and_of_the_way_back_is_safe(before: str, after: str, plan: str) -> None:
    assert found(before, after, plan) == []


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("before", "after"), STEPS)
def test_each_step_of_an_upgrade_is_safe_under_every_fault(before: str, after: str) -> None:
    tried = simulation.explore(
        upgrade(before, after),
        rolling(before, after),
        processes=2,
        own_services=True,
        holds=HOLDS,
        seconds=500.0,
    )
    assert tried.complete, str(tried)


def test_upgrade_in_one_step_is_refuted() -> None:
    """A program that knows only the old version sees the teams deleted, and deletes their badges."""
    wrong = found("former", "step 2")
    assert any("reads Team core as absent after it has read it" in each for each in wrong), wrong


def test_write_without_a_merge_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles are lost as soon as the old program writes the team."""

    def as_written(after: Any) -> Steps[Any]:
        yield from ()
        return after

    monkeypatch.setattr(_storing, "merges", lambda _, after, __: [as_written(after)])
    assert any(each.startswith("no_role_is_lost: ") for each in found("step 1", "step 2"))
