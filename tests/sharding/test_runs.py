"""Runs of a sharded controller: how they start and end, the keys that they hold, and the takeover of shards."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.client import client_error
from headway.errors import Fenced, LeaseLost
from headway.run import RECORD_INTERVAL
from headway.sharding import member_of
from headway.sharding._ownership import _Shard
from headway.testing import Fault
from tests.helpers.cluster import TTL, Cluster, Job
from tests.helpers.shards import SHARDS, Sources, has_all, lose, reconciled_since, shard, shards_of


async def test_initialiser_callbacks_and_sources_run_in_every_process(autojump_clock: MockClock) -> None:
    """The initialiser ends before the first reconcile. Sources reach the shards of their own process."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    sources = Sources(cluster)
    told: list[tuple[str, str]] = []
    before: dict[str, int] = {}

    def done(member: str) -> int:
        return sum(by == member for _, by, _, _ in cluster.reconciled)

    def options(member: str) -> dict[str, Any]:
        async def initialiser(rt: headway.Runtime) -> None:
            before[member] = done(member)
            await rt.client.apply(cluster.job.new(f"from-{member}", Job(text="1")))

        async def on_start(rt: headway.Runtime) -> None:
            # A process begins by seeing the write of its initialiser, and has reconciled nothing before.
            assert rt.cache.get(cluster.job, f"from-{member}") is not None
            assert done(member) == before[member]
            told.append((member, "started"))

        async def on_stop(rt: headway.Runtime, error: Exception | None) -> None:
            assert rt.cache.get(cluster.job, f"from-{member}") is not None
            assert member not in {by for by, _ in cluster.running}
            told.append((member, "stopped" if error is None else type(error).__name__))

        return {**sources.of(member), "initialiser": initialiser, "on_start": on_start, "on_stop": on_stop}

    cluster.options = options
    async with cluster.open("web-1", "web-2"):
        first, second = cluster.members["web-1"], cluster.members["web-2"]
        await has_all(cluster, first, second)
        written = {"from-web-1": "1", "from-web-2": "1"}
        await cluster.until(lambda: cluster.copied(**written), 10)
        by = {str(commit.key[2]): commit.fence for commit in cluster.store.commits if commit.kind == cluster.job.kind}
        for name in ("web-1", "web-2"):
            fence = by[f"from-{name}"]
            assert fence is not None
            assert fence.member == f"members/{name}"

        ours = next(f"x{number}" for number in range(99) if shard(f"x{number}") in shards_of(first))
        theirs = next(f"x{number}" for number in range(99) if shard(f"x{number}") in shards_of(second))
        for name in (ours, theirs):
            sources.enqueue["web-1"](cluster.job.id(name))
        await trio.sleep(1)
        assert {(by, name) for _, by, name, _ in cluster.reconciled if name in (ours, theirs)} == {("web-1", ours)}

        sources.fail("web-1")
        await cluster.until(lambda: told[2:] == [("web-1", "SourceFailed"), ("web-1", "started")], 10)
        await has_all(cluster, first, second)
        await second.stop()
        await has_all(cluster, first)
    # The two begin side by side.
    assert sorted(told[:2]) == [("web-1", "started"), ("web-2", "started")]
    assert told[2:] == [
        ("web-1", "SourceFailed"),
        ("web-1", "started"),
        ("web-2", "stopped"),
        ("web-1", "stopped"),
    ]
    cluster.check_fences()


async def test_lost_write_of_a_source_holds_the_keys_of_all_shards(autojump_clock: MockClock) -> None:
    """The keys are held until the process has raised its own fence.

    The lost write is then rejected if it arrives (C5).
    """
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    sources = Sources(cluster)
    async with cluster.open("web-1"):
        member = cluster.members["web-1"]
        await has_all(cluster, member)
        member.script.writes(Fault.LATE)
        member.script.raises(*[Fault.FAILED] * 5)
        try:
            await sources.runtime["web-1"].client.apply(cluster.job.new("a", Job(text="1")))
        except headway.errors.OutcomeUnknown:
            began = trio.current_time()
        await cluster.write("b", "1")
        while not member.events_of(events.WriteResolved):
            assert reconciled_since(cluster, began) == set()
            await trio.sleep(0.01)
        await cluster.until(lambda: cluster.copied(b="1"), 5)
        (late,) = await member.script.run_late()
        assert late.error is not None
        assert member.events_of(events.RunEnded) == []


async def test_process_named_like_a_shard_has_a_fence_of_its_own(autojump_clock: MockClock) -> None:
    """The fence of process "3" differs from the fence of shard 3."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    jobs = {f"j{number}": "1" for number in range(20)}
    async with cluster.open("0") as nursery:
        # Process "0" holds the lease of shard 3 at this time.
        await has_all(cluster, cluster.members["0"])
        await cluster.run("3", nursery)
        await has_all(cluster, *cluster.members.values())
        for name, text in jobs.items():
            await cluster.write(name, text)
        await cluster.until(lambda: cluster.copied(**jobs), 10)
        for member in cluster.members.values():
            assert member.events_of(events.RunEnded) == []
            assert member.events_of(events.CallDelayed) == []


async def test_c5_lease_lost_during_a_write_does_not_hold_the_keys_forever(autojump_clock: MockClock) -> None:
    """The next term of the shard resolves the write. Keys of other shards continue."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    jobs = {f"j{number}": "1" for number in range(20)}
    async with cluster.open("web-1"):
        member = cluster.members["web-1"]
        await has_all(cluster, member)
        member.script.writes(Fault.LATE_SILENT)
        await cluster.write("a", "1")
        await cluster.until(lambda: bool(cluster.running), 5)
        await trio.sleep(0.1)
        await lose(cluster, f"staff/copier#{shard('a')}/{SHARDS}")
        await cluster.until(lambda: bool(member.events_of(events.WriteUnknown)), TTL)
        for name, text in jobs.items():
            await cluster.write(name, text)
        await cluster.until(lambda: cluster.copied(a="1", **jobs), TTL)
        (late,) = await member.script.run_late()
        assert late.error is not None
        assert isinstance(client_error(late.error, write=True), Fenced)
        assert member.events_of(events.RunEnded) == []


async def test_c5_shard_is_released_only_when_its_lost_write_is_resolved(autojump_clock: MockClock) -> None:
    """A reconcile is canceled during a write, because its shard moves. All keys are held until the fence is raised."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    async with cluster.open("web-1") as nursery:
        first = cluster.members["web-1"]
        await has_all(cluster, first)
        names = [f"j{number}" for number in range(99)]
        moves = next(name for name in names if member_of(shard(name), ["web-1", "web-2"]) == "web-2")
        stays = next(name for name in names if member_of(shard(name), ["web-1", "web-2"]) == "web-1")
        first.script.writes(Fault.LATE_SILENT)
        await cluster.write(moves, "1")
        await cluster.until(lambda: bool(cluster.running), 5)
        await cluster.run("web-2", nursery)
        await cluster.until(lambda: bool(shards_of(cluster.members["web-2"])), TTL)
        first.script.raises(*[Fault.FAILED] * 3)
        await cluster.until(lambda: bool(first.events_of(events.WriteUnknown)), TTL * 2)
        unknown_at = trio.current_time()
        await cluster.write(stays, "1")
        while not first.events_of(events.WriteResolved):
            assert reconciled_since(cluster, unknown_at) == set()
            await trio.sleep(0.01)
        await cluster.until(lambda: cluster.copied(**{moves: "1", stays: "1"}), TTL)
        lease = f"staff/copier#{shard(moves)}/{SHARDS}"
        given_up = [isinstance(each, events.LeaseEnded) and each.name == lease for each in first.events].index(True)
        assert any(isinstance(each, events.WriteResolved) for each in first.events[:given_up])
        assert {copy.name: copy.data.by for copy in await cluster.client.list(cluster.copy)}[moves] == "web-2"


async def test_c3_shard_begins_when_every_type_has_reached_its_starting_revision(autojump_clock: MockClock) -> None:
    """A member reconciles no key of the shard while its cache is behind the writes of the previous holder."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    async with cluster.open("web-1", "web-2"):
        first, second = cluster.members["web-1"], cluster.members["web-2"]
        await has_all(cluster, first, second)
        name = next(f"j{number}" for number in range(99) if shard(f"j{number}") in shards_of(second))
        first.script.hold(cluster.copy)
        await cluster.write(name, "1")
        await cluster.until(lambda: cluster.copied(**{name: "1"}), 5)
        # The previous holder has recorded its checkpoint, so the new holder doesn't wait for a read of history.
        await trio.sleep(RECORD_INTERVAL * 2)
        stopped_at = trio.current_time()
        await second.stop()
        await trio.sleep(TTL)
        assert reconciled_since(cluster, stopped_at) == set()
        assert shard(name) not in shards_of(first)
        assert f"staff/copier#{shard(name)}/{SHARDS}" in {each.name for each in await cluster.leases.list()}

        first.script.release(cluster.copy)
        await has_all(cluster, first)
        await cluster.until(lambda: reconciled_since(cluster, stopped_at) == {name}, 5)
        # The new holder has seen the copy, and so made no other copy.
        assert [copy.data.by for copy in await cluster.client.list(cluster.copy)] == ["web-2"]


async def test_shards_taken_over_together_share_reads_of_history(autojump_clock: MockClock) -> None:
    """While the fences of the shards are raised, one type lags. All shards continue when it has caught up."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))

    async def on_start(_: headway.Runtime) -> None:
        cluster.members["web-1"].script.hold(cluster.copy)

    cluster.options = lambda _: {"on_start": on_start}
    async with cluster.open("web-1"):
        member = cluster.members["web-1"]
        await cluster.until(lambda: len(member.events_of(events.LeaseTaken)) == SHARDS + 1, TTL)
        await trio.sleep(1)
        assert shards_of(member) == ()
        member.script.release(cluster.copy)
        await has_all(cluster, member)
        reads = Counter(
            request.type.kind
            for _, method, request in member.wire.asked
            if method == "WatchList" and request.resume_after is not None
        )
        # A read by one shard serves every shard with a later checkpoint. So the number of reads varies, but stays below
        # one for each shard.
        assert set(reads) == {"Job", "Copy"}
        assert max(reads.values()) < SHARDS - 1


async def test_errors_of_several_tasks_of_a_shard_end_only_the_shard(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The raise of the fence, the resolution of writes and the record of a checkpoint may be rejected together."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    hold, failed = _Shard._hold, list[int]()

    async def fails_first(shard: _Shard, lease: Any) -> None:
        if shard.number not in failed:
            failed.append(shard.number)
            raise ExceptionGroup("two tasks", [Fenced("one"), ExceptionGroup("", [LeaseLost("the other")])])
        await hold(shard, lease)

    monkeypatch.setattr(_Shard, "_hold", fails_first)
    async with cluster.open("web-1"):
        member = cluster.members["web-1"]
        await has_all(cluster, member)
        assert sorted(failed) == list(range(SHARDS))
        assert member.events_of(events.RunEnded) == []
