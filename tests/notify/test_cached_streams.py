"""The streams behind the caches of programs: snapshots, resumed streams, retries and changed rights."""

from __future__ import annotations

from itertools import pairwise

import trio
from trio.testing import MockClock

from headway.access import Access, new_token
from headway.events import StreamEnded, StreamOpened
from tests.helpers.cached import Staff, authorizer, names, readers
from tests.helpers.stream_beginnings import Behind, Compacted, Half


def opened(staff: Staff) -> list[bool]:
    """Return for each stream of teams whether it was asked to resume."""
    return [resumed for kind, resumed in staff.channel.opened if kind == staff.team.kind]


async def test_p1_part_of_a_snapshot_is_never_shown(autojump_clock: MockClock) -> None:
    """The first stream breaks in its snapshot, and so does a later one that takes the place of a compacted history."""
    staff = Staff()
    async with staff.open():
        for number in range(5):
            await staff.write_team(f"team-{number}")
        staff.channel.begin(staff.team, Half(2), Half(4))
        async with staff.cache() as cache:
            assert len(cache.list(staff.team)) == 5
            staff.channel.cut(staff.team)
            for number in range(5):
                await staff.write_team(f"team-{number}", "ada")
            staff.channel.mend()
            staff.channel.begin(staff.team, Compacted(), Half(1), Half(3))
            for _ in range(1000):
                await trio.sleep(0.01)
                assert [len(team.data.members) for team in cache.list(staff.team)] in ([0] * 5, [1] * 5)
            assert cache.list(staff.team)[0].data.members == ["ada"]
            assert not staff.channel.streams(staff.team).beginnings
            assert opened(staff).count(False) >= 5


async def test_p1_empty_snapshot_still_has_a_position() -> None:
    """So the cache is entered, and an empty answer means that nothing exists."""
    staff = Staff()
    async with staff.open():
        before = staff.store.position.revision
        async with staff.cache() as cache:
            assert cache.list(staff.team) == []
            assert cache.position.revision >= before > 0


async def test_m2_cache_waits_for_a_replica_that_lags(autojump_clock: MockClock) -> None:
    """A complete snapshot of an older revision does not suffice."""
    staff = Staff()
    async with staff.open():
        await staff.write_team("core")
        behind = staff.store.position.revision
        await staff.write_team("docs")
        staff.channel.begin(staff.team, Behind(behind, "hangs"))
        began = trio.current_time()
        # With another type, the cache would wait for the revision of that.
        async with staff.cache(watches=[staff.team], indexes=[]) as cache:
            assert names(cache.list(staff.team)) == ["core", "docs"]
            assert round(trio.current_time() - began, 6) >= 20


async def test_cache_opens_with_all_types_at_one_revision(autojump_clock: MockClock) -> None:
    """The snapshot of one type is newer than that of the other, which then has to follow."""
    staff = Staff()
    opened = trio.Event()

    async def other() -> None:
        async with staff.cache() as cache:
            assert cache.revision(staff.account) >= cache.revision(staff.team)
            assert names(cache.list(staff.account)) == ["ada"]
            opened.set()

    async with staff.open(), trio.open_nursery() as nursery:
        staff.channel.cut(staff.team)
        nursery.start_soon(other)
        await trio.sleep(1)
        staff.channel.streams(staff.account).hold()
        await staff.write_account("ada")
        await staff.write_team("core")
        staff.channel.mend()
        await trio.sleep(10)
        assert not opened.is_set()
        staff.channel.streams(staff.account).release()
        with trio.fail_after(10):
            await opened.wait()


async def test_m3_stream_resumes_after_any_revision_that_is_kept(autojump_clock: MockClock) -> None:
    """A program that was cut off for some time needs no new snapshot."""
    staff = Staff()
    async with staff.open(), staff.cache() as cache:
        for number in range(10):
            staff.channel.cut(staff.team)
            for each in range(number):
                await staff.write_team(f"team-{number}-{each}")
            await trio.sleep(3)
            staff.channel.mend()
            await cache.wait_for(staff.store.position.revision)
        assert len(cache.list(staff.team)) == 45
        assert opened(staff).count(False) == 1


async def test_p6_failing_stream_is_retried_with_back_off_and_jitter(autojump_clock: MockClock) -> None:
    """The waits double from 25 to 50 ms on, up to 5 s."""
    staff = Staff()
    async with staff.open(), staff.cache():
        staff.channel.cut(staff.team)
        times: list[float] = []
        for _ in range(100_000):
            if len(opened(staff)) > len(times) + 1:
                times.append(trio.current_time())
            if len(times) == 14:
                break
            await trio.sleep(0.005)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        for number, gap in enumerate(gaps, 1):
            ceiling = min(0.05 * 2**number, 5.0)
            assert ceiling / 2 - 0.01 <= gap <= ceiling + 0.01
        assert len({round(gap, 2) for gap in gaps[8:]}) > 1


async def test_m7_changed_policy_begins_the_stream_again() -> None:
    """The server ends it, and the program resumes it with its new rights, without an error."""
    text, token = new_token(["readers"])
    access = authorizer(readers("view"), token)
    staff = Staff()
    async with staff.open(listen=True, access=access):
        with trio.fail_after(60):
            async with staff.cache("TCP", token=text) as cache, cache.notify() as updates:
                core = updates.get(staff.team, "core")
                access.replace(Access([readers("view", "edit")], [token]))
                await cache.wait_for(await staff.write_team("core"))
                while core.value is None:
                    await anext(updates)
        ended = [event.why for event in staff.reported if isinstance(event, StreamEnded)]
        assert any("your permissions have changed" in why for why in ended)
        streams = [event for event in staff.reported if isinstance(event, StreamOpened) and event.resume_after]
        assert streams
