"""Plans of two faults: a crash, and then a call of another controller that fails or is slow."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

import headway
from headway.testing import simulation
from headway.testing.simulation import faults
from tests.helpers.corpus.staff import Account, Team

_TRIED = ("crash_after", "not_done", "answer_late", "hurried", "done_again")
OTHERS = [each.name for each in faults.FAULTS if each.name not in _TRIED]
"""Every fault but those of such plans. The last two strike nothing."""

GRACE = 0.002
"""The seconds after which an account should exist. The first attempt after a failure is later."""


class Desks:
    """The world outside: who has a desk."""

    def __init__(self) -> None:
        self.desks: set[str] = set()

    async def reserve(self, name: str) -> None:
        self.desks.add(name)

    async def release(self, name: str) -> None:
        self.desks.discard(name)

    async def listed(self) -> list[str]:
        return sorted(self.desks)


def clears_what_is_left(process: simulation.Process) -> headway.App:
    """After a start, a desk without an account counts as left over. The account may only be late."""
    app = headway.App("staff")
    team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)
    desks, reserved = process.outside, set[str]()

    @app.controller(manages=team)
    async def reserves(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        name = request.id.name
        if rt.resource(request) is not None and name not in reserved:
            if name not in await desks.listed():
                await desks.reserve(name)
            reserved.add(name)

    @app.controller(manages=team, watches=[headway.watch(account, headway.mappers.owner())])
    async def enters(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        if (found := rt.resource(request)) is not None:
            await rt.apply(account.new(found.name, Account(login=found.name), owner=found))

    @app.controller(manages=team, watches=[headway.watch(account, headway.mappers.owner())])
    async def clears(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        if all(each.what != "started" for each in request.reasons):
            return
        listed = await desks.listed()
        await trio.sleep(GRACE)
        if request.id.name in listed and rt.cache.get(account, request.id.name) is None:
            await desks.release(request.id.name)

    return app


async def one_team(world: simulation.World) -> None:
    await world.wait_idle()
    await world.client.apply(world.type("Team").new("core", Team()))
    await world.wait_idle()


@pytest.mark.wide
def test_what_a_crash_leaves_half_done_meets_a_failed_call_of_another_controller() -> None:
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(clears_what_is_left, one_team, outside=Desks, without=OTHERS)
    assert [each.name for each in caught.value.plan] == ["crash_after", "not_done"]
    for apart in (["crash_after"], ["not_done", "answer_late"]):
        found = simulation.explore(clears_what_is_left, one_team, outside=Desks, without=[*OTHERS, *apart])
        assert found.complete
    assert [str(each) for each in found.struck] == ["crash_after(1)", "crash_after(2)", "crash_after(3)"]


class Seats:
    """The world outside: numbered seats, which a program may look at when it starts."""

    def __init__(self) -> None:
        self.seats: dict[str, str] = {}

    async def taken(self) -> dict[str, str]:
        return dict(self.seats)

    async def assign(self, number: str, name: str) -> None:
        self.seats.setdefault(number, name)


@pytest.mark.parametrize("swallowed", [(), pytest.param((ConnectionError,), marks=pytest.mark.wide)])
def test_crash_meets_a_failed_call_of_the_next_start(swallowed: tuple[type[Exception], ...]) -> None:
    """A process that begins without its memory gives every team a second seat."""

    def seats(process: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, outside, known = app.type("staff", "v1", "Team", Team), process.outside, dict[str, str]()

        async def load(_: headway.Runtime) -> None:
            with suppress(*swallowed):
                known.update(await outside.taken())

        @app.controller(manages=team, initialiser=load)
        async def assigns(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            if rt.resource(request) is not None and request.id.name not in known.values():
                seats = await outside.taken()
                number = str(len(seats))
                await outside.assign(number, request.id.name)
                known[number] = request.id.name

        return app

    without = [*OTHERS, "answer_late"]
    if not swallowed:
        assert simulation.explore(seats, one_team, outside=Seats, without=without).complete
        return
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(seats, one_team, outside=Seats, without=without)
    assert [each.name for each in caught.value.plan] == ["crash_after", "not_done"]
