"""C1, C2 and C4 of the contract, each tested by the fewest steps that could break it."""

from __future__ import annotations

import trio
from trio.testing import MockClock

import headway
from headway.events import RunStarted
from headway.testing import Fault
from tests.helpers.pools import Member
from tests.helpers.rig import Rig
from tests.helpers.settings import Setting


async def test_c1_nothing_runs_before_every_type_is_primed(autojump_clock: MockClock, setting: Setting) -> None:
    """While one of the three types has no snapshot, no mapper and no reconciler is called."""
    rig = Rig(autojump_clock, setting=setting)
    looked: list[str] = []
    rig.pools.on_mapping = lambda resource, _: looked.append(resource.name)
    rig.pools.at_start = ["a"]
    rig.channel.stall(rig.pools.summary)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        await trio.sleep(60)
        assert (looked, rig.names) == ([], [])

        rig.channel.release(rig.pools.summary)
        await rig.wait_idle()
        assert looked[0] == "m"
        assert await rig.summaries() == {"a": ["m"]}


async def test_c1_first_reconciles_see_every_type_at_the_same_revision(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """A run begins when every type has reached the highest revision of all snapshots."""
    rig = Rig(autojump_clock, setting=setting)
    rig.channel.stall(rig.pools.member)
    async with rig.open():
        await trio.sleep(1)
        rig.channel.hold(rig.pools.pool)
        await rig.write_pool("a")
        cut = rig.store.position.revision
        rig.channel.drop(rig.pools.member)
        rig.channel.release(rig.pools.member)
        await trio.sleep(10)
        assert not rig.witness.events_of(RunStarted)

        rig.channel.release(rig.pools.pool)
        await rig.wait_idle()
        assert min(rig.witness.reconciles[0].frontiers.values()) >= cut


async def test_c2_older_snapshot_is_ignored(autojump_clock: MockClock, setting: Setting) -> None:
    """A lagging replica sends a snapshot with a deleted member and an older version of another member."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("stays", "a")
        await rig.write_member("goes", "a")
        await rig.wait_idle()
        past = rig.store.position.revision
        await rig.engine.client.delete(rig.pools.member.id("goes"))
        await rig.write_member("stays", "")
        await rig.wait_idle()

        rig.channel.refuse_resume(rig.pools.member)
        rig.channel.old_snapshot(rig.pools.member, past)
        rig.channel.hold(rig.pools.member)
        rig.channel.drop(rig.pools.member)
        await trio.sleep(1)
        before = len(rig.names)
        rig.pools.enqueue("a")
        await trio.sleep(1)
        rig.witness.check()
        assert rig.names[before:] == ["a"]
        rig.channel.release(rig.pools.member)
        await rig.wait_idle()
        assert await rig.summaries() == {}


async def test_c2_older_change_is_ignored(autojump_clock: MockClock, setting: Setting) -> None:
    """A replica repeats changes that the cache has passed."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        past = rig.store.position.revision
        await rig.write_member("m", "a")
        await rig.write_member("m", "")
        await rig.wait_idle()

        rig.channel.refuse_resume(rig.pools.member)
        rig.channel.old_snapshot(rig.pools.member, past)
        rig.channel.hold(rig.pools.member)
        rig.channel.drop(rig.pools.member)
        await trio.sleep(1)
        rig.channel.let_pass(rig.pools.member)
        await trio.sleep(1)
        rig.pools.enqueue("a")
        await trio.sleep(1)
        rig.witness.check()


async def test_c2_late_reply_is_ignored(autojump_clock: MockClock, setting: Setting) -> None:
    """The answer to a write arrives after the stream has delivered that write and a newer change."""
    rig = Rig(autojump_clock, setting=setting, concurrency=2)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.channel.writes(Fault.SLOW)
        await rig.write_member("m", "a")
        await trio.sleep(1)
        await rig.engine.client.delete(rig.pools.summary.id("a"))
        await trio.sleep(1)
        rig.channel.hold(rig.pools.summary)
        rig.channel.answer_slow()
        rig.pools.enqueue("b")
        await trio.sleep(1)
        rig.witness.check()


async def test_c2_change_below_an_own_write_is_mapped_but_not_applied(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """The stream delivers an earlier change after the cache has shown the controller's own write.

    The change is not applied, but it had moved the member to another pool, and that pool is reconciled (C6).
    """
    rig = Rig(autojump_clock, setting=setting)
    pools, channel = rig.pools, rig.channel
    seen: list[tuple[str, str]] = []

    async def move(rt: headway.Runtime, request: headway.Request) -> None:
        member = rt.cache.get(pools.member, "m")
        seen.append((request.id.name, member.data.pool if member is not None else ""))
        if request.id.name == "mover" and member is not None:
            await rt.client.apply(pools.member.new("m", Member(pool="last")))

    pools.replace(move)
    async with rig.open() as engine:
        # What is written while the run begins may be reconciled twice.
        await engine.wait_idle()
        await engine.client.apply(pools.member.new("m", Member(pool="first")))
        await engine.wait_idle()
        channel.hold(pools.member)
        await engine.client.apply(pools.member.new("m", Member(pool="between")))
        pools.enqueue("mover")
        await trio.sleep(1)
        assert seen == [("first", "first"), ("mover", "first")]
        channel.let_pass(pools.member)
        pools.enqueue("looker")
        await trio.sleep(1)
        assert seen[2] == ("looker", "last")
        channel.release(pools.member)
        await engine.wait_idle()

    assert sorted(seen[3:]) == [("between", "last"), ("first", "last"), ("last", "last")]


async def test_c4_change_waits_until_every_type_has_reached_it(autojump_clock: MockClock, setting: Setting) -> None:
    """A member's change is neither mapped nor reconciled while the pools' stream is below it."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        before = len(rig.names)
        rig.channel.hold(rig.pools.pool)
        await rig.write_member("m", "a")
        await trio.sleep(10)
        assert len(rig.names) == before

        rig.channel.release(rig.pools.pool)
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_c4_change_during_priming_waits_as_well(autojump_clock: MockClock, setting: Setting) -> None:
    """A member changes between the subscription and the start of the run. It is not mapped ahead of the other types."""
    rig = Rig(autojump_clock, setting=setting)
    pool, channel = rig.pools.pool, rig.channel
    channel.stall(pool)
    async with rig.open():
        await trio.sleep(1)
        start = rig.store.position.revision
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        await trio.sleep(1)
        # The pools are at the starting revision, which is the cut. The members are past it.
        channel.old_snapshot(pool, start)
        channel.drop(pool)
        channel.release(pool)
        channel.hold(pool)
        await trio.sleep(1)
        assert rig.witness.events_of(RunStarted)
        assert rig.names == []

        channel.release(pool)
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"]}
