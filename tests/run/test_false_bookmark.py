"""A server with a false bookmark: the change that it hid is found, and the controller is not idle until then."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from headway.events import BookmarkRefused
from tests.helpers.rig import Rig


async def test_controller_is_not_idle_until_the_change_behind_a_false_bookmark_arrives(
    autojump_clock: MockClock,
) -> None:
    """Once the bookmark has proved false, its revision doesn't count until a snapshot has confirmed it."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.channel.false_bookmark(rig.pools.member)
        await rig.write_member("m", "a")
        while not rig.witness.events_of(BookmarkRefused):
            await trio.lowlevel.checkpoint()
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_snapshot_from_before_a_false_bookmark_does_not_restore_trust(autojump_clock: MockClock) -> None:
    """An older snapshot from a replica can't contain the hidden change. Snapshots are requested until one can."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        for back in (2, 1):
            rig.channel.old_snapshot(rig.pools.member, rig.store.position.revision + 1 - back)
        rig.channel.false_bookmark(rig.pools.member)
        await rig.write_member("m", "a")
        await trio.sleep(5)
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_older_snapshot_after_a_refused_resume_leaves_the_frontier_trusted(autojump_clock: MockClock) -> None:
    """A server that can't resume a stream casts no doubt on the cache.

    The cache is idle when the stream has caught up.
    """
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.channel.refuse_resume(rig.pools.pool)
        rig.channel.old_snapshot(rig.pools.pool, 0)
        rig.channel.drop(rig.pools.pool)
        await trio.sleep(5)
        await rig.write_member("m", "a")
        await rig.wait_idle(5)
        assert await rig.summaries() == {"a": ["m"]}
