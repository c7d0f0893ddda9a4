"""C1 to C7 of the contract when `rt.watch` adds a watch, each tested by the fewest steps that could break it."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.api import Reason
from headway.testing import Fault
from tests.helpers.noted_pools import Note, NotedPools
from tests.helpers.pools import Member
from tests.helpers.rig import Rig
from tests.helpers.service_errors import reason_of
from tests.helpers.settings import Setting


class NotedRig(Rig):
    """A rig whose controller can watch notes."""

    pools: NotedPools

    def __init__(self, clock: MockClock, setting: Setting, store: Any = None) -> None:
        super().__init__(clock, setting=setting, store=store, pools=NotedPools())

    async def write_note(self, name: str, pool: str) -> int:
        """Write a note, and return its revision."""
        written = await self.engine.client.apply(self.pools.note.new(name, Note(pool=pool)))
        return int(written.version)

    async def watch_notes(self, name: str) -> None:
        """Let a reconcile of this pool add the watch, and let the next run proceed as far as it can."""
        self.pools.watching = True
        self.pools.enqueue(name)
        await trio.sleep(2)
        assert len(self.witness.events_of(events.WatchAdded)) == 1

    def sees_note(self, name: str, revision: int) -> bool:
        """Return True if a reconcile of the pool has seen notes at a revision."""
        seen = [each.frontiers.get(self.pools.note.name, 0) for each in self.witness.reconciles if each.name == name]
        return max(seen, default=0) >= revision


async def test_c1_nothing_runs_before_old_and_new_types_are_primed(autojump_clock: MockClock, setting: Setting) -> None:
    """Until the new type is primed, the old run goes on. The next run waits for each type's starting revision."""
    rig = NotedRig(autojump_clock, setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_note("n", "a")
        await rig.wait_idle()
        rig.channel.stall(rig.pools.note)
        rig.pools.watching = True
        rig.pools.enqueue("a")
        await trio.sleep(10)
        rig.pools.watching = False
        await rig.write_pool("b")
        await trio.sleep(1)
        assert rig.names[-1] == "b"
        assert not rig.witness.events_of(events.WatchAdded)

        # The snapshot arrives, and everything after it is held back.
        rig.channel.hold(rig.pools.member)
        rig.channel.kind_script(rig.pools.note.kind).stalled = False
        rig.channel.hold(rig.pools.note)
        rig.channel.drop(rig.pools.note)
        await trio.sleep(5)
        assert len(rig.witness.events_of(events.WatchAdded)) == 1
        assert len(rig.witness.events_of(events.RunStarted)) == 1
        before, mapped = len(rig.names), list[str]()
        checks, rig.pools.on_mapping = rig.pools.on_mapping, lambda resource, _: mapped.append(resource.name)
        rig.channel.release(rig.pools.note)
        await trio.sleep(5)
        assert (rig.names[before:], mapped) == ([], [])
        rig.pools.on_mapping = checks
        rig.channel.release(rig.pools.member)
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["n"]}


async def test_c2_older_snapshot_of_the_new_type_is_ignored(autojump_clock: MockClock, setting: Setting) -> None:
    """A lagging replica sends a snapshot from before the watch, with a deleted note and an older one."""
    rig = NotedRig(autojump_clock, setting)
    async with rig.open() as engine:
        await rig.write_pool("a")
        await rig.write_note("stays", "b")
        past = await rig.write_note("goes", "a")
        await engine.client.delete(rig.pools.note.id("goes"))
        await rig.write_note("stays", "a")
        await rig.wait_idle()
        await rig.watch_notes("a")
        await rig.wait_idle()
        rig.channel.refuse_resume(rig.pools.note)
        rig.channel.old_snapshot(rig.pools.note, past)
        rig.channel.hold(rig.pools.note)
        rig.channel.drop(rig.pools.note)
        await trio.sleep(1)
        rig.pools.enqueue("a")
        await trio.sleep(1)
        rig.witness.check()
        assert await rig.summaries() == {"a": ["stays"]}
        rig.channel.release(rig.pools.note)
        await rig.wait_idle()


async def test_c3_late_write_of_the_run_that_ended_is_refused(autojump_clock: MockClock, setting: Setting) -> None:
    rig = NotedRig(autojump_clock, setting)
    async with rig.open():
        for pool in ("a", "b"):
            await rig.write_pool(pool)
        await rig.wait_idle()
        rig.channel.writes(Fault.LATE)
        await rig.write_member("m", "a")
        await trio.sleep(0.1)
        # A reconcile of "a" waits for the answer to its write.
        await rig.watch_notes("b")
        await rig.wait_idle()
        (late,) = await rig.channel.run_late()
        assert late.error is not None
        assert reason_of(late.error) is Reason.FENCED
        assert await rig.summaries() == {"a": ["m"]}


async def test_c4_mapper_of_the_new_type_sees_every_type_at_its_change(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """The witness checks this in each call. The change waits for a type that lags."""
    rig = NotedRig(autojump_clock, setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        await rig.watch_notes("a")
        await rig.wait_idle()
        rig.channel.hold(rig.pools.member)
        await rig.write_member("m", "a")
        changed = await rig.write_note("n", "a")
        await trio.sleep(5)
        assert not rig.sees_note("a", changed)
        rig.channel.release(rig.pools.member)
        await rig.wait_idle()
        assert rig.sees_note("a", changed)
        assert await rig.summaries() == {"a": ["m", "n"]}


async def test_c5_write_before_the_watch_is_in_the_cache_of_the_next_run(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """The streams lag: only the answer to the write has brought it to the cache."""
    rig = NotedRig(autojump_clock, setting)
    pools, found = rig.pools, list[tuple[int, str | None]]()

    async def write_and_watch(rt: headway.Runtime, request: headway.Request) -> None:
        if rt.cache.get(pools.member, "mine") is None:
            await rt.client.apply(pools.member.new("mine", Member(pool=request.id.name)))
            for type in (pools.pool, pools.member, pools.summary):
                rig.channel.hold(type)
        await rt.watch(pools.spec())
        mine = rt.cache.get(pools.member, "mine")
        found.append((rt.term, None if mine is None else mine.data.pool))

    pools.replace(write_and_watch)
    async with rig.open():
        await rig.write_pool("a")
        await trio.sleep(5)
        assert len(rig.witness.events_of(events.WatchAdded)) == 1
        assert found == []
        for type in (pools.pool, pools.member, pools.summary):
            rig.channel.release(type)
        await rig.wait_idle()
    assert {each for _, each in found} == {"a"}


async def test_c6_next_run_takes_over_what_was_pending(autojump_clock: MockClock, setting: Setting) -> None:
    """These are a change that is not mapped yet, and keys in the queue.

    No cached resource of a later run would lead to them: the pools don't exist, and no member refers to them.
    """
    rig = NotedRig(autojump_clock, setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("m", "not-there")
        await rig.wait_idle()
        rig.channel.hold(rig.pools.summary)
        await rig.write_member("m", "a")
        moved_at = rig.store.position.revision
        rig.pools.pause = 0.5
        for name in ("x", "y", "z"):
            rig.pools.enqueue(name)
        await rig.watch_notes("a")
        rig.pools.pause = 0.0
        rig.channel.release(rig.pools.summary)
        await rig.wait_idle()
        (ended,) = rig.witness.events_of(events.RunEnded)
        assert (ended.error, ended.delay) == (None, 0.0)
        later = {seen.name for seen in rig.witness.reconciles if seen.term > rig.pools.asked[0]}
        assert later >= {"x", "y", "z"}
        last = [seen for seen in rig.witness.reconciles if seen.name == "not-there"][-1]
        assert last.frontiers[rig.pools.member.name] >= moved_at
        rig.witness.last_changes_were_seen()


async def test_c6_changes_of_the_new_type_during_the_change_of_runs_are_mapped(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """A note is deleted after its snapshot and before the next run begins. Only its old state names the pool."""
    rig = NotedRig(autojump_clock, setting)
    rig.pools.linger = 5.0
    async with rig.open() as engine:
        await rig.write_pool("a")
        await rig.write_note("gone", "not-there")
        await rig.wait_idle()
        rig.pools.watching = True
        rig.pools.enqueue("a")
        await trio.sleep(1)
        assert len(rig.witness.events_of(events.WatchAdded)) == 1
        assert not rig.witness.events_of(events.RunEnded)
        await engine.client.delete(rig.pools.note.id("gone"))
        deleted_at = rig.store.position.revision
        changed = await rig.write_note("n", "a")
        rig.pools.linger = 0.0
        await rig.wait_idle()
        assert rig.sees_note("not-there", deleted_at)
        assert rig.sees_note("a", changed)
        assert await rig.summaries() == {"a": ["n"]}


async def test_c6_deletion_of_the_added_type_while_no_engine_ran_is_found_in_history(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """The second engine begins without the watch. The first reconcile of a stored pool adds it."""
    store = setting.store()
    first = NotedRig(autojump_clock, setting, store)
    first.pools.watching = True
    async with first.open():
        await first.write_pool("a")
        await first.write_note("gone", "not-there")
        await first.wait_idle()
        await trio.sleep(6)
        assert first.pools.watches_notes
    bare = headway.App("bare")
    for type in first.pools.types:
        bare.registry.register(type)
    async with headway.open_engine(store, bare) as engine:
        await engine.client.delete(first.pools.note.id("gone"))
        deleted_at = store.position.revision
    second = NotedRig(autojump_clock, setting, store)
    second.pools.watching = True
    async with second.open():
        await second.wait_idle()
        assert second.sees_note("not-there", deleted_at)


async def test_c6_next_run_takes_over_retries_and_requested_times(autojump_clock: MockClock, setting: Setting) -> None:
    """No resources of these names exist, so only the previous run knows the keys."""
    rig = NotedRig(autojump_clock, setting)
    pools, seen = rig.pools, list[tuple[int, str]]()

    async def ask_again(rt: headway.Runtime, request: headway.Request) -> headway.RequeueAfter | None:
        seen.append((rt.term, request.id.name))
        if request.id.name == "nobody":
            return headway.requeue_after(3600)
        if request.id.name == "fails":
            raise LookupError
        await rt.watch(pools.spec())
        return None

    pools.replace(ask_again)
    async with rig.open():
        await rig.wait_idle()
        pools.enqueue("nobody")
        pools.enqueue("fails")
        await trio.sleep(20)
        failed = len(seen)
        await rig.write_pool("a")
        await trio.sleep(1)
        assert len(rig.witness.events_of(events.WatchAdded)) == 1
        first, last = seen[0][0], seen[-1][0]
        assert [term for term, name in seen if name == "nobody"] == [first, last]
        # Its back-off had grown to 5 s.
        assert (last, "fails") in seen[failed:]


async def test_c7_run_begins_only_after_every_reconcile_of_the_previous_one_has_ended(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """All reconciles are canceled at once, and the one that takes long to end delays the next run."""
    rig = NotedRig(autojump_clock, setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_pool("b")
        await rig.wait_idle()
        rig.pools.linger, rig.pools.pause = 30.0, 100.0
        rig.pools.enqueue("b")
        await trio.sleep(1)
        rig.pools.pause, rig.pools.watching = 0.0, True
        rig.pools.enqueue("a")
        await trio.sleep(29)
        assert len(rig.witness.events_of(events.WatchAdded)) == 1
        assert len(rig.witness.events_of(events.RunStarted)) == 1
        rig.pools.linger = 0.0
        await rig.wait_idle()
        assert len(rig.witness.events_of(events.RunStarted)) == 2
