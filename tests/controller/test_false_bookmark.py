"""A server that lies about how far it has told: what it hid is found, and nothing is called settled meanwhile."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from headway.events import BookmarkRefused
from tests.helpers.rig import Rig


async def test_nothing_is_settled_until_what_a_false_bookmark_hid_has_been_told(autojump_clock: MockClock) -> None:
    """Once the bookmark has proved false its revision counts for nothing, until a snapshot has made it good."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        rig.channel.false_bookmark(rig.pools.member)
        await rig.write_member("m", "a")
        while not rig.witness.heard(BookmarkRefused):
            await trio.lowlevel.checkpoint()
        await rig.settle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_a_snapshot_from_before_a_false_bookmark_does_not_make_it_good(autojump_clock: MockClock) -> None:
    """A replica's older snapshot can't bring what was hidden: another one is asked for until one can."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        for back in (2, 1):
            rig.channel.old_snapshot(rig.pools.member, rig.store.position.revision + 1 - back)
        rig.channel.false_bookmark(rig.pools.member)
        await rig.write_member("m", "a")
        await trio.sleep(5)
        await rig.settle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_an_older_snapshot_after_a_refused_resume_leaves_the_frontier_trusted(autojump_clock: MockClock) -> None:
    """A server that can't resume says nothing against what is held: it is settled once the stream has caught up."""
    rig = Rig(autojump_clock)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        rig.channel.refuse_resume(rig.pools.pool)
        rig.channel.old_snapshot(rig.pools.pool, 0)
        rig.channel.drop(rig.pools.pool)
        await trio.sleep(5)
        await rig.write_member("m", "a")
        await rig.settle(5)
        assert await rig.summaries() == {"a": ["m"]}
