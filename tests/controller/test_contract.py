"""The contract's C1 to C5, each by the fewest steps in which it could be broken."""

from __future__ import annotations

import trio
from trio.testing import MockClock

import headway
from headway.events import RunStarted, WriteSettled
from headway.service import FENCED
from headway.testing import Fault
from tests.helpers.pools import Member, Summary
from tests.helpers.rig import Rig
from tests.helpers.settings import Setting


async def test_c1_nothing_runs_before_every_type_is_primed(autojump_clock: MockClock, setting: Setting) -> None:
    """While one of the three types has no snapshot, no mapper and no reconciler is called."""
    rig = Rig(autojump_clock, setting=setting)
    looked: list[str] = []
    rig.pools.looked = lambda resource, _: looked.append(resource.name)
    rig.pools.at_start = ["a"]
    rig.channel.stall(rig.pools.summary)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        await trio.sleep(60)
        assert (looked, rig.names) == ([], [])

        rig.channel.release(rig.pools.summary)
        await rig.settle()
        assert looked[0] == "m"
        assert await rig.summaries() == {"a": ["m"]}


async def test_c1_the_first_reconciles_see_one_cut(autojump_clock: MockClock, setting: Setting) -> None:
    """A run begins when every type has reached the highest of the revisions at which they were primed."""
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
        assert not rig.witness.heard(RunStarted)

        rig.channel.release(rig.pools.pool)
        await rig.settle()
        assert min(rig.witness.reconciles[0].frontiers.values()) >= cut


async def test_c2_an_older_snapshot_takes_nothing_back(autojump_clock: MockClock, setting: Setting) -> None:
    """A replica that still has a deleted member, and an older version of another one, is not believed."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("stays", "a")
        await rig.write_member("goes", "a")
        await rig.settle()
        past = rig.store.position.revision
        await rig.engine.client.delete(rig.pools.member.id("goes"))
        await rig.write_member("stays", "")
        await rig.settle()

        rig.channel.refuse_resume(rig.pools.member)
        rig.channel.old_snapshot(rig.pools.member, past)
        rig.channel.hold(rig.pools.member)
        rig.channel.drop(rig.pools.member)
        await trio.sleep(1)
        before = len(rig.names)
        rig.pools.poke("a")
        await trio.sleep(1)
        rig.witness.check()
        assert rig.names[before:] == ["a"]
        rig.channel.release(rig.pools.member)
        await rig.settle()
        assert await rig.summaries() == {}


async def test_c2_an_older_change_takes_nothing_back(autojump_clock: MockClock, setting: Setting) -> None:
    """A replica that tells changes again that the cache is past is not believed."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        past = rig.store.position.revision
        await rig.write_member("m", "a")
        await rig.write_member("m", "")
        await rig.settle()

        rig.channel.refuse_resume(rig.pools.member)
        rig.channel.old_snapshot(rig.pools.member, past)
        rig.channel.hold(rig.pools.member)
        rig.channel.drop(rig.pools.member)
        await trio.sleep(1)
        rig.channel.let_pass(rig.pools.member)
        await trio.sleep(1)
        rig.pools.poke("a")
        await trio.sleep(1)
        rig.witness.check()


async def test_c2_a_reply_that_comes_late_takes_nothing_back(autojump_clock: MockClock, setting: Setting) -> None:
    """An answer to a write that the stream has already told, and something newer, changes nothing."""
    rig = Rig(autojump_clock, setting=setting, concurrency=2)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        rig.channel.writes(Fault.SLOW)
        await rig.write_member("m", "a")
        await trio.sleep(1)
        await rig.engine.client.delete(rig.pools.summary.id("a"))
        await trio.sleep(1)
        rig.channel.hold(rig.pools.summary)
        rig.channel.answer_slow()
        rig.pools.poke("b")
        await trio.sleep(1)
        rig.witness.check()


async def test_c2_a_change_below_an_own_write_takes_nothing_back(autojump_clock: MockClock, setting: Setting) -> None:
    """The stream tells what came before the controller's own write after the cache has shown that write.

    It is not applied, but the pool that it had moved the member to is owed a look (C6).
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
        await engine.client.apply(pools.member.new("m", Member(pool="first")))
        await engine.wait_settled()
        channel.hold(pools.member)
        await engine.client.apply(pools.member.new("m", Member(pool="between")))
        pools.poke("mover")
        await trio.sleep(1)
        assert seen == [("first", "first"), ("mover", "first")]
        channel.let_pass(pools.member)
        pools.poke("looker")
        await trio.sleep(1)
        assert seen[2] == ("looker", "last")
        channel.release(pools.member)
        await engine.wait_settled()

    assert sorted(seen[3:]) == [("between", "last"), ("first", "last"), ("last", "last")]


async def test_c3_what_an_initialiser_sent_can_not_land_in_a_later_run(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """An initialiser's writes are fenced as well, and the run begins by seeing them."""
    rig = Rig(autojump_clock, setting=setting)
    pools, channel = rig.pools, rig.channel

    async def initialiser(rt: headway.Runtime) -> None:
        await rt.client.apply(pools.member.new("m", Member(pool=str(rt.term))))

    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        member = rt.cache.get(pools.member, "m")
        assert member is not None
        seen.append((rt.term, member.data.pool))

    seen: list[tuple[int, str]] = []
    pools.replace(look, initialiser=initialiser)
    channel.writes(Fault.LATE)
    async with rig.open() as engine:
        await engine.client.apply(pools.pool.new("a"))
        with trio.fail_after(100):
            await engine.wait_settled()
        (late,) = await channel.run_late()

    assert late.error is not None
    assert (late.error.message or "").startswith(FENCED)
    assert set(seen) == {(3, "3")}


async def test_c5_a_run_begins_by_seeing_what_its_initialiser_wrote(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """A replica that is behind the initialiser's write, though not behind the fence before it, is waited for."""
    rig = Rig(autojump_clock, setting=setting)
    pools, channel = rig.pools, rig.channel
    pools.at_start = ["a"]
    for type in pools.types:
        channel.old_snapshot(type, 1)
        channel.hold(type)

    async def initialiser(rt: headway.Runtime) -> None:
        await rt.client.apply(pools.member.new("m", Member(pool="a")))

    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        seen.append(rt.cache.get(pools.member, "m") is not None)

    seen: list[bool] = []
    pools.replace(look, initialiser=initialiser)
    async with rig.open():
        await trio.sleep(10)
        assert seen == []
        for type in pools.types:
            channel.release(type)
        await rig.settle()
    assert set(seen) == {True}


async def test_c3_a_run_that_starts_waits_for_its_starting_revision(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """A run after a crash is not begun on a cache that lags behind the raising of its fence."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        for type in rig.pools.types:
            rig.channel.hold(type)
        before = len(rig.names)
        await rig.restart()
        await trio.sleep(10)
        assert len(rig.names) == before

        for type in rig.pools.types:
            rig.channel.release(type)
        await rig.settle()
        start = rig.witness.started
        assert rig.names[before:] == ["a"]
        assert all(frontier >= start for frontier in rig.witness.reconciles[-1].frontiers.values())


async def test_c3_what_the_former_run_sent_can_not_land_after_the_start(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """A write that was on its way when the run ended is refused when it arrives in the next run's time."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        # The former run gets no chance to settle it.
        rig.channel.writes(Fault.LATE)
        await trio.sleep(1)
        rig.channel.raises(*[Fault.FAILED] * 3)
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        # The member is mapped when the other streams have told that they stand there, over a network with a delay.
        with trio.fail_after(1):
            while not rig.channel.unknown:  # noqa: ASYNC110  # nothing tells of it
                await trio.sleep(0.001)
        assert len(rig.channel.unknown) == 1
        rig.pools.fail_source()
        await rig.quiet()
        rig.channel.heal()
        await rig.settle()

        (late,) = await rig.channel.run_late()

        assert late.error is not None
        assert (late.error.message or "").startswith(FENCED)


async def test_c4_a_change_waits_until_every_type_has_reached_it(autojump_clock: MockClock, setting: Setting) -> None:
    """A member's change is neither mapped nor reconciled while the pools' stream stands below it."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        before = len(rig.names)
        rig.channel.hold(rig.pools.pool)
        await rig.write_member("m", "a")
        await trio.sleep(10)
        assert len(rig.names) == before

        rig.channel.release(rig.pools.pool)
        await rig.settle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_c4_what_came_while_the_run_was_primed_waits_as_well(autojump_clock: MockClock, setting: Setting) -> None:
    """A member that was told between its type's subscription and the run's begin is not mapped ahead of the others."""
    rig = Rig(autojump_clock, setting=setting)
    pool, channel = rig.pools.pool, rig.channel
    channel.stall(pool)
    async with rig.open():
        await trio.sleep(1)
        start = rig.store.position.revision
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        await trio.sleep(1)
        # The pools stand at the starting revision, which is the cut; the members have gone on.
        channel.old_snapshot(pool, start)
        channel.drop(pool)
        channel.release(pool)
        channel.hold(pool)
        await trio.sleep(1)
        assert rig.witness.heard(RunStarted)
        assert rig.names == []

        channel.release(pool)
        await rig.settle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_c5_an_acknowledged_write_is_seen_by_the_next_reconcile(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """A reconcile that follows a write sees it, although the stream hasn't told it, and a deletion likewise."""
    rig = Rig(autojump_clock, setting=setting)
    pools, channel = rig.pools, rig.channel
    seen: list[bool] = []

    async def toggle(rt: headway.Runtime, _: headway.Request) -> headway.RequeueAfter | None:
        there = rt.cache.get(pools.summary, "x")
        seen.append(there is not None)
        if len(seen) == 1:
            channel.hold(pools.summary)
            await rt.client.apply(pools.summary.new("x", Summary(members=["m"])))
        elif there is not None:
            await rt.client.delete(there)
        return headway.requeue_after(1) if len(seen) < 3 else None

    pools.replace(toggle)
    async with rig.open() as engine:
        await engine.client.apply(pools.pool.new("a"))
        await trio.sleep(10)

    assert seen == [False, True, False]


async def test_c5_a_lost_answer_holds_every_key_until_it_is_settled(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """After a write with an unknown outcome no key is reconciled until the fence has been raised above it."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_pool("b")
        await rig.settle()
        rig.channel.writes(Fault.LOST)
        rig.channel.raises(*[Fault.FAILED] * 5)
        before = len(rig.names)
        await rig.write_member("m", "a")
        await trio.sleep(0.05)
        await rig.write_member("n", "b")
        while not rig.witness.heard(WriteSettled):
            assert len(rig.names) == before + 1
            await trio.sleep(0.01)
        await rig.settle()
        assert await rig.summaries() == {"a": ["m"], "b": ["n"]}


async def test_c5_a_late_write_is_refused_once_it_is_settled(autojump_clock: MockClock, setting: Setting) -> None:
    """A write that seemed lost and arrives after the settling changes nothing."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        rig.channel.writes(Fault.LATE)
        await rig.write_member("m", "a")
        await rig.settle()

        (late,) = await rig.channel.run_late()

        assert late.error is not None
        assert (late.error.message or "").startswith(FENCED)
        assert await rig.summaries() == {"a": ["m"]}


async def test_c5_settling_waits_until_the_cache_has_reached_the_commit(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """After a lost answer the keys wait for the settling commit to be in the cache of every type."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("m", "")
        await rig.settle()
        rig.channel.writes(Fault.LOST)
        await rig.write_member("m", "a")
        rig.pools.pause = 1.0
        await trio.sleep(0.5)
        rig.channel.hold(rig.pools.summary)
        rig.pools.poke("a")
        await trio.sleep(0.6)
        before = len(rig.names)
        await trio.sleep(20)
        assert len(rig.names) == before

        rig.channel.release(rig.pools.summary)
        await rig.settle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_c5_a_write_that_is_lost_amid_a_settling_is_settled_too(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """The fence that settled the first one is below it: the keys wait for another commit."""
    rig = Rig(autojump_clock, setting=setting, concurrency=2)
    channel = rig.channel
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_pool("b")
        await rig.settle()
        channel.writes(Fault.LATE, Fault.LATE)
        rig.pools.pause = 2.0
        await rig.write_member("m", "a")
        await trio.sleep(1)
        await rig.write_member("n", "b")
        await trio.sleep(0.5)
        # The first is settled by a commit at 2 s, for which the keys wait when the second is lost.
        channel.hold(rig.pools.summary)
        await trio.sleep(1)
        assert len(channel.unknown) == 1
        channel.raises(*[Fault.FAILED] * 4)
        await trio.sleep(1.5)
        assert len(channel.unknown) == 2
        rig.pools.pause = 0.0
        before = len(rig.names)
        channel.release(rig.pools.summary)
        while not rig.witness.heard(WriteSettled):
            assert len(rig.names) == before
            await trio.sleep(0.01)
        late = await channel.run_late()
        assert [(call.error.message or "").startswith(FENCED) for call in late if call.error] == [True, True]
        await rig.settle()
        assert await rig.summaries() == {"a": ["m"], "b": ["n"]}


async def test_c5_a_cancelled_write_is_settled_like_a_lost_one(autojump_clock: MockClock, setting: Setting) -> None:
    """A write that is cancelled by the reconcile's deadline may have happened: the keys wait for its settling."""
    rig = Rig(autojump_clock, setting=setting, deadline=5.0)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        rig.channel.writes(Fault.SILENT)
        await rig.write_member("m", "a")
        await rig.settle()

        assert len(rig.witness.heard(WriteSettled)) == 1
        assert await rig.summaries() == {"a": ["m"]}
