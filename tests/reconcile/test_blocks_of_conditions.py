"""Several blocks of conditions for one resource: each changes what the others have stored, and removes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import headway
from headway import Condition, ConditionState
from headway.reconcile import NewestStatuses
from headway.reconcile._statuses import KEPT
from headway.resource import pb
from headway.testing import OneShot, one_shot
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff

TRUE, FALSE = ConditionState.TRUE, ConditionState.FALSE


@asynccontextmanager
async def shot_of_staff() -> AsyncIterator[tuple[Staff, OneShot]]:
    """Run a controller of teams, named ``look``, which watches nothing else."""
    staff = Staff()

    @staff.app.controller(manages=staff.team)
    async def look(_: headway.Runtime, __: headway.Request[Team]) -> None:
        """Do nothing."""

    async with one_shot(staff.app, "look") as shot:
        yield staff, shot


async def stored(shot: OneShot, resource: headway.Resource[Any]) -> list[tuple[str, ConditionState]]:
    status = (await shot.client.read(resource.type, resource.id)).status["look"]
    assert status.observed_generation == resource.generation
    return [(each.type, each.state) for each in status.conditions]


@pytest.mark.parametrize("cached", [True, False])
async def test_later_block_of_a_reconcile_keeps_what_an_earlier_one_has_stored(*, cached: bool) -> None:
    """Also for a resource of a type that the controller does not watch, of which no newer state is cached."""
    async with shot_of_staff() as (staff, shot):
        new: Any = staff.team.new("core", Team()) if cached else staff.account.new("core", Account())
        resource = await shot.client.apply(new)
        for type in ("Checked", "Ready"):
            async with shot.runtime.conditions(resource) as conditions:
                assert ("Checked" in conditions) == (type == "Ready")
                conditions.set(type, True)
        assert await stored(shot, resource) == [("Checked", TRUE), ("Ready", TRUE)]
        async with shot.runtime.conditions(resource) as conditions:
            conditions.unset("Checked")
        assert await stored(shot, resource) == [("Ready", TRUE)]


@pytest.mark.parametrize("cached", [True, False])
async def test_block_that_restores_the_first_status_is_written(*, cached: bool) -> None:
    """The status differs from the stored one, although the resource in hand has it."""
    async with shot_of_staff() as (staff, shot):
        new: Any = staff.team.new("core", Team()) if cached else staff.account.new("core", Account())
        resource = await shot.client.apply(new)
        resource = await shot.client.write_status(resource, "look", [Condition(type="Ready", state=TRUE)])
        for state in (False, True, False):
            async with shot.runtime.conditions(resource) as conditions:
                conditions.set("Ready", state)
            assert await stored(shot, resource) == [("Ready", TRUE if state else FALSE)]


class FoundInCache:
    """A cache of at most one resource."""

    def __init__(self, message: pb.Resource | None) -> None:
        self.message = message

    def find(self, _: headway.Resource[Any]) -> pb.Resource | None:
        """Return the cached resource."""
        return self.message


def at(version: int, uid: str = "u1") -> headway.Resource[Team]:
    """Return a team whose status has its version as the type of its condition."""
    message = Staff().team.new("core").message()
    assert message.id is not None
    message.id.uid, message.version = uid, str(version)
    message.status = {"look": pb.Status(conditions=[Condition(type=str(version))])}
    return headway.Resource(Staff().team, message)


def newest(statuses: NewestStatuses, resource: headway.Resource[Team]) -> str:
    status = statuses.get(resource, "look")
    assert status is not None
    return status.conditions[0].type


def test_own_statuses_that_are_kept_are_bounded() -> None:
    cache: Any = FoundInCache(None)
    statuses = NewestStatuses(cache)
    statuses.note(at(9, uid="first"), "look")
    for number in range(KEPT):
        statuses.note(at(9, uid=f"u{number}"), "look")
    assert newest(statuses, at(8, uid="first")) == "8"
    assert newest(statuses, at(8, uid="u0")) == "9"
    cache.message = at(9, uid="u0").message()
    statuses.note(at(10, uid="cached"), "look")
    cache.message = None
    assert newest(statuses, at(8, uid="cached")) == "8"
