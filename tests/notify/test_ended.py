"""The end of a cache, seen from other tasks: every wait ends with an error, and nothing new begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway.errors import Closed, HeadwayError, NotPrimed, StoreChanged
from headway.resource import Bookmark, EndOfSnapshot
from tests.helpers.cached import Staff, names, restore
from tests.helpers.fetched import Source

Wait = Callable[[Staff, headway.notify.PrimedCache], Awaitable[None]]


async def for_a_revision(_: Staff, cache: headway.notify.PrimedCache) -> None:
    await cache.wait_for(10**6)


async def for_a_change(staff: Staff, cache: headway.notify.PrimedCache) -> None:
    async with cache.notify() as updates:
        updates.list(staff.team)
        async for _ in updates:
            pass


async def for_first_values(_: Staff, cache: headway.notify.PrimedCache) -> None:
    async with cache.notify() as updates:
        updates.poll(headway.notify.Poll(trio.sleep_forever), max_age=1)
        await updates.primed()


@pytest.mark.parametrize(
    ("wait", "error"),
    [(for_a_revision, NotPrimed), (for_a_change, Closed), (for_first_values, Closed)],
)
async def test_wait_of_another_task_ends_with_the_cache(
    wait: Wait, error: type[HeadwayError], autojump_clock: MockClock
) -> None:
    """A server's connections may outlive the block of the cache that they read. None of them waits forever."""
    staff = Staff()
    ended = trio.Event()

    async def other(cache: headway.notify.PrimedCache) -> None:
        with pytest.raises(error, match="its block has ended"):
            await wait(staff, cache)
        ended.set()

    async with staff.open(), trio.open_nursery() as nursery:
        async with staff.cache() as cache:
            nursery.start_soon(other, cache)
            await wait_all_tasks_blocked()
        with trio.fail_after(60):
            await ended.wait()


async def test_wait_ends_if_one_type_is_complete_in_the_step_of_the_end() -> None:
    """The other type never will be."""
    staff = Staff()
    ended = trio.Event()

    async def other(cache: headway.notify.PrimedCache, revision: int) -> None:
        with pytest.raises(NotPrimed, match="its block has ended"):
            await cache.wait_for(revision)
        ended.set()

    async with staff.open(), trio.open_nursery() as nursery:
        async with staff.cache() as cache:
            for type in (staff.team, staff.account):
                staff.channel.streams(type).hold()
            later = staff.store.position._replace(revision=staff.store.position.revision + 100)
            nursery.start_soon(other, cache, later.revision)
            await wait_all_tasks_blocked()
            cache._held[staff.team.name].feed(Bookmark(later))
            cache.close()
        with trio.fail_after(10):
            await ended.wait()


async def test_view_of_a_lost_store_is_closed_with_its_cache(autojump_clock: MockClock) -> None:
    """While the store is rolled back, views show what the cache had."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache:
        backup = staff.store.back_up()
        await cache.wait_for(await staff.write_team("lost"))
        restore(staff, backup, new_id=False)
        await trio.sleep(10)
        assert cache.status().problem is not None
        async with cache.view(staff.team) as view:
            assert names(view.list(staff.team)) == ["lost"]
            cache.close()
            with pytest.raises(NotPrimed, match="had ended"):
                view.list(staff.team)


async def test_handles_of_a_closed_cache_are_refused_and_fetch_nothing() -> None:
    """Neither the end of the block nor the end of the cache leaves a way to start a call."""
    staff, source = Staff(), Source()
    async with staff.open():
        async with staff.cache() as cache:
            async with cache.notify() as updates:
                pass
            with pytest.raises(Closed, match="notify block has ended"):
                updates.poll(source.poll, max_age=1)
            await wait_all_tasks_blocked()
        for make in (lambda: updates.poll(source.poll, max_age=1), lambda: updates.list(staff.team)):
            with pytest.raises(Closed, match="notify block has ended"):
                make()
    assert source.calls == []


@pytest.mark.parametrize("how", ["at its end", "by a deadline", "by an error"])
async def test_block_ends_as_it_was_left_while_a_change_waits_for_another_type(
    how: str, autojump_clock: MockClock
) -> None:
    """The values of the handles were about to be replaced. That this is given up is nothing to report."""
    staff = Staff()
    left = KeyError("mine")
    raised: BaseException | None = None
    async with staff.open():
        with trio.move_on_after(30) as deadline:
            try:
                async with staff.cache() as cache, cache.notify() as updates:
                    teams = updates.list(staff.team)
                    await updates.primed()
                    staff.channel.streams(staff.account).hold()
                    await staff.write_team("core")
                    await trio.sleep(1)
                    assert (names(cache.list(staff.team)), teams.value) == (["core"], [])
                    if how == "by a deadline":
                        await trio.sleep_forever()
                    if how == "by an error":
                        raise left
            except Exception as error:  # noqa: BLE001  # compared below
                raised = error
    assert raised is (left if how == "by an error" else None)
    assert deadline.cancelled_caught == (how == "by a deadline")


async def test_cache_stays_closed_if_another_store_is_primed_in_the_step_of_the_end(autojump_clock: MockClock) -> None:
    """A subscription that began then would be kept up to date as long as the engine has the type."""
    staff = Staff()
    async with staff.open(), staff.cache():
        async with staff.cache() as cache:
            await staff.write_account("kept")
            backup = staff.store.back_up()
            await cache.wait_for(await staff.write_account("lost"))
            await cache.wait_for(await staff.write_team("lost"))
            accounts = staff.channel.streams(staff.account)
            accounts.holds_next = True
            restore(staff, backup, new_id=True)
            await trio.sleep(60)
            accounts.let_pass()
            await trio.sleep(1)
            assert isinstance(cache.status().problem, StoreChanged)
            begun = staff.store.position
            await staff.write_team("new")
            await trio.sleep(1)
            # The other type is one revision ahead by now, so that the cache waits for this one once more.
            cache._held[staff.account.name].feed(EndOfSnapshot(begun))
            await wait_all_tasks_blocked()
            assert isinstance(cache.status().problem, StoreChanged)
            cache._held[staff.account.name].feed(Bookmark(staff.store.position))
        await wait_all_tasks_blocked()
        assert not cache.primed
