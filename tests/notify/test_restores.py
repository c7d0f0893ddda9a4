"""Caches and notifications over a store that is replaced, or rolled back: never empty, half or rewound in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.errors import HeadwayError, StoreChanged, StoreRolledBack
from headway.resource import Position
from tests.helpers.cached import Staff, commit_both, names, restore
from tests.helpers.resources import changes, put, stored


async def failed(wait: Callable[[], Awaitable[object]], found: list[HeadwayError]) -> None:
    """Note the error of a wait."""
    try:
        await wait()
    except HeadwayError as error:
        found.append(error)


async def test_p5_cache_is_never_empty_between_two_stores(autojump_clock: MockClock) -> None:
    """Until every type has been read from the new store, the cache shows the old one. Then it changes over at once."""
    staff = Staff()
    async with staff.open():
        await staff.write_team("core")
        await staff.write_account("ada")
        backup = staff.store.back_up()
        # The new store stays below the revision of the old one, so waiting for that would never end.
        for number in range(30):
            await staff.write_account(f"lost-{number}")
        await staff.write_team("docs")
        async with staff.cache() as cache:
            before = cache.position
            staff.channel.cut(staff.account)
            restore(staff, backup, new_id=True)
            await staff.write_team("new")
            for _ in range(60):
                await trio.sleep(1)
                assert names(cache.list(staff.team)) == ["core", "docs"]
                assert len(cache.list(staff.account)) == 31
            assert isinstance(cache.status().problem, StoreChanged)
            assert cache.status().cut_off_seconds >= 55
            assert cache.position == before
            staff.channel.mend()
            with trio.fail_after(60):
                while names(cache.list(staff.team)) == ["core", "docs"]:  # each moment counts
                    assert len(cache.list(staff.account)) == 31
                    await trio.sleep(0.001)
            assert names(cache.list(staff.team)) == ["core", "new"]
            assert names(cache.list(staff.account)) == ["ada"]
            assert cache.position.store_id != before.store_id
            assert cache.status().problem is None


async def test_cache_never_mixes_a_lost_history_with_the_restored_one(autojump_clock: MockClock) -> None:
    """One type has seen nothing that the store has lost, so its stream can go on."""
    staff = Staff()
    async with staff.open():
        await staff.write_team("core")
        async with staff.cache() as cache, cache.notify() as updates:
            teams = updates.list(staff.team)
            await cache.wait_for(staff.store.position.revision)
            staff.channel.cut(staff.team)
            cut = trio.current_time()
            await trio.sleep(1)
            backup = staff.store.back_up()
            written = await staff.write_account("lost")
            while cache.revision(staff.account) < int(written.version):  # noqa: ASYNC110  # the other type lags
                await trio.sleep(0.01)
            restore(staff, backup, new_id=False)
            await trio.sleep(10)
            assert isinstance(cache.status().problem, StoreRolledBack)
            assert teams.age == cache.status().cut_off_seconds == trio.current_time() - cut
            # A store that keeps its sessions, such as SQLite, would resume this type's stream where it was.
            revision = cache.revision(staff.team) + 1
            cache._held[staff.team.name].feed(changes(put(stored("new", revision, type=staff.team))))
            await trio.sleep(60)
            assert names(cache.list(staff.team)) == names(teams.value) == ["core"]
            late = updates.get(staff.team, "new")
            await updates.primed()
            assert late.value is None
            async with cache.view(staff.team, staff.account) as view:
                assert names(view.list(staff.team)) == ["core"]
            assert names(cache.list(staff.account)) == ["lost"]
            staff.channel.mend()
            assert cache.accept_store()
            await trio.sleep(60)
            assert names(cache.list(staff.team)) == names(teams.value) == ["core"]
            assert cache.list(staff.account) == []


async def test_half_a_commit_is_not_shown_when_its_store_is_lost(autojump_clock: MockClock) -> None:
    """One type had received it, and the other one never will. The handles keep the revision before it."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        teams, accounts = updates.list(staff.team), updates.list(staff.account)
        extra = updates.get(staff.team, "extra")
        await updates.primed()
        backup = staff.store.back_up()
        staff.channel.streams(staff.account).hold()
        await commit_both(staff, "core", "ada")
        await trio.sleep(1)
        assert names(cache.list(staff.team)) == ["core"]
        restore(staff, backup, new_id=False)
        await trio.sleep(10)
        assert isinstance(cache.status().problem, StoreRolledBack)
        extra.close()
        await trio.sleep(1)
        assert (teams.value, accounts.value) == ([], [])


@pytest.mark.parametrize("new_id", [True, False])
async def test_p2_every_waiter_wakes_after_a_reset_to_a_lower_position(new_id: bool, autojump_clock: MockClock) -> None:
    """It gets an error that says what has happened, and so does a later one for a position of the old store."""
    staff = Staff()
    found: list[HeadwayError] = []
    async with staff.open():
        await staff.write_team("core")
        backup = staff.store.back_up()
        await staff.write_team("docs")
        async with staff.cache() as cache, trio.open_nursery() as nursery:
            old = cache.position
            later = old._replace(revision=old.revision + 100)
            for wanted in (later, later.revision):
                nursery.start_soon(failed, lambda wanted=wanted: cache.wait_for(wanted), found)
            await wait_all_tasks_blocked()
            restore(staff, backup, new_id=new_id)
            await trio.sleep(60)
            kind = StoreChanged if new_id else StoreRolledBack
            assert [type(error) for error in found] == [kind, kind]
            # What the cache has is complete up to there.
            with trio.fail_after(1):
                if not new_id:
                    await cache.wait_for(old)
            await failed(lambda: cache.wait_for(later), found)
            assert [type(error) for error in found] == [kind] * 3


async def test_wait_for_a_position_of_the_new_store_waits_for_the_change_over(autojump_clock: MockClock) -> None:
    """A client may have written to the new store before the cache has noticed it."""
    staff = Staff()
    async with staff.open():
        await staff.write_team("core")
        backup = staff.store.back_up()
        await staff.write_team("docs")
        async with staff.cache() as cache:
            restore(staff, backup, new_id=True)
            written = await staff.write_team("new")
            here = Position(staff.store.position.store_id, "", int(written.version))
            with trio.fail_after(60):
                await cache.wait_for(here)
            assert names(cache.list(staff.team)) == ["core", "new"]


async def test_rolled_back_store_is_shown_only_once_it_is_accepted(autojump_clock: MockClock) -> None:
    """Until then, the cache keeps what the store has lost, even if the store grows past its old revision."""
    staff = Staff()
    async with staff.open():
        await staff.write_team("core")
        backup = staff.store.back_up()
        await staff.write_team("docs")
        async with staff.cache() as cache:
            assert not cache.accept_store()
            restore(staff, backup, new_id=False)
            for number in range(10):
                await staff.write_team(f"new-{number}")
            await trio.sleep(600)
            assert names(cache.list(staff.team)) == ["core", "docs"]
            assert isinstance(cache.status().problem, StoreRolledBack)
            assert cache.accept_store()
            await trio.sleep(60)
            assert names(cache.list(staff.team)) == ["core", *(f"new-{number}" for number in range(10))]
            assert cache.status().problem is None
            assert not cache.accept_store()


async def test_cache_of_a_store_that_is_rolled_back_is_not_entered(autojump_clock: MockClock) -> None:
    """The error is named, as it is for a run of a controller."""
    staff = Staff()
    async with staff.open():
        await staff.write_team("core")
        backup = staff.store.back_up()
        await staff.write_team("docs")
        async with staff.cache():
            restore(staff, backup, new_id=False)
            await trio.sleep(60)
            with pytest.raises(StoreRolledBack):
                async with staff.cache():
                    pytest.fail("it was entered")


@pytest.mark.parametrize("new_id", [True, False])
async def test_o_value_that_falls_after_a_restore_is_delivered_and_marked(
    new_id: bool, autojump_clock: MockClock
) -> None:
    """The mark stays until the next change is delivered. All handles fall in one step."""
    staff = Staff()
    async with staff.open():
        await staff.write_team("core")
        backup = staff.store.back_up()
        await staff.write_team("docs")
        await staff.write_account("ada")
        async with staff.cache() as cache, cache.notify() as updates:
            teams, accounts = updates.list(staff.team), updates.list(staff.account)
            await updates.primed()
            assert {await anext(updates), await anext(updates)} == {teams, accounts}
            before = teams.position
            assert before is not None
            restore(staff, backup, new_id=new_id)
            if not new_id:
                await trio.sleep(60)
                assert isinstance(teams.error, StoreRolledBack)
                assert teams.age > 30
                assert names(teams.value) == ["core", "docs"]
                assert not teams.restored
                cache.accept_store()
            with trio.fail_after(60):
                while not teams.restored:
                    assert names(teams.value) == ["core", "docs"]
                    await anext(updates)
            assert (names(teams.value), names(accounts.value)) == (["core"], [])
            assert teams.error is None
            assert accounts.restored
            assert teams.position is not None
            assert teams.position.session != before.session
            assert (teams.position.store_id != before.store_id) == new_id
            await staff.write_team("new")
            with trio.fail_after(60):
                while await anext(updates) is not teams or len(teams.value) < 2:
                    pass
            assert not teams.restored
