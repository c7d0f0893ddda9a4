"""A controller that adds watches at run time, whose functions a test calls one at a time."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

import headway
from headway.errors import DeclarationError
from headway.testing import one_shot
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff


def watching(staff: Staff) -> list[str]:
    """Declare a controller that watches accounts from its first reconcile on. Return the record of its calls."""
    calls: list[str] = []

    @staff.app.controller(manages=staff.team)
    async def look(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        calls.append("begins")
        await rt.watch(headway.watch(staff.account, lambda account, _: [staff.team.id(account.data.login)]))
        accounts = sorted(account.name for account in rt.cache.list(staff.account))
        calls.append(",".join(accounts))
        await rt.client.apply(staff.team.new(request.id.name, Team(members=accounts)))

    return calls


async def test_reconcile_that_adds_a_watch_is_called_again_in_the_next_run(autojump_clock: MockClock) -> None:
    staff = Staff()
    calls = watching(staff)
    async with one_shot(staff.app, "look") as shot:
        await shot.given(staff.team.new("core", Team()), staff.account.new("ada", Account(login="core")))
        done = await shot.reconcile("core")
        assert calls == ["begins", "begins", "ada"]
        assert [(each.what, each.id.name, each.refused) for each in done.written] == [("write", "core", None)]
        await shot.reconcile("core")
        assert calls[3:] == ["begins", "ada"]
        await shot.requests()
        await shot.given(staff.account.new("bob", Account(login="core")))
        (request,) = await shot.requests()
        assert request.reasons[0].type == staff.account.name


async def test_mapper_of_an_added_watch_can_be_called(autojump_clock: MockClock) -> None:
    staff = Staff()
    watching(staff)
    async with one_shot(staff.app, "look") as shot:
        account = staff.account.new("ada", Account(login="core"))
        with pytest.raises(DeclarationError, match=r"doesn't watch staff.v1.Account"):
            await shot.mapped(staff.account, new=account)
        await shot.given(staff.team.new("core", Team()))
        await shot.reconcile("core")
        assert [id.name for id in await shot.mapped(staff.account, new=account)] == ["core"]
