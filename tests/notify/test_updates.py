"""The handles of resources: their values, what changes them, and who is delayed by whom."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from headway.errors import Closed, InvalidArgument, NotPrimed, NotWatched, Unavailable
from headway.notify import Handle, Updates
from tests.helpers.cached import HOW, Staff, commit_both, names


async def received(updates: Updates) -> list[Handle[object]]:
    """Return the handles that have changed once every stream has delivered its bookmarks."""
    await trio.sleep(0.1)
    await wait_all_tasks_blocked()
    found = []
    while updates._changed:
        found.append(await anext(updates))
    return found


@pytest.mark.parametrize("how", HOW)
async def test_o2_first_value_is_there_at_once_and_then_each_change_is_delivered(how: str) -> None:
    """A list, one resource and an index each yield the first value, and then only what changes them."""
    staff = Staff()
    async with staff.open(listen=True):
        await staff.write_team("core", "ada")
        async with staff.cache(how) as cache, cache.notify() as updates:
            teams = updates.list(staff.team)
            core, other = updates.get(staff.team, "core"), updates.get(staff.team, "other")
            al = updates.index(staff.by_login, "al")
            with trio.fail_after(60):
                await updates.primed()
                assert (names(teams.value), al.value, other.value) == (["core"], [], None)
                assert core.value is not None
                assert core.value.data.members == ["ada"]
                assert {await anext(updates) for _ in range(4)} == {teams, core, other, al}

                await staff.write_account("ada", "al")
                assert await anext(updates) is al
                assert names(al.value) == ["ada"]
                await staff.write_account("ada", "bo")
                assert await anext(updates) is al
                assert al.value == []
                await staff.write_account("ada", "bea")
                written = await staff.write_team("other")
                assert {await anext(updates), await anext(updates)} == {teams, other}
                assert other.value is not None
                assert other.value.version == written.version
                assert teams.position is not None
                assert teams.position.revision >= int(written.version)
                assert (teams.error, teams.age, teams.failures, teams.restored) == (None, 0.0, 0, False)


async def test_o1_handle_that_cannot_work_is_refused_at_once() -> None:
    """The cache does not have the type or the index, or an argument is of another class."""
    staff = Staff()
    async with staff.open(), staff.cache(watches=[staff.team], indexes=[]) as cache, cache.notify() as updates:
        with pytest.raises(NotWatched, match="this cache doesn't watch"):
            updates.list(staff.account)
        with pytest.raises(NotWatched, match="this cache doesn't"):
            updates.get(staff.account, "ada")
        with pytest.raises(NotWatched, match="this cache doesn't"):
            updates.index(staff.by_login, "al")
        with pytest.raises(InvalidArgument, match="id must be a name"):
            updates.get(staff.team, 7)  # type: ignore[arg-type]  # the test passes a wrong argument
        with pytest.raises(InvalidArgument, match=r"poll must be a Poll, such as headway\.notify\.Poll"):
            updates.poll(staff.team, max_age=1)  # type: ignore[arg-type]  # the test passes a wrong argument
        with pytest.raises(
            InvalidArgument, match=r"query must be a BlockingQuery, such as headway\.notify\.BlockingQuery"
        ):
            updates.query(staff.team)  # type: ignore[arg-type]  # the test passes a wrong argument
        for wrong in ({"partition": 7}, {"namespace": None}, {"name_prefix": b"a"}, {"correlation_id": 7}):
            arguments: dict[str, Any] = {**wrong}
            (name,) = wrong
            with pytest.raises(InvalidArgument, match=f"{name} must be a string"):
                updates.list(staff.team, **arguments)
        assert not updates._handles
        assert not cache._answers._answers
        await staff.write_team("core")
        assert await received(updates) == []


async def test_o3_each_handle_has_its_correlation_id_and_says_whether_its_value_was_known(
    autojump_clock: MockClock,
) -> None:
    """The handles of all blocks that ask the same share one answer."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache:
        async with cache.notify() as one, cache.notify() as two:
            first = one.list(staff.team, correlation_id="first")
            assert not first.hit
            with pytest.raises(NotPrimed, match=r"'first'.* has no value yet"):
                _ = first.value
            await one.primed()
            second = two.list(staff.team, correlation_id="second")
            assert second.hit
            assert second.value == []
            assert second._answer is first._answer
            assert (await anext(one), await anext(two)) == (first, second)
            assert [each.correlation_id for each in (first, second)] == ["first", "second"]
            await staff.write_team("core")
            assert (await anext(one), await anext(two)) == (first, second)
            first.value[0].data.members.append("mine")
            assert second.value[0].data.members == []
        assert not cache._answers._answers
        await wait_all_tasks_blocked()
        assert cache._views == set(), "a view stays open without a handle"


async def test_o4_slow_receiver_hurts_only_itself_and_gets_the_newest_value(autojump_clock: MockClock) -> None:
    """It gets one handle for a hundred changes. The other receiver gets each of them."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as slow, cache.notify() as quick:
        lazy, keen = slow.get(staff.team, "core"), quick.get(staff.team, "core")
        await quick.primed()
        assert await received(quick) == [keen]
        for number in range(100):
            await staff.write_team("core", f"m{number}")
            assert await received(quick) == [keen]
            assert keen.value is not None
            assert keen.value.data.members == [f"m{number}"]
        assert await received(slow) == [lazy]
        assert lazy.value is not None
        assert lazy.value.data.members == ["m99"]


async def test_handles_come_in_the_order_of_their_changes(autojump_clock: MockClock) -> None:
    """A handle that keeps changing does not keep another one waiting."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        one, two = updates.get(staff.team, "one"), updates.get(staff.team, "two")
        await updates.primed()
        await received(updates)
        await staff.write_team("two")
        await wait_all_tasks_blocked()
        await staff.write_team("one")
        await wait_all_tasks_blocked()
        await staff.write_team("two", "again")
        assert await received(updates) == [two, one]


async def test_change_beyond_the_revision_that_is_shown_comes_with_its_own(autojump_clock: MockClock) -> None:
    """Two commits arrive, and the other type follows by one. The second change is neither early nor lost."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        first, second = updates.get(staff.team, "first"), updates.get(staff.team, "second")
        await updates.primed()
        await received(updates)
        accounts = staff.channel.streams(staff.account)
        accounts.hold()
        await commit_both(staff, "first", "ada")
        await wait_all_tasks_blocked()
        await commit_both(staff, "second", "bo")
        assert await received(updates) == []
        accounts.let_pass()
        assert await received(updates) == [first]
        assert (first.value is None, second.value is None) == (False, True)
        accounts.release()
        assert await received(updates) == [second]
        assert second.value is not None


async def test_commit_of_two_types_is_never_seen_half(autojump_clock: MockClock) -> None:
    """The stream of one type lags. Until it has caught up, no handle changes."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        teams, accounts = updates.list(staff.team), updates.list(staff.account)
        await updates.primed()
        await received(updates)
        staff.channel.streams(staff.account).hold()
        await commit_both(staff, "core", "ada")
        assert await received(updates) == []
        assert names(cache.list(staff.team)) == ["core"]
        assert (teams.value, accounts.value) == ([], [])
        staff.channel.streams(staff.account).release()
        assert set(await received(updates)) == {teams, accounts}
        assert (names(teams.value), names(accounts.value)) == (["core"], ["ada"])
        assert teams.position == accounts.position


async def test_list_changes_only_within_its_bounds(autojump_clock: MockClock) -> None:
    """The bounds are those of `cache.list`."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        some = updates.list(staff.team, name_prefix="a-")
        none = updates.list(staff.team, namespace="other")
        await updates.primed()
        await received(updates)
        await staff.write_team("b-one")
        assert await received(updates) == []
        await staff.write_team("a-one")
        assert await received(updates) == [some]
        assert (names(some.value), none.value) == (["a-one"], [])


async def test_p5_first_failure_of_a_stream_is_not_shown_and_later_ones_are(autojump_clock: MockClock) -> None:
    """Each further failure is delivered, so that a receiver can tell a stale value. So is the end of the failures."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        teams, accounts = updates.list(staff.team), updates.list(staff.account)
        await updates.primed()
        await received(updates)
        staff.channel.streams(staff.team).drop()
        assert await received(updates) == []
        await trio.sleep(10)
        assert await received(updates) == []
        staff.channel.cut(staff.team)
        await trio.sleep(1)
        assert await received(updates) == [teams]
        assert isinstance(teams.error, Unavailable)
        assert teams.age >= 1
        failures = teams.failures
        assert failures >= 2
        await trio.sleep(20)
        assert await received(updates) == [teams]
        assert teams.failures > failures
        assert (accounts.error, accounts.age) == (None, 0.0)
        late = updates.get(staff.team, "core")
        assert isinstance(late.error, Unavailable)
        staff.channel.mend()
        await trio.sleep(10)
        assert set(await received(updates)) == {teams, late}
        assert [teams.error, teams.age, teams.failures] == [None, 0.0, 0]


async def test_closed_handle_is_not_yielded_and_a_closed_block_makes_none() -> None:
    """Closing is idempotent. The iteration ends with the block."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache:
        async with cache.notify() as updates:
            teams, core = updates.list(staff.team), updates.get(staff.team, "core")
            await updates.primed()
            teams.close()
            teams.close()
            assert await received(updates) == [core]
            await staff.write_team("core")
            assert await received(updates) == [core]
        with pytest.raises(Closed, match="notify block has ended"):
            updates.list(staff.team)
        assert [each async for each in updates] == []
        assert not cache._answers._answers


async def test_change_goes_to_one_of_the_tasks_that_share_a_block(autojump_clock: MockClock) -> None:
    """Tasks with blocks of their own all receive it."""
    staff = Staff()
    async with (
        staff.open(),
        staff.cache() as cache,
        cache.notify() as shared,
        cache.notify() as own,
        trio.open_nursery() as nursery,
    ):
        heard: list[str] = []

        async def receive(name: str, updates: Updates) -> None:
            async for _ in updates:
                heard.append(name)

        for updates in (shared, own):
            updates.get(staff.team, "core")
            await updates.primed()
            await received(updates)
        for name, updates in (("shared", shared), ("shared", shared), ("own", own)):
            nursery.start_soon(receive, name, updates)
        for number in range(3):
            await staff.write_team("core", f"m{number}")
            await trio.sleep(1)
        assert sorted(heard) == ["own"] * 3 + ["shared"] * 3
        nursery.cancel_scope.cancel()


async def test_canceled_wait_loses_no_change(autojump_clock: MockClock) -> None:
    """`updates` is an iterator, so a wait may end at any time and begin again."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        core = updates.get(staff.team, "core")
        await updates.primed()
        await received(updates)
        for number in range(3):
            with trio.move_on_after(1) as waited:
                await anext(updates)
            assert waited.cancelled_caught
            await staff.write_team("core", f"m{number}")
            assert await received(updates) == [core]


async def test_cancellation_in_the_step_of_a_change_loses_nothing() -> None:
    """The receiver has been woken, and is canceled before it runs."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates, trio.open_nursery() as nursery:
        core = updates.get(staff.team, "core")
        await updates.primed()
        await received(updates)
        taken: list[Handle[object]] = []

        async def receive() -> None:
            taken.append(await anext(updates))

        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        core._answer.note_value()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            assert taken + await received(updates) == [core]


async def test_p4_thousand_handles_of_one_question_share_one_stream_and_one_answer(autojump_clock: MockClock) -> None:
    """One commit marks them all."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache, cache.notify() as updates:
        handles = [updates.get(staff.team, "core") for _ in range(1000)]
        await updates.primed()
        assert await received(updates) == handles
        await staff.write_team("core")
        assert await received(updates) == handles
        assert len({each._answer for each in handles}) == 1
        assert staff.channel.opened.count((staff.team.kind, False)) == 1
