"""A sharded controller: through joins, leaves and crashes, each key has one member at a time, and none is missed."""

from __future__ import annotations

import math
from collections import Counter

import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.client import client_error
from headway.errors import Fenced
from headway.sharding import member_of, shard_of
from headway.testing import Fault
from tests.helpers.cluster import TTL, Cluster

SHARDS = 8
JOBS = 80


def jobs(text: str, count: int = JOBS) -> dict[str, str]:
    return {f"j{number}": text for number in range(count)}


def shard(job: str) -> int:
    return shard_of(("default", "default", job), SHARDS)


def holders(cluster: Cluster) -> dict[int, str]:
    """Return the member that reports each shard. Fail if two members report the same shard."""
    found: dict[int, str] = {}
    for member in cluster.members.values():
        if not member.ended.is_set():
            for number in member.status().shards or ():
                assert number not in found, f"shard {number} is with {found[number]} and {member.name}"
                found[number] = member.name
    return found


async def shared(cluster: Cluster, seconds: float = TTL + 8) -> None:
    """Wait until every shard is held by the living member that it is assigned to."""
    living = [name for name, member in cluster.members.items() if not member.ended.is_set()]
    wanted = {number: member_of(number, living) for number in range(SHARDS)}
    await cluster.until(lambda: holders(cluster) == wanted, seconds)


async def write(cluster: Cluster, wanted: dict[str, str]) -> None:
    for name, text in wanted.items():
        await cluster.write(name, text)


def test_shard_of_a_key_never_changes() -> None:
    """Processes with different versions of the program agree on the shard of a key."""
    assert [shard_of(("default", "default", f"j{number}"), 16) for number in range(8)] == [8, 12, 1, 3, 4, 13, 12, 0]
    spread = Counter(shard_of(("p", "n", str(number)), 16) for number in range(16_000))
    assert min(spread.values()) > 850


async def test_keys_stay_spread_through_joins_leaves_and_crashes(autojump_clock: MockClock) -> None:
    """Every key has one member at a time, and no write of a previous holder follows a write of its successor."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    # Each reconcile takes a second, so that shards move while their keys are being reconciled.
    cluster.pause = 1.0
    async with cluster.open("web-1", "web-2", "web-3") as nursery:
        await shared(cluster)
        await write(cluster, jobs("1"))
        await cluster.until(lambda: cluster.copied(**jobs("1")), 60)
        by = {name: {member for _, member, job, _ in cluster.reconciled if job == name} for name in jobs("1")}
        assert by == {name: {holders(cluster)[shard(name)]} for name in by}

        await cluster.run("web-4", nursery)
        await write(cluster, jobs("2"))
        await shared(cluster)
        await cluster.until(lambda: cluster.copied(**jobs("2")), 60)

        await write(cluster, jobs("3", 40))
        await cluster.members["web-1"].stop()
        await shared(cluster)
        await cluster.until(lambda: cluster.copied(**jobs("2") | jobs("3", 40)), 60)

        await write(cluster, jobs("4"))
        cluster.members["web-2"].kill()
        # First the leases expire. Then the remaining keys are reconciled: a second each, in the worst case four at a
        # time in one process.
        await cluster.until(lambda: cluster.copied(**jobs("4")), TTL * 2 + len(jobs("4")) / 4)
        await shared(cluster)
        with trio.fail_after(60):
            await cluster.members["web-3"].engine.wait_idle()
    cluster.check_fences()
    fenced = [commit for commit in cluster.store.commits if commit.fence is not None]
    assert {commit.fence.member for commit in fenced if commit.fence is not None} == {
        f"{each}/{SHARDS}" for each in range(SHARDS)
    }
    for commit in fenced:
        assert commit.fence is not None
        assert commit.fence.member == f"{shard_of(commit.key, SHARDS)}/{SHARDS}", commit


async def test_deletions_during_a_move_are_not_missed(autojump_clock: MockClock) -> None:
    """The deletions come between the death of the holder and its replacement. History has them (C6)."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    async with cluster.open("web-1", "web-2"):
        await shared(cluster)
        await write(cluster, jobs("1", 60))
        await cluster.until(lambda: cluster.copied(**jobs("1", 60)), 60)
        await trio.sleep(10)
        gone = [name for name in jobs("1", 60) if holders(cluster)[shard(name)] == "web-2"]
        assert len(gone) > 5
        cluster.members["web-2"].kill()
        await trio.sleep(3)
        killed_at = trio.current_time()
        for name in gone:
            await cluster.client.delete(cluster.job.id(name))
            # Delete the copy as well, so that no remaining resource points to the job.
            await cluster.client.delete(cluster.copy.id(name))
        await cluster.until(
            lambda: {job for when, _, job, _ in cluster.reconciled if when > killed_at} >= set(gone), TTL * 2
        )
        assert cluster.members["web-1"].events_of(events.DeletionsUnknown) == []


async def test_late_write_for_a_moved_shard_is_refused(autojump_clock: MockClock) -> None:
    """The write has the fence of the shard that it was made for (C8)."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    async with cluster.open("web-1", "web-2"):
        await shared(cluster)
        job = next(name for name in jobs("1") if holders(cluster)[shard(name)] == "web-2")
        member = cluster.members["web-2"]
        member.script.writes(Fault.LATE)
        member.script.raises(*[Fault.FAILED] * 1000)
        await cluster.write(job, "1")
        await cluster.until(lambda: bool(member.script.unknown), 10)
        (fence,) = member.script.unknown
        assert fence is not None
        assert fence.member == f"{shard(job)}/{SHARDS}"
        member.kill()
        await cluster.until(lambda: cluster.copied(**{job: "1"}), TTL * 2)
        (late,) = await member.script.run_late()
        assert late.error is not None
        assert isinstance(client_error(late.error, write=True), Fenced)


async def test_lost_write_is_resolved_under_the_fence_of_its_shard(autojump_clock: MockClock) -> None:
    """All keys of the process wait until the write is resolved, and then continue (C5)."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    async with cluster.open("web-1"):
        await shared(cluster)
        member = cluster.members["web-1"]
        member.script.writes(Fault.LATE)
        await cluster.write("a", "1")
        await cluster.until(lambda: cluster.copied(a="1"), 10)
        assert len(member.events_of(events.WriteResolved)) == 1
        (late,) = await member.script.run_late()
        assert late.error is not None
        await write(cluster, jobs("1", 20))
        await cluster.until(lambda: cluster.copied(a="1", **jobs("1", 20)), 10)
        assert member.events_of(events.RunEnded) == []


async def test_reconcile_in_progress_ends_before_its_shard_moves(autojump_clock: MockClock) -> None:
    """The reconcile is canceled after a ttl. The new holder waits for its end (C7)."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    cancelled: list[float] = []

    async def around(member: str, _: headway.Runtime, request: headway.Request) -> None:
        if member == "web-1" and began:
            try:
                await trio.sleep(2 if request.id.name == short else math.inf)
            except trio.Cancelled:
                cancelled.append(trio.current_time())
                # The reconcile takes long, and its successor waits for it.
                with trio.CancelScope(shield=True):
                    await trio.sleep(1.5)
                raise

    began: list[float] = []
    cluster.around = around
    async with cluster.open("web-1") as nursery:
        await shared(cluster)
        moving = [name for name in jobs("1") if member_of(shard(name), ["web-1", "web-2"]) == "web-2"]
        short = moving[0]
        long = next(name for name in moving if shard(name) != shard(short))
        began.append(trio.current_time())
        await cluster.write(short, "1")
        await cluster.write(long, "1")
        await cluster.until(lambda: len(cluster.running) == 2, 5)
        joined_at = trio.current_time()
        await cluster.run("web-2", nursery)
        await cluster.until(lambda: cluster.copied(**{short: "1"}), TTL)
        assert [copy.data.by for copy in await cluster.client.list(cluster.copy)] == ["web-1"]
        await cluster.until(lambda: cluster.copied(**{short: "1", long: "1"}), TTL * 2)
        assert TTL * 0.9 <= cancelled[0] - joined_at <= TTL * 1.5
        assert cluster.members["web-1"].events_of(events.RunEnded) == []


async def test_partitioned_member_ends_its_reconciles_in_time(autojump_clock: MockClock) -> None:
    """The reconciles end before another member can acquire the shards. The member rejoins when it is reachable."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    async with cluster.open("web-1", "web-2"):
        await shared(cluster)
        cluster.pause = 1000.0
        await write(cluster, jobs("1", 20))
        await cluster.until(lambda: {member for member, _ in cluster.running} == {"web-1", "web-2"}, 10)
        cluster.members["web-1"].wire.cut()
        cut_at = trio.current_time()
        await cluster.until(lambda: {member for member, _ in cluster.running} == {"web-2"}, TTL)
        assert trio.current_time() - cut_at <= TTL * 0.8 + 0.1
        cluster.pause = 0.0
        await cluster.members["web-2"].stop()
        cluster.members["web-1"].wire.mend()
        await cluster.until(lambda: cluster.copied(**jobs("1", 20)), TTL * 2)
        await shared(cluster)
