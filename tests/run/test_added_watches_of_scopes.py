"""`rt.watch` of a part of a type: each reconcile declares the same scope anew, and only the part is in the cache."""

from __future__ import annotations

import trio
from trio.testing import MockClock

import headway
from headway.errors import DeclarationError
from tests.helpers.added_watches import runs
from tests.helpers.cancel_everywhere import tasks
from tests.helpers.resources import Account
from tests.helpers.staff import Staff


async def test_added_watch_of_a_scope_ends_one_run_and_sees_what_leaves_the_scope(autojump_clock: MockClock) -> None:
    staff, seen = Staff(), list[list[str]]()

    @staff.app.controller(manages=staff.team)
    async def look(rt: headway.Runtime, request: headway.Request) -> None:  # noqa: ARG001
        golden = staff.account.within(metadata="tier=gold")
        await rt.watch(headway.watch(golden, lambda _, cache: [team.id for team in cache.list(staff.team)]))
        seen.append([each.name for each in rt.cache.list(golden)])

    async with staff.open() as engine:
        await staff.write_team("core")
        await staff.wait_idle()
        for name, tier in (("ada", "gold"), ("bob", "tin"), ("ada", "tin")):
            before = len(seen)
            await engine.client.apply(staff.account.new(name, Account(login=name), metadata={"tier": tier}))
            await staff.wait_idle()
            assert len(seen) == before + (name == "ada")
            assert seen[-1] == (["ada"] if tier == "gold" or name == "bob" else [])
        assert runs(staff) == (1, 2, 1)
        (added,) = engine.controllers["look"].status().added_watches
        assert added.startswith("<ScopedType staff.v1.Account within metadata='tier=gold'> by ")
    assert staff.errors() == []


async def test_scope_that_another_reconcile_was_faster_than_keeps_no_stream(autojump_clock: MockClock) -> None:
    """A controller has one scope of a type. Of several that are opened at once, only the added one stays open."""
    staff, raised, begun = Staff(), list[str](), set[str]()
    all_begun = trio.Event()

    @staff.app.controller(manages=staff.team, concurrency=3)
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        begun.add(request.id.name)
        if len(begun) == 3:
            all_begun.set()
        await all_begun.wait()
        part = staff.account.within(name_prefix=request.id.name)
        try:
            await rt.watch(headway.watch(part, headway.mappers.owner()))
        except DeclarationError as error:
            raised.append(str(error))

    async with staff.open():
        for name in ("one", "two", "three"):
            await staff.write_team(name)
        await staff.wait_idle()
        assert runs(staff) == (1, 2, 1)
        streams = [each.name for each in tasks() if each.name.startswith("the stream of staff.v1.Account")]
        assert len(streams) == 1, streams
        kept = streams[0].removeprefix("the stream of staff.v1.Account ")
        # The error names both scopes.
        assert len(raised) >= 2
        for said in raised:
            assert f"is used in two forms, {kept} and <ScopedType staff.v1.Account within name_p" in said
