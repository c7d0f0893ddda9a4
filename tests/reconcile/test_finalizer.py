"""The guarded block: the finalizer is added before the work, and removed after the clean-up."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import headway
from tests.helpers.resources import Team
from tests.helpers.staff import Staff


class Guarded(Staff):
    """A controller whose work is in ``there``, guarded by a finalizer."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.there: set[str] = set()
        self.stored_at_work: list[frozenset[str]] = []
        self.cleanups = 0
        self.fail = 0
        self.interfere = False

        @self.app.controller(manages=self.team)
        async def guard(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            team = rt.resource(request)
            if team is None:
                return
            if self.interfere:
                await self._another_finalizer()
            async with rt.finalizer(team, name) as guarded:
                if guarded.alive:
                    stored = await self.engine.client.read(self.team, team.id)
                    self.stored_at_work.append(stored.finalizers)
                    self.there.add(team.name)
                elif guarded.cleaning_up:
                    self.cleanups += 1
                    if self.cleanups <= self.fail:
                        raise LookupError("not yet")
                    self.there.discard(team.name)

    async def _another_finalizer(self) -> None:
        """Change the resource during the reconcile, so that its version is no longer the stored one."""
        self.interfere = False
        current = await self.engine.client.read(self.team, "core")
        current.finalizers |= {"others"}
        await self.engine.client.write(current)


async def test_finalizer_is_added_before_the_work_and_removed_after_the_clean_up(autojump_clock: MockClock) -> None:
    staff = Guarded()
    async with staff.open() as engine:
        await staff.write_team("core")
        await staff.wait_idle()
        assert staff.stored_at_work == [frozenset({"guard"})] * len(staff.stored_at_work)
        assert staff.there == {"core"}

        await engine.client.delete(staff.team.id("core"))
        await staff.wait_idle()
        assert (staff.there, staff.cleanups, await engine.client.get(staff.team, "core")) == (set(), 1, None)
    assert not staff.errors()


async def test_clean_up_that_raises_keeps_the_resource(autojump_clock: MockClock) -> None:
    """The finalizer stays until a clean-up ends normally."""
    staff = Guarded()
    staff.fail = 3
    async with staff.open() as engine:
        await staff.write_team("core")
        await staff.wait_idle()
        await engine.client.delete(staff.team.id("core"))
        with trio.move_on_after(0.001):
            while staff.cleanups < 1:
                await trio.lowlevel.checkpoint()
        assert (await engine.client.read(staff.team, "core")).finalizers == {"guard"}
        await staff.wait_idle()
        assert (staff.cleanups, await engine.client.get(staff.team, "core")) == (4, None)


@pytest.mark.parametrize("deleting", [False, True])
async def test_conflict_is_retried_and_other_finalizers_stay(deleting: bool, autojump_clock: MockClock) -> None:
    """Another finalizer, added during the reconcile, survives the addition and the removal of ours."""
    staff = Guarded("ours")
    staff.interfere = not deleting
    async with staff.open() as engine:
        await staff.write_team("core")
        await staff.wait_idle()
        if deleting:
            current = await engine.client.read(staff.team, "core")
            current.finalizers |= {"others"}
            await engine.client.write(current)
            await engine.client.delete(staff.team.id("core"))
            await staff.wait_idle()
            team = await engine.client.read(staff.team, "core")
            assert team.finalizers == frozenset({"others"})
            assert staff.cleanups == 1
            # The resource is marked, and its clean-up is over: later changes do not enter the block.
            await engine.client.write_status(team, "others", [headway.Condition("Slow", headway.ConditionState.TRUE)])
            await staff.wait_idle()
            assert staff.cleanups == 1
        else:
            assert (await engine.client.read(staff.team, "core")).finalizers == {"ours", "others"}
    assert not staff.errors()


async def test_conflict_during_the_removal_does_not_repeat_the_clean_up(autojump_clock: MockClock) -> None:
    """Another finalizer is removed during the clean-up.

    Ours is then removed from the stored state, and so is the resource.
    """
    staff = Staff()
    cleanups = 0

    @staff.app.controller(manages=staff.team)
    async def guard(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        nonlocal cleanups
        team = rt.resource(request)
        if team is not None:
            async with rt.finalizer(team) as guarded:
                if guarded.cleaning_up:
                    cleanups += 1
                    current = await staff.engine.client.read(staff.team, "core")
                    current.finalizers -= {"others"}
                    await staff.engine.client.write(current)

    async with staff.open() as engine:
        team = staff.team.new("core")
        team.finalizers = {"others"}
        await engine.client.write(team)
        await staff.wait_idle()
        await engine.client.delete(staff.team.id("core"))
        await staff.wait_idle()
        assert await engine.client.get(staff.team, "core") is None
    assert cleanups == 1
    assert not staff.errors()


async def test_deleted_resource_is_not_guarded(autojump_clock: MockClock) -> None:
    """The block isn't entered for a resource that is deleted while its finalizer is added."""
    staff, entered = Staff(), list[str]()

    @staff.app.controller(manages=staff.team)
    async def late(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        if team is not None:
            await staff.engine.client.delete(team)
            async with rt.finalizer(team):
                entered.append(team.name)

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert entered == []
    assert staff.errors()
