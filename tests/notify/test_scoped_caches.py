"""Caches of scopes: only their resources are kept, and leaving is a deletion for every reader."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.access import Policy, Rule, new_token
from headway.errors import NotWatched, PermissionDenied
from tests.helpers.cached import HOW, Staff, authorizer, names
from tests.helpers.resources import Account
from tests.helpers.stream_beginnings import Compacted

BOTH = pytest.mark.parametrize("how", HOW)


async def put(staff: Staff, name: str, tier: str) -> headway.Resource[Account]:
    return await staff.engine.client.apply(staff.account.new(name, Account(login=name), metadata={"tier": tier}))


@BOTH
async def test_cache_of_a_scope_holds_only_its_resources(how: str) -> None:
    """It follows them in and out, and the position includes commits outside the scope."""
    staff = Staff()
    gold = staff.account.within(metadata="tier=gold")
    async with staff.open(listen=True):
        await put(staff, "ada", "gold")
        await put(staff, "bob", "free")
        async with staff.cache(how, watches=[staff.team.within(name_prefix="c"), gold]) as cache:
            assert names(cache.list(gold)) == names(cache.list(staff.account)) == ["ada"]
            assert names(cache.index(staff.by_login, "ada")) == ["ada"]
            await staff.write_team("docs")
            await staff.write_team("core")
            last = await put(staff, "bob", "gold")
            await cache.wait_for(last)
            assert names(cache.list(staff.account)) == ["ada", "bob"]
            last = await put(staff, "ada", "silver")
            await cache.wait_for(last)
            assert names(cache.list(staff.account)) == ["bob"]
            assert cache.get(gold, "ada") is None
            assert cache.index(staff.by_login, "ada") == []
            assert names(cache.list(staff.team)) == ["core"]
            assert sum(each.resources for each in cache.status().types) == 2
            with pytest.raises(NotWatched, match="tier=free"):
                cache.list(staff.account.within(metadata="tier=free"))


async def test_caches_of_equal_scopes_share_a_stream_with_the_engine(autojump_clock: MockClock) -> None:
    """Another scope, and the whole type, have streams of their own."""
    staff = Staff()
    gold, free = (staff.account.within(metadata=f"tier={tier}") for tier in ("gold", "free"))
    async with staff.open():
        before = staff.channel.opened.count((staff.account.kind, False))
        async with (
            staff.cache(watches=[gold]) as one,
            staff.cache(watches=[staff.account.within(metadata="tier=gold")]) as two,
            staff.cache(watches=[free]) as three,
            staff.cache(watches=[staff.account]) as four,
        ):
            assert staff.channel.opened.count((staff.account.kind, False)) == before + 3
            await put(staff, "ada", "gold")
            last = await put(staff, "bob", "free")
            for cache in (one, two, three, four):
                await cache.wait_for(last)
            assert [names(each.list(staff.account)) for each in (one, two, three, four)] == [
                ["ada"],
                ["ada"],
                ["bob"],
                ["ada", "bob"],
            ]


async def test_leaving_a_scope_is_delivered_to_notifications(autojump_clock: MockClock) -> None:
    staff = Staff()
    gold = staff.account.within(metadata="tier=gold")
    async with staff.open():
        await put(staff, "ada", "gold")
        async with staff.cache(watches=[gold]) as cache, cache.notify() as updates:
            listed, one = updates.list(gold), updates.get(gold, "ada")
            await updates.primed()
            assert names(listed.value) == ["ada"]
            await put(staff, "ada", "free")
            with trio.fail_after(10):
                while listed.value or one.value:
                    await anext(updates)
            assert (listed.value, one.value) == ([], None)


@pytest.mark.parametrize("compacted", [False, True])
async def test_cache_that_was_cut_off_learns_what_has_left_meanwhile(
    autojump_clock: MockClock, compacted: bool
) -> None:
    """It gets deletions from the store's history, or a snapshot if the history is compacted."""
    staff = Staff()
    gold = staff.account.within(metadata="tier=gold")
    async with staff.open():
        for name in ("ada", "bob", "eve"):
            await put(staff, name, "gold")
        async with staff.cache(watches=[gold]) as cache:
            staff.channel.cut(staff.account)
            await put(staff, "ada", "free")
            await put(staff, "ada", "silver")
            await put(staff, "joan", "gold")
            if compacted:
                staff.channel.begin(staff.account, Compacted())
            staff.channel.mend()
            await trio.sleep(10)
            await cache.wait_for(staff.store.position.revision)
            assert names(cache.list(gold)) == ["bob", "eve", "joan"]
            snapshots = [resumed for kind, resumed in staff.channel.opened if kind == staff.account.kind].count(False)
            assert snapshots == (2 if compacted else 1)


async def test_caller_with_rights_to_a_part_may_open_a_cache_of_this_part() -> None:
    """The rights to a namespace or prefix suffice for a scope within it. Metadata gives no rights."""
    staff = Staff()
    text, token = new_token(["part"])
    rules = [
        Rule(verbs=["view"], type="staff.v1.Team", partition="default", namespace="default", name_prefix="co"),
        Rule(verbs=["view"], type="staff.v1.Account", partition="default", namespace="east"),
    ]
    async with staff.open(listen=True, access=authorizer(Policy("part", rules), token)):
        await staff.write_team("core")
        await staff.write_team("docs")

        async def listed(*watches: Any) -> list[str]:
            async with headway.open_cache(
                staff.engine.addresses, staff.app, watches=watches, token=text, insecure=True
            ) as cache:
                return [each.name for watch in watches for each in cache.list(watch)]

        team = staff.team.within(partition="default", namespace="default", name_prefix="cor")
        assert await listed(team) == ["core"]
        east = staff.account.within(partition="default", namespace="east", metadata="tier=gold")
        assert await listed(east) == []
        for denied in (staff.team, staff.team.within(name_prefix="co"), staff.account.within(metadata="tier=gold")):
            with pytest.raises(PermissionDenied):
                await listed(denied)
