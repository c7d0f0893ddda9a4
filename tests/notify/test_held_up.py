"""Handles that cannot show the newest state say so: because another type has no stream, or a new store is not shown."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from tests.helpers.cached import Staff, names, restore
from tests.helpers.stream_beginnings import Compacted, Half

LONG = 60.0


async def seen(updates: headway.notify.Updates, handle: headway.notify.Handle[Any]) -> list[tuple[str, list[str]]]:
    """Return the errors and names that a handle shows each time that anything changes, until nothing does for long."""
    found = []
    with trio.move_on_after(LONG):
        async for _ in updates:
            found.append(("" if handle.error is None else type(handle.error).__name__, names(handle.value)))
    return found


async def test_handle_says_that_another_type_holds_it_up(autojump_clock: MockClock) -> None:
    """The cache itself shows the newer state. Each further failure of that type is delivered, too."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        teams = updates.list(staff.team)
        await updates.primed()
        staff.channel.cut(staff.account)
        await trio.sleep(LONG)
        assert (teams.error, teams.age) == (None, 0)
        await staff.write_team("core")
        await seen(updates, teams)
        assert (names(teams.value), names(cache.list(staff.team))) == ([], ["core"])
        assert "staff.v1.Account has no stream" in str(teams.error)
        assert teams.age == cache.status().cut_off_seconds > LONG
        failures = teams.failures
        assert len(await seen(updates, teams)) > 5
        assert teams.failures > failures
        staff.channel.mend()
        assert (await seen(updates, teams))[-1] == ("", ["core"])
        assert (teams.age, teams.failures) == (0, 0)


async def test_error_ends_with_the_value_that_came_after_it(autojump_clock: MockClock) -> None:
    """A value without an error is current, so an old one never comes without its error in between."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        teams = updates.list(staff.team)
        await updates.primed()
        await seen(updates, teams)
        for number in range(1, 6):
            staff.channel.cut(staff.team, staff.account)
            await staff.write_team(f"team-{number}")
            assert {len(shown) for _, shown in await seen(updates, teams)} == {number - 1}
            staff.channel.mend()
            found = await seen(updates, teams)
            assert [len(shown) for error, shown in found if not error] == [number]
            assert len(found) < 4


async def test_handle_of_a_replaced_store_keeps_its_error_until_the_next_store_is_shown(
    autojump_clock: MockClock,
) -> None:
    """The value of the old store is not current when the new one is complete, but when it is shown."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        teams = updates.list(staff.team)
        await updates.primed()
        backup = staff.store.back_up()
        await staff.write_team("lost")
        while names(teams.value) != ["lost"]:
            await anext(updates)
        restore(staff, backup, new_id=True)
        found = await seen(updates, teams)
        assert [shown for error, shown in found if not error] == [[]]
        assert ("StoreChanged", ["lost"]) in found


async def test_snapshot_that_never_ends_does_not_end_an_interruption(autojump_clock: MockClock) -> None:
    """Each of its streams delivers something, but the value stays old. The age counts from the first end."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        for number in range(3):
            await staff.write_team(f"team-{number}")
        teams = updates.list(staff.team)
        while not teams.has_value or len(teams.value) < 3:
            await anext(updates)
        staff.channel.begin(staff.team, Compacted(), *[Half(2)] * 30)
        began = trio.current_time()
        staff.channel.streams(staff.team).drop()
        await staff.write_team("late")
        while staff.channel.streams(staff.team).beginnings:
            await anext(updates)
            if len(teams.value) == 3 and teams.failures:
                assert teams.error is not None
                assert teams.age == cache.status().cut_off_seconds == trio.current_time() - began
                assert "staff.v1.Team" in cache.status().cut_off
        assert teams.failures > 25
        assert (await seen(updates, teams))[-1] == ("", ["late", "team-0", "team-1", "team-2"])
        assert (teams.age, teams.failures, cache.status().cut_off) == (0, 0, "")


async def test_changes_that_wait_for_another_type_are_kept_by_key_and_only_while_there_is_a_handle(
    autojump_clock: MockClock,
) -> None:
    """The next view shows all of them at once. Without a handle, no view is requested, and nothing is kept."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        pending, pins = cache._cuts._pending, cache._subscriptions[staff.team.name].pins
        core, other = updates.get(staff.team, "core"), updates.get(staff.team, "other")
        await updates.primed()
        await trio.sleep(1)
        staff.channel.streams(staff.account).hold()
        for number in range(20):
            await staff.write_team("core", f"m{number}")
            await trio.sleep(1)
        assert sum(map(len, pending.values())) == 1
        assert core.value is None
        core.close()
        other.close()
        await wait_all_tasks_blocked()
        for number in range(20):
            await staff.write_team(f"team-{number}")
            await trio.sleep(1)
        assert not any(pending.values())
        assert pins == []
        core = updates.get(staff.team, "core")
        await trio.sleep(1)
        await staff.write_team("core", "last")
        staff.channel.streams(staff.account).release()
        while not core.has_value or core.value is None or core.value.data.members != ["last"]:
            with trio.fail_after(LONG):
                await anext(updates)


async def test_new_handle_says_why_it_has_no_value_yet(autojump_clock: MockClock) -> None:
    """`primed` does not wait for a type without a stream. If the state can be shown, there is no error."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        staff.channel.cut(staff.account)
        await trio.sleep(LONG)
        with closing(updates.list(staff.team)) as early:
            await updates.primed()
            assert (early.value, early.error) == ([], None)
        await staff.write_team("core")
        await trio.sleep(LONG)
        teams = updates.list(staff.team)
        with trio.fail_after(LONG):
            await updates.primed()
        assert "staff.v1.Account has no stream" in str(teams.error)
        staff.channel.mend()
        while teams.error is not None:
            await anext(updates)
        assert names(teams.value) == ["core"]


async def test_error_of_a_value_lasts_until_a_later_value_is_shown(autojump_clock: MockClock) -> None:
    """The type has a stream again, but the view that would show its changes waits for another type."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        teams = updates.list(staff.team)
        await updates.primed()
        staff.channel.cut(staff.team)
        await trio.sleep(LONG)
        staff.channel.streams(staff.account).hold()
        await staff.write_team("core")
        staff.channel.mend()
        while not cache.list(staff.team):  # noqa: ASYNC110  # `wait_for` waits for every type
            await trio.sleep(1)
        assert cache.status().cut_off == ""
        late = updates.get(staff.team, "core")
        for handle, value in ((teams, []), (late, None)):
            assert handle.value == value
            assert "staff.v1.Team has no stream" in str(handle.error)
        staff.channel.streams(staff.account).release()
        await trio.sleep(LONG)
        assert (names(teams.value), teams.error, late.error) == (["core"], None, None)
