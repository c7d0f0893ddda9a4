"""Clocks that jump before the users' next change: what is right if that time had passed, or had not come yet."""

from __future__ import annotations

import time
from typing import Any

import pytest

import headway
from headway.testing import simulation
from tests.helpers.corpus.programs import program
from tests.helpers.corpus.staff import Account, Team


class Authority:
    def __init__(self) -> None:
        self.allowed: dict[str, bool] = {}
        self.renewals: list[str] = []

    async def allow(self, name: str) -> None:
        self.allowed[name] = True

    async def deny(self, name: str) -> None:
        self.allowed.pop(name, None)

    async def is_allowed(self, name: str) -> bool:
        return name in self.allowed

    async def renew(self, at: str) -> None:
        self.renewals.append(at)


def grants(*, window: float = float("inf")) -> Any:
    """Allow the team's note for 300 seconds. A wrong program ends that only within a window of time."""

    async def reconcile(rt: headway.Runtime, request: headway.Request[Team], account: Any, process: Any) -> Any:
        team = rt.resource(request)
        if team is None:
            return None
        grant = rt.cache.get(account, "grant")
        if grant is None:
            await process.outside.allow(team.data.note)
            await rt.apply(
                account.new("grant", Account(login=team.data.note, count=int(time.time()) + 300), owner=team)
            )
            return None
        if grant.data.login.startswith("expired"):
            return None
        late = time.time() - grant.data.count
        if late < 0 and team.data.note == grant.data.login:
            return headway.requeue_after(-late)
        if late > window:
            return None
        await process.outside.deny(grant.data.login)
        if late < 0:
            await process.outside.allow(team.data.note)
        grant.data.login = team.data.note if late < 0 else f"expired for {grant.data.login}"
        await rt.client.write(grant)
        return None

    return reconcile


async def retries(rt: headway.Runtime, request: headway.Request[Team], account: Any, process: Any) -> Any:
    """Ask the authority every 30 seconds for 240 seconds, and then give up for good."""
    team = rt.resource(request)
    if team is None:
        return None
    asked = rt.cache.get(account, "asked")
    if asked is None:
        await rt.apply(account.new("asked", Account(count=int(time.time()) + 240), owner=team))
        return None
    if asked.data.login:
        return None
    try:
        allowed = await process.outside.is_allowed(team.data.note)
    except ConnectionError:
        allowed = False
    if not allowed and time.time() < asked.data.count:
        return headway.requeue_after(30)
    asked.data.login = f"{team.data.note} is allowed" if allowed else "gave up"
    await rt.client.write(asked)
    return None


async def two_notes(world: simulation.World) -> None:
    for note in ("ada", "grace"):
        await world.client.apply(world.type("Team").new("core", Team(note=note)))
        world.outside.allowed["grace"] = True
        await world.wait_idle()
        await world.sleep(100)


async def until_expiry(world: simulation.World) -> None:
    await two_notes(world)
    await world.sleep(300)
    await world.wait_idle()


@pytest.mark.parametrize(
    ("reconcile", "scenario", "plan"),
    [
        (grants(), two_notes, "wall_jump(2, 3600.0)"),
        (grants(), until_expiry, "wall_jump(3, 3600.0)"),
        (grants(), two_notes, "clock_jump(3, 600.0)"),
        (grants(), until_expiry, "wall_jump(2, -600.0)"),
        (retries, two_notes, "wall_jump(2, 3600.0)"),
        (retries, two_notes, "clock_jump(2, 600.0)"),
    ],
)
@pytest.mark.wide
def test_what_ends_by_the_clock_before_the_next_change_is_right(reconcile: Any, scenario: Any, plan: str) -> None:
    explored = simulation.explore(program(reconcile), scenario, outside=Authority, plan=plan)
    assert [str(each) for each in explored.struck] == [plan]
    assert explored.runs


@pytest.mark.wide
def test_what_never_ends_after_a_jump_is_found() -> None:
    """The clock is beyond the window when the program looks again."""
    with pytest.raises(simulation.Refuted, match=r"without faults: .*'expired for"):
        simulation.explore(program(grants(window=60.0)), until_expiry, outside=Authority, plan="wall_jump(2, 3600.0)")


def renewing(*, by_slot: bool) -> Any:
    """Renew 300 seconds after the last time, or at every full five minutes other than the last one, which is wrong."""

    async def reconcile(rt: headway.Runtime, request: headway.Request[Team], account: Any, process: Any) -> Any:
        team = rt.resource(request)
        if team is None:
            return None
        made = rt.cache.get(account, "last")
        now = time.time()
        at = now - now % 300 if by_slot else now
        if made is not None and (at == made.data.count if by_slot else 0 <= now - made.data.count < 300):
            return headway.requeue_after(300 + (at if by_slot else made.data.count) - now)
        await process.outside.renew(time.strftime("%H:%M" if by_slot else "%H:%M:%S", time.gmtime(at)))
        await rt.apply(account.new("last", Account(count=int(at)), owner=team))
        return headway.requeue_after(300)

    return reconcile


async def a_while(world: simulation.World) -> None:
    await world.client.apply(world.type("Team").new("core", Team(note="x")))
    await world.wait_idle()
    await world.sleep(700)


@pytest.mark.parametrize("look", [4, 2])
@pytest.mark.wide
def test_time_that_is_lived_twice_may_be_served_twice(look: int) -> None:
    plan = f"wall_jump({look}, -600.0)"
    explored = simulation.explore(program(renewing(by_slot=False)), a_while, outside=Authority, quiet=None, plan=plan)
    assert [str(each) for each in explored.struck] == [plan]
    assert explored.runs
