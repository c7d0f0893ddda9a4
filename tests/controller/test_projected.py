"""Controllers, daemons and timers of a projection: the data that they get, and their limits."""

from __future__ import annotations

from typing import assert_type

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.resource import ResourceType
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff


def login_of(team: headway.Resource[Team]) -> Account:
    return Account(login=team.data.members[0])


def projected(type: ResourceType[Team]) -> headway.Projection[Account]:
    """Return the first member of a team."""
    return headway.projection(type, Account, login_of)


async def test_controller_of_a_projection_gets_projected_data(autojump_clock: MockClock) -> None:
    """The predicate and the cache of the controller get it, too. `rt.resource` and `rt.outputs` need whole types."""
    staff, seen = Staff(), list[str]()
    first = projected(staff.team)

    @staff.app.controller(
        manages=first,
        when=lambda old, new: old is None or new is None or old.data.login != new.data.login,
        writes=[staff.team],
    )
    async def firsts(rt: headway.Runtime, request: headway.Request[Account]) -> None:
        slim = rt.cache.get(first, request.id)
        assert slim is not None
        seen.append(slim.data.login)
        with pytest.raises(headway.errors.NotWatched, match="manages the projection <Projection"):
            rt.resource(request)
        whole = await rt.strong.read(staff.team, request.id)
        assert_type(whole, headway.Resource[Team])
        with pytest.raises(headway.errors.NotWatched):
            await rt.apply(whole)
        with pytest.raises(headway.errors.InvalidArgument, match=r"expects a whole resource, got <Projected Team core"):
            rt.finalizer(slim)  # type: ignore[arg-type]  # the mistake
        async with rt.finalizer(whole) as guarded:
            assert guarded.alive
        # rt.alive follows a resource that was read whole through the projection.
        with rt.alive(whole) as scope:
            assert not scope.cancel_called
        # A resource of the stored type may be written.
        await rt.client.write_status(whole, "firsts", [])

    async with staff.open():
        await staff.write_team("core", "ada", "bob")
        await trio.sleep(1)
        assert staff.errors() == []
        await staff.wait_idle()
        await staff.write_team("core", "ada")
        await staff.wait_idle()
        await staff.write_team("core", "grace")
        await staff.wait_idle()
    assert staff.errors() == []
    assert seen == ["ada", "grace"]
    assert autojump_clock.current_time() < 60
    assert [edge.type for edge in headway.graph(staff.app).edges] == ["staff.v1.Team", "staff.v1.Team"]


async def test_daemons_and_timers_of_a_projection_get_projected_data(autojump_clock: MockClock) -> None:
    """A daemon ends with its resource."""
    staff, seen = Staff(), list[str]()
    first = projected(staff.team)

    @staff.app.daemon(first)
    async def daemon(_: headway.Runtime, slim: headway.Projected[Account]) -> None:
        try:
            seen.append(f"{slim.data.login} begins")
            await trio.sleep_forever()
        finally:
            seen.append(f"{slim.data.login} ends")

    @staff.app.timer(first, every=60)
    async def timer(_: headway.Runtime, slim: headway.Projected[Account]) -> None:
        seen.append(f"{slim.data.login} is due")

    async with staff.open() as engine:
        await staff.write_team("core", "ada")
        await trio.sleep(1)
        await engine.client.delete(staff.team.id("core"))
        await trio.sleep(1)
        assert sorted(seen) == ["ada begins", "ada ends", "ada is due"]
    with pytest.raises(headway.errors.DeclarationError, match="finalizer=True writes to the resource"):
        staff.app.daemon(first, finalizer=True, name="guarded")(daemon)
    assert autojump_clock.current_time() < 60
