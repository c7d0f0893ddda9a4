"""C3 of the contract, tested by the fewest steps that could break it."""

from __future__ import annotations

import trio
from trio.testing import MockClock

import headway
from headway.api import Reason
from headway.testing import Fault
from tests.helpers.pools import Member
from tests.helpers.rig import Rig
from tests.helpers.service_errors import reason_of
from tests.helpers.settings import Setting


async def test_c3_late_write_of_an_initialiser_is_refused_in_a_later_run(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """The writes of an initialiser are fenced as well, and the run begins with them in its cache."""
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
            await engine.wait_idle()
        (late,) = await channel.run_late()

    assert late.error is not None
    assert reason_of(late.error) is Reason.FENCED
    assert set(seen) == {(3, "3")}


async def test_c3_run_waits_for_its_starting_revision(autojump_clock: MockClock, setting: Setting) -> None:
    """After a crash, a run doesn't begin while its cache is behind the commit that raised its fence."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        for type in rig.pools.types:
            rig.channel.hold(type)
        before = len(rig.names)
        await rig.restart()
        await trio.sleep(10)
        assert len(rig.names) == before

        for type in rig.pools.types:
            rig.channel.release(type)
        await rig.wait_idle()
        start = rig.witness.started
        assert rig.names[before:] == ["a"]
        assert all(frontier >= start for frontier in rig.witness.reconciles[-1].frontiers.values())


async def test_c3_late_write_of_the_previous_run_is_refused(autojump_clock: MockClock, setting: Setting) -> None:
    """The write was in flight when the previous run ended, and arrives during the next run."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        # The previous run gets no chance to resolve the write.
        rig.channel.writes(Fault.LATE)
        await trio.sleep(1)
        rig.channel.raises(*[Fault.FAILED] * 3)
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        # Over a network with a delay, the member is mapped only when the other streams have reported that revision.
        with trio.fail_after(1):
            while not rig.channel.unknown:  # noqa: ASYNC110  # nothing tells of it
                await trio.sleep(0.001)
        assert len(rig.channel.unknown) == 1
        rig.pools.fail_source()
        await rig.run_until_blocked()
        rig.channel.heal()
        await rig.wait_idle()

        (late,) = await rig.channel.run_late()

        assert late.error is not None
        assert reason_of(late.error) is Reason.FENCED
