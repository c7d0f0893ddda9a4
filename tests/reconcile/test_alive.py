"""Scopes that are canceled when the deletion of their resource begins."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import headway
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff


class Watched(Staff):
    """A controller that waits in the scope of a team, and records how the wait ended."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.ended = list[str](), list[tuple[str, bool]]()

        @self.app.controller(manages=self.team, concurrency=4)
        async def sit(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            if team is None or team.uid in self.entered:
                return
            self.entered.append(team.uid)
            with rt.alive(team) as scope:
                await trio.sleep(100)
            self.ended.append((team.name, scope.cancelled_caught))


async def test_scope_is_canceled_when_the_deletion_begins_or_another_incarnation_appears(
    autojump_clock: MockClock,
) -> None:
    staff = Watched()
    async with staff.open() as engine:
        await staff.write_team("gone")
        held = staff.team.new("held")
        held.finalizers = {"others"}
        await engine.client.write(held)
        await staff.write_team("stays")
        await staff.write_team("replaced")
        await trio.sleep(1)
        assert len(staff.entered) == 4
        began = trio.current_time()
        await staff.write_team("stays", "changed")
        await engine.client.delete(staff.team.id("gone"))
        await engine.client.delete(staff.team.id("held"))
        await engine.client.delete(staff.team.id("replaced"))
        await staff.write_team("replaced", "again")
        await trio.sleep(1)
        assert sorted(staff.ended) == [("gone", True), ("held", True), ("replaced", True)]
        assert trio.current_time() - began < 2
        await trio.sleep(200)
        assert sorted(staff.ended[3:]) == [("replaced", False), ("stays", False)]


async def test_scope_of_a_deleted_resource_is_canceled_at_once(autojump_clock: MockClock) -> None:
    """The resource is gone, or marked for deletion, when the scope is entered."""
    staff, caught = Staff(), list[bool]()

    @staff.app.controller(manages=staff.team)
    async def late(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        if team is not None and not team.is_deleting:
            await rt.client.delete(team)
            with rt.alive(team) as scope:
                await trio.sleep(100)
            caught.append(scope.cancelled_caught)
        elif team is not None:
            with rt.alive(team) as scope:
                await trio.sleep(100)
            caught.append(scope.cancelled_caught)

    async with staff.open() as engine:
        await staff.write_team("core")
        await staff.wait_idle()
        held = staff.team.new("held")
        held.finalizers = {"others"}
        await engine.client.write(held)
        await trio.sleep(1)
        assert caught[:2] == [True, True]
        assert all(caught)


async def test_resource_read_ahead_of_the_cache_is_alive(autojump_clock: MockClock) -> None:
    """A resource that the cache doesn't have yet isn't deleted; one that it has had is."""
    staff, held = Staff(), list[bool]()

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())])
    async def read(rt: headway.Runtime, _: headway.Request[Team]) -> None:
        made = await staff.engine.client.write(staff.account.new("ada", Account(login="ada")))
        held.append(rt.cache.get(staff.account, "ada") is None)
        with rt.alive(made) as scope:
            await trio.sleep(1)
        held.append(scope.cancelled_caught)
        with rt.alive(made) as scope:
            await staff.engine.client.delete(made)
            await trio.sleep(100)
        held.append(scope.cancelled_caught)

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert held == [True, False, True]


async def test_scope_of_an_uncached_type_is_refused(autojump_clock: MockClock) -> None:
    """Its deletion could not be noticed."""
    staff, raised = Staff(), list[str]()

    @staff.app.controller(manages=staff.team)
    async def sit(rt: headway.Runtime, _: headway.Request[Team]) -> None:
        made = await rt.client.write(staff.account.new("ada"))
        with pytest.raises(headway.errors.NotWatched) as caught, rt.alive(made):
            """Not entered."""
        raised.append(str(caught.value))

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert "neither manages nor watches staff.v1.Account" in raised[0]
