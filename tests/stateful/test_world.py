"""The whole engine, several controllers and processes, under every fault of the simulation, held to the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

import headway
from headway import field
from headway.resource import ResourceType
from headway.testing import simulation
from headway.testing.simulation._oracles import reads_went_back, twice_at_once, two_writers

NAMES = st.sampled_from(["a", "b"])
LOGINS = st.lists(st.sampled_from(["ada", "grace", "tim"]), max_size=3, unique=True)


@headway.message
class Team:
    members: list[str] = field(1)


@headway.message
class Account:
    login: str = field(1)


@headway.message
class Tally:
    count: int = field(1)


class Disks:
    """The world outside: what a team must have there while it is, and must not have afterwards."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def put(self, name: str) -> None:
        self.names.add(name)

    async def remove(self, name: str) -> None:
        self.names.discard(name)


def make(process: simulation.Process) -> headway.App:
    """A singleton that owns, a sharded one with a finalizer outside, and one by index over what the first writes."""
    app = headway.App("staff")
    team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)
    tally: ResourceType[Tally] = app.type("staff", "v1", "Tally", Tally)

    @app.controller(manages=team, watches={account: headway.map_owner()}, concurrency=2)
    async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is None or found.is_deleting:
            return
        async with rt.outputs(account, owner=found) as wanted:
            for login in found.data.members:
                await wanted.apply(f"{found.name}-{login}", Account(login=login))

    @app.controller(manages=team, placement=headway.sharded(shards=2))
    async def disks(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is None:
            return
        async with rt.finalizer(found) as guarded:
            if guarded.alive:
                await process.outside.put(found.name)
            elif guarded.cleaning_up:
                await process.outside.remove(found.name)

    by_login = headway.index(account, "login", lambda each: each.data.login)

    @app.controller(
        manages=tally,
        watches={account: lambda each, _: [tally.id(each.data.login)]},
        indexes=[by_login],
    )
    async def tallies(rt: headway.Runtime, request: headway.Request[Tally]) -> None:
        count = len(rt.cache.index(by_login, request.id.name))
        found = rt.resource(request)
        if count:
            await rt.apply(tally.new(request.id.name, Tally(count=count)))
        elif found is not None:
            await rt.client.delete(found)

    return app


async def all_is_as_wanted(world: simulation.World) -> None:
    """What must have become of everything."""
    teams = {each.name: set(each.data.members) for each in await world.client.list(world.type("Team"))}
    accounts = {each.name for each in await world.client.list(world.type("Account"))}
    tallies = {each.name: each.data.count for each in await world.client.list(world.type("Tally"))}
    assert accounts == {f"{team}-{login}" for team, logins in teams.items() for login in logins}
    logins = [login for logins in teams.values() for login in logins]
    assert tallies == {login: logins.count(login) for login in logins}
    outside: Any = world.outside
    assert outside.names == set(teams)


class WorldMachine(simulation.Machine):
    """Two processes compete for everything; Hypothesis says what users want, and what goes wrong."""

    app = staticmethod(make)
    processes = 2
    outside: ClassVar[Callable[[], Any]] = Disks
    holds = (all_is_as_wanted,)

    @rule(name=NAMES, members=LOGINS)
    def write(self, name: str, members: list[str]) -> None:
        async def apply() -> None:
            team: ResourceType[Any] = self.world.type("Team")
            try:
                await self.world.client.apply(team.new(name, Team(members=members)))
            except headway.InvalidArgument:
                # It is being deleted: nothing of it can be changed any more.
                return

        self.call(apply)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.call(self.world.client.delete, self.world.type("Team").id(name))

    @invariant()
    def the_contract_holds(self) -> None:
        if hasattr(self, "world"):
            trace = self.world.trace
            found = [*reads_went_back(trace), *two_writers(trace.commits), *twice_at_once(trace)]
            assert not found, found


TestWorld = WorldMachine.TestCase
# One of its examples is some hundred times the work of another machine's.
BOUND: Any = settings.default
TestWorld.settings = settings(BOUND, max_examples=BOUND.max_examples // 10, stateful_step_count=20)
