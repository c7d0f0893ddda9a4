"""C6 and C7 of the contract, each tested by the fewest steps that could break it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio
from trio.testing import MockClock

import headway
from headway.events import Primed, RunEnded, RunStarted
from headway.resource import TypeName
from headway.testing import Fault
from tests.helpers.pools import Member
from tests.helpers.rig import Rig
from tests.helpers.settings import Setting


async def test_c6_change_is_mapped_by_its_old_state_too(autojump_clock: MockClock, setting: Setting) -> None:
    """A member that moves between pools causes a reconcile of both."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_pool("b")
        await rig.write_member("m", "a")
        await rig.wait_idle()
        await rig.write_member("m", "b")
        await rig.wait_idle()
        rig.witness.last_changes_were_seen()
        assert await rig.summaries() == {"b": ["m"]}


async def test_c6_change_during_a_reconcile_causes_another_one(autojump_clock: MockClock, setting: Setting) -> None:
    """A key that changes during its reconcile is reconciled again, and that reconcile sees the change."""
    rig = Rig(autojump_clock, setting=setting)
    rig.pools.final_pause = 1.0
    async with rig.open():
        await rig.write_pool("a")
        await trio.sleep(0.5)
        await rig.write_member("m", "a")
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"]}
        rig.witness.last_changes_were_seen()


async def test_c6_unmapped_change_of_a_run_is_mapped_by_the_next(autojump_clock: MockClock, setting: Setting) -> None:
    """Only the change shows which key a member moved away from. A run that ends hands the change to the next run."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("m", "not-there")
        await rig.wait_idle()
        rig.channel.hold(rig.pools.summary)
        await rig.write_member("m", "a")
        moved_at = rig.store.position.revision
        await trio.sleep(1)
        await rig.restart()
        rig.channel.release(rig.pools.summary)
        await rig.wait_idle()
        last = [seen for seen in rig.witness.reconciles if seen.name == "not-there"][-1]
        assert last.frontiers[rig.pools.member.name] >= moved_at


async def test_c6_change_between_two_runs_is_mapped_by_the_next(autojump_clock: MockClock, setting: Setting) -> None:
    """Members move away from pools that don't exist."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("m", "not-there")
        await rig.write_member("n", "nor-there")
        await rig.wait_idle()
        rig.pools.fail_source()
        await rig.run_until_blocked()
        assert len(rig.witness.events_of(RunEnded)) == 1
        for name in ("m", "n"):
            await rig.write_member(name, "a")
            await rig.run_until_blocked()
        moved_at = rig.store.position.revision
        assert len(rig.witness.events_of(RunStarted)) == 1
        await rig.wait_idle()
        for name in ("not-there", "nor-there"):
            last = [seen for seen in rig.witness.reconciles if seen.name == name][-1]
            assert last.frontiers[rig.pools.member.name] >= moved_at


async def test_c6_unreconciled_keys_of_the_previous_run_are_pending(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """A key that waits when a run ends is reconciled by the next run, although its cache doesn't show the change."""
    rig = Rig(autojump_clock, setting=setting, concurrency=1)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.pools.pause = 3.0
        rig.pools.enqueue("a")
        rig.pools.enqueue("not-there")
        await trio.sleep(0.1)
        await rig.restart()
        await rig.wait_idle()
        assert [seen.term for seen in rig.witness.reconciles if seen.name == "not-there"] == [3]


async def test_c6_deletion_while_no_engine_ran_is_found_in_history(autojump_clock: MockClock, setting: Setting) -> None:
    """A member and its pool are deleted between two engines over one store; the pool is reconciled."""
    store = setting.store()
    first = Rig(autojump_clock, store=store, setting=setting)
    async with first.open() as engine:
        await engine.client.apply(first.pools.member.new("m", Member(pool="never-was")))
        await first.wait_idle()
        await trio.sleep(6)
    bare = headway.App("bare")
    for type in first.pools.types:
        bare.registry.register(type)
    async with headway.open_engine(store, bare) as engine:
        await engine.client.delete(first.pools.member.id("m"))

    second = Rig(autojump_clock, store=store, setting=setting)
    async with second.open():
        await second.wait_idle()
        assert second.names == ["never-was"]


def _primed(rig: Rig) -> dict[TypeName, int]:
    """Return the revision at which each type of the rig's controller was primed."""
    return {each.type: each.revision for each in rig.witness.events_of(Primed) if each.controller == "test/pools"}


async def test_c6_deletion_acknowledged_just_before_a_run_subscribes_is_mapped(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """Another controller deletes a member. The reply takes it out of the shared cache before the stream does."""
    rig = Rig(autojump_clock, setting=setting)
    pools, channel, begin = rig.pools, rig.channel, trio.Event()
    removers: list[headway.Runtime] = []
    seen: list[tuple[str, int]] = []

    async def initialiser(_: headway.Runtime) -> None:
        await begin.wait()
        channel.raises(Fault.SLOW)

    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        seen.append((request.id.name, rt.cache.revision(pools.member)))

    async def remover(rt: headway.Runtime, request: headway.Request) -> None:
        """Do nothing: the test deletes the member with this controller's client."""

    pools.replace(look, initialiser)
    pools.app.controller(manages=pools.member, name="remover", on_start=removers.append)(remover)
    async with rig.open() as engine:
        await rig.write_member("m", "never-was")
        await rig.run_until_blocked()
        raised = len(channel.done)
        with trio.fail_after(60):
            begin.set()
            while len(channel.done) == raised:  # noqa: ASYNC110  # nothing tells of it
                await trio.sleep(0.001)
            supervisor = engine.controllers["remover"]
            await supervisor.wait_idle(rig.store.position.revision, supervisor.run)
            channel.hold(pools.member)
            await removers[0].client.delete(pools.member.id("m"))
            deleted = rig.store.position.revision
            channel.answer_slow()
            while pools.member.name not in (primed := _primed(rig)):  # noqa: ASYNC110  # a report wakes nobody
                await trio.sleep(0.001)
            assert primed[pools.member.name] < deleted
        channel.release(pools.member)
        await rig.wait_idle()
        assert [name for name, revision in seen if revision >= deleted] == ["never-was"]


async def test_c7_key_in_hand_is_not_dequeued_again(autojump_clock: MockClock, setting: Setting) -> None:
    """A pool that changes during its reconcile waits until that reconcile ends, although another worker is free."""
    rig = Rig(autojump_clock, setting=setting, concurrency=2)
    rig.pools.pause = 1.0
    async with rig.open():
        for number in range(4):
            await rig.write_pool("a", str(number))
            await trio.sleep(0.3)
            assert rig.witness.running <= 1
        await rig.wait_idle()


async def test_c7_keys_are_reconciled_concurrently_but_each_only_once_at_a_time(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """Three keys change all the time. At most two are reconciled at once, and never the same key twice."""
    rig = Rig(autojump_clock, setting=setting, concurrency=2)
    most = 0

    @contextmanager
    def around(rt: headway.Runtime, request: headway.Request) -> Iterator[None]:
        nonlocal most
        with rig.witness.reconciling(rt, request):
            most = max(most, rig.witness.running)
            yield

    rig.pools.around, rig.pools.pause = around, 1.0
    async with rig.open():
        for number in range(12):
            await rig.write_pool("abc"[number % 3], str(number))
            await trio.sleep(0.3)
        await rig.wait_idle()

    assert most == 2


async def test_c7_run_begins_only_after_the_previous_one_has_ended(autojump_clock: MockClock, setting: Setting) -> None:
    """A reconcile that ends slowly delays the next run."""
    rig = Rig(autojump_clock, setting=setting)
    rig.pools.linger = 30.0
    async with rig.open():
        rig.pools.pause = 100.0
        await rig.write_pool("a")
        await trio.sleep(1)
        rig.pools.fail_source()
        await trio.sleep(29)
        assert len(rig.names) == 1
        rig.pools.pause = 0.0
        await rig.wait_idle()
        assert len(rig.names) >= 2
