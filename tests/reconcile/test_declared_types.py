"""Declared reads and writes: an undeclared one is an error that shows how to declare it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from trio.testing import MockClock

import headway
from headway.errors import NotDeclared
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff

Body = Callable[[headway.Runtime, Staff, headway.Resource[Team]], Awaitable[object]]


async def tried(body: Body, **declared: Any) -> str:
    """Return the error of ``body`` in a controller of teams that also watches accounts, or "" if it raised none."""
    staff, refusals = Staff(), list[str]()
    declared = {field: [getattr(staff, name) for name in names] for field, names in declared.items()}

    @staff.app.controller(
        manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())], **declared
    )
    async def look(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        assert team is not None
        if team.data.members:
            return
        try:
            await body(rt, staff, team)
        except NotDeclared as error:
            refusals.append(str(error))
        else:
            refusals.append("")

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert not staff.errors()
    assert not staff.events_of(headway.events.WriteUnknown)
    return refusals[0]


async def outputs(rt: headway.Runtime, staff: Staff, team: headway.Resource[Team]) -> None:
    async with rt.outputs(staff.account, owner=team) as wanted:
        await wanted.apply("ada", Account(login="ada"))


async def no_outputs(rt: headway.Runtime, staff: Staff, team: headway.Resource[Team]) -> None:
    async with rt.outputs(staff.account, owner=team):
        """There is nothing to apply and nothing to prune; the next time there may be."""


WRITES: list[Body] = [
    lambda rt, staff, _: rt.client.write(staff.account.new("ada")),
    lambda rt, staff, _: rt.client.apply(staff.account.new("ada")),
    lambda rt, staff, _: rt.apply(staff.account.new("ada")),
    lambda rt, staff, _: rt.client.validate(staff.account.new("ada")),
    lambda rt, staff, _: rt.client.delete(staff.account.id("ada")),
    outputs,
    no_outputs,
]


@pytest.mark.parametrize("body", WRITES)
async def test_write_of_an_undeclared_type_is_refused(body: Body, autojump_clock: MockClock) -> None:
    """Outputs are writes. Declared types may be written, and every type if none is declared."""
    expected = (
        "controller staff/look doesn't declare that it writes staff.v1.Account: "
        "add the type, @app.controller(..., writes=[..., ACCOUNT])"
    )
    assert await tried(body, writes=["team"]) == expected
    assert await tried(body, writes=["account"]) == ""
    assert await tried(body, reads=[]) == ""


Read = Callable[[headway.Runtime, headway.ResourceType[Any]], Awaitable[object]]


async def one(rt: headway.Runtime, of: headway.ResourceType[Any]) -> None:
    await rt.client.get(of, "x")


async def all_of_them(rt: headway.Runtime, of: headway.ResourceType[Any]) -> None:
    await rt.client.list(of)


async def in_pages(rt: headway.Runtime, of: headway.ResourceType[Any]) -> None:
    async for _ in rt.client.pages(of):
        """Nothing to look at."""


READS: list[Read] = [one, all_of_them, in_pages]


@pytest.mark.parametrize("read", READS)
async def test_read_of_an_undeclared_type_is_refused(read: Read, autojump_clock: MockClock) -> None:
    """Managed, watched and written types may be read without being declared as reads."""
    staff = Staff()
    other, written = (staff.app.type("staff", "v1", kind, Account) for kind in ("Other", "Written"))
    refused: dict[str, str] = {}

    @staff.app.controller(
        manages=staff.team, watches=[headway.watch(staff.account, headway.mappers.owner())], reads=[], writes=[written]
    )
    async def look(rt: headway.Runtime, _: headway.Request[Team]) -> None:
        for type in (staff.team, staff.account, written, other):
            try:
                await read(rt, type)
            except NotDeclared as error:
                refused[type.name.kind] = str(error)

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert list(refused) == ["Other"]
    assert (
        "doesn't declare that it reads staff.v1.Other: add the type, @app.controller(..., reads=[..., OTHER])"
        in (refused["Other"])
    )
    assert not staff.errors()


async def test_watch_counts_as_a_read(autojump_clock: MockClock) -> None:
    staff, refused = Staff(), list[str]()

    @staff.app.controller(manages=staff.team, reads=[])
    async def look(rt: headway.Runtime, _: headway.Request[Team]) -> None:
        with pytest.raises(NotDeclared) as caught:
            rt.client.watch(staff.account)
        refused.append(str(caught.value))

    async with staff.open():
        await staff.write_team("core")
        await staff.wait_idle()
    assert len(refused) == 1
