"""The start and the end of a run, to the revision: the work it takes over, and the work it leaves to the next run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.cache import Applied
from headway.client import LeaseClient
from headway.mapper import MapQueue
from headway.resource import TypeName
from headway.run import RECORD_INTERVAL
from headway.run._mapping import RunMapping
from headway.run._mapping_retries import STEP, TURN
from headway.run._owed import add_start
from headway.testing import Fault
from tests.helpers.pools import Member
from tests.helpers.resources import ACCOUNT, TEAM, key, stored
from tests.helpers.rig import Rig


def bare_app(rig: Rig) -> headway.App:
    """Return an app with the types of a rig and without a controller."""
    bare = headway.App("bare")
    for type in rig.pools.types:
        bare.registry.register(type)
    return bare


async def test_c3_run_with_an_initialiser_waits_for_the_raise_after_it(autojump_clock: MockClock) -> None:
    """A cache that is complete up to the first raise lacks what the initialiser has written."""
    rig = Rig(autojump_clock)
    pools, written, seen = rig.pools, list[headway.Resource[Member]](), list[Any]()

    async def initialiser(rt: headway.Runtime) -> None:
        # Every stream begins at the first raise, and what follows is delayed.
        for type in pools.types:
            rig.channel.old_snapshot(type, rig.store.position.revision)
            rig.channel.hold(type)
        written.append(await rt.client.apply(pools.member.new("m", Member(pool="a"))))

    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        seen.append(rt.cache.get(pools.member, "m"))

    pools.replace(look, initialiser=initialiser)
    async with headway.open_engine(rig.store, bare_app(rig)) as engine:
        await engine.client.apply(pools.pool.new("a"))
    async with rig.open() as engine:
        await trio.sleep(10)
        assert not rig.witness.events_of(events.RunStarted)
        for type in pools.types:
            rig.channel.release(type)
        await rig.wait_idle()
        (started,) = rig.witness.events_of(events.RunStarted)
        assert started.starting_revision > int(written[0].version)
        assert engine.status()[0].starting_revision == started.starting_revision
    assert seen
    assert None not in seen


async def test_c6_deletion_at_exactly_the_first_revision_of_the_cache_is_mapped(autojump_clock: MockClock) -> None:
    """It is the last change before the snapshot, so no later change of the member names its pool."""
    rig = Rig(autojump_clock)
    member = rig.pools.member
    async with headway.open_engine(rig.store, bare_app(rig)) as engine:
        await engine.client.apply(member.new("m", Member(pool="never-was")))
    rig.channel.stall(member)
    async with rig.open() as engine:
        await rig.run_until_blocked()
        # The fence is raised, and a snapshot with the member is under way.
        await engine.client.delete(member.id("m"))
        deleted_at = rig.store.position.revision
        rig.channel.drop(member)
        rig.channel.release(member)
        await rig.wait_idle()
        (primed,) = [each for each in rig.witness.events_of(events.Primed) if each.type == member.name]
        assert (primed.count, primed.revision) == (0, deleted_at)
        assert rig.names == ["never-was"]


async def test_c6_change_whose_mapping_failed_is_mapped_by_the_next_run(autojump_clock: MockClock) -> None:
    """Only the change names the pool that the member has left."""
    rig = Rig(autojump_clock)

    def fails(*_: object) -> None:
        raise LookupError("no answer")

    works, rig.pools.on_mapping = rig.pools.on_mapping, rig.pools.on_mapping
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("m", "not-there")
        await rig.wait_idle()
        rig.pools.on_mapping = fails
        await rig.write_member("m", "a")
        moved_at = rig.store.position.revision
        await trio.sleep(1)
        assert rig.witness.events_of(events.MappingFailed)
        rig.pools.fail_source()
        await rig.run_until_blocked()
        assert len(rig.witness.events_of(events.RunEnded)) == 1
        rig.pools.on_mapping = works
        await rig.wait_idle()
        last = [seen for seen in rig.witness.reconciles if seen.name == "not-there"][-1]
        assert last.frontiers[rig.pools.member.name] >= moved_at


async def test_run_keeps_its_lease_while_a_slow_mapper_maps_a_long_backlog(autojump_clock: MockClock) -> None:
    """Otherwise each run loses its lease in the backlog, and the next one begins with the same backlog."""
    rig, calls = Rig(autojump_clock), 0
    member = rig.pools.member
    async with headway.open_engine(rig.store, bare_app(rig)) as engine:
        await engine.client.apply(rig.pools.pool.new("a"))
        for n in range(49):
            await engine.client.create(member.new(f"m{n}", Member(pool="a")))

    def takes_long(*_: object) -> None:
        nonlocal calls
        calls += 1
        autojump_clock.jump(10 * TURN)

    rig.pools.on_mapping = takes_long
    async with rig.open():
        await rig.wait_idle()
    assert calls == 50  # each member, and the summary of the pool
    assert set(rig.names) == {"a"}
    assert not [each for each in rig.witness.events_of(events.RunEnded) if each.error is not None]


async def test_run_records_its_checkpoint_when_it_ends(autojump_clock: MockClock) -> None:
    """The next run does not read the deletion from history, because its pool has been reconciled."""
    first = Rig(autojump_clock)
    async with first.open() as engine:
        await engine.client.apply(first.pools.member.new("m", Member(pool="never-was")))
        await first.wait_idle()
        await trio.sleep(RECORD_INTERVAL * 1.5)
        await engine.client.delete(first.pools.member.id("m"))
        await first.wait_idle()
    assert first.names == ["never-was"] * 2
    second = Rig(autojump_clock, store=first.store)
    async with second.open():
        await second.wait_idle()
    assert second.names == []


@pytest.mark.parametrize("stuck", ["a", "never-was"])
async def test_c6_work_that_the_next_run_begins_with_holds_back_no_checkpoint(
    autojump_clock: MockClock, stuck: str
) -> None:
    """A key without a resource is known from the history of deletions alone."""
    first = Rig(autojump_clock)
    first.pools.pauses = {stuck: 1e6}
    async with first.open() as engine:
        await first.wait_idle()
        await first.write_pool("a")
        await engine.client.apply(first.pools.member.new("m", Member(pool="never-was")))
        await engine.client.delete(first.pools.member.id("m"))
        await trio.sleep(RECORD_INTERVAL * 1.5)
    second = Rig(autojump_clock, store=first.store)
    async with second.open():
        await second.wait_idle()
    assert set(second.names) == {"a", stuck}


async def test_checkpoint_that_the_run_itself_has_overtaken_does_not_end_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run raises its fence to resolve a write, while the record of a checkpoint is on its way."""
    rig = Rig(autojump_clock, deadline=RECORD_INTERVAL + 1)
    record, resolved = LeaseClient.record_checkpoint, trio.Event()

    async def late(self: LeaseClient, *arguments: Any) -> None:
        await resolved.wait()
        await record(self, *arguments)

    monkeypatch.setattr(LeaseClient, "record_checkpoint", late)
    async with rig.open():
        await rig.wait_idle()
        rig.channel.writes(Fault.SILENT)
        await rig.write_pool("a")
        await rig.write_member("m", "a")
        await rig.wait_idle()
        assert rig.witness.events_of(events.WriteResolved)
        resolved.set()
        await trio.sleep(RECORD_INTERVAL)
        assert not rig.witness.events_of(events.RunEnded)


async def test_run_that_leaves_many_changes_lets_other_tasks_run() -> None:
    """There is a checkpoint after each 500, at which the end of the engine ends the handover as well."""
    mapping = RunMapping.__new__(RunMapping)
    for many in (STEP - 1, STEP):
        mapping.changes = MapQueue()
        mapping.changes.push(TEAM.name, [Applied(key(f"t{n}"), None, stored(f"t{n}", 1), 1) for n in range(many)])
        with trio.CancelScope() as scope:
            scope.cancel()
            assert len(await mapping.owed()) == many
        assert scope.cancelled_caught == (many == STEP)


def test_c4_deletions_that_a_start_has_found_wait_until_every_type_has_reached_them() -> None:
    """A shard is taken over when each type is at another revision, and its deletions are read up to that of each."""
    feeds: dict[TypeName, Any] = {
        type.name: SimpleNamespace(revision=frontier, store=SimpleNamespace(newest=frontier, entries={}))
        for type, frontier in ((TEAM, 7), (ACCOUNT, 5))
    }
    definition: Any = SimpleNamespace(watches=())
    mapping: Any = RunMapping.__new__(RunMapping)
    mapping.changes, mapping._subscriptions = MapQueue(), feeds
    found = [Applied(key(f"t{revision}"), stored(f"t{revision}", 1), None, revision) for revision in (7, 5)]
    add_start(mapping, definition, feeds, {TEAM.name: found})
    order = [mapping.changes.pop(complete=at) for at in (5, 5, 6, 7)]
    assert [item and item.applied.key for item in order] == [key("t5"), None, None, key("t7")]
