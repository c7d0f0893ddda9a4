"""The handover of a shard: its end in one process (C7), and its checkpoint, which the next holder uses (C6)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.run import RECORD_INTERVAL
from headway.sharding import Shards, member_of
from tests.helpers.cluster import TTL, Cluster, Job
from tests.helpers.shards import SHARDS, has_all, reconciled_since, shard, shards_of


def moving_jobs() -> list[str]:
    """Return names of jobs whose shard moves to web-2 when that joins web-1."""
    names = [f"j{number}" for number in range(99)]
    return [name for name in names if member_of(shard(name), ["web-1", "web-2"]) == "web-2"]


async def test_c6_deletion_still_queued_when_its_shard_moves_is_reconciled_by_the_next_holder(
    autojump_clock: MockClock,
) -> None:
    """All workers of the first holder are busy with other shards. Its checkpoint may not cover what it had queued."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    busy = [f"x{number}" for number in range(99) if member_of(shard(f"x{number}"), ["web-1", "web-2"]) == "web-1"][:4]
    moved = moving_jobs()[0]

    async def around(member: str, _: headway.Runtime, request: headway.Request[Job]) -> None:
        if (member, request.id.name) in {("web-1", name) for name in busy}:
            await trio.sleep_forever()

    async with cluster.open("web-1") as nursery:
        first = cluster.members["web-1"]
        await has_all(cluster, first)
        await cluster.write(moved, "1")
        await cluster.until(lambda: cluster.copied(**{moved: "1"}), 5)
        await trio.sleep(RECORD_INTERVAL * 2)
        cluster.around = around
        for name in busy:
            await cluster.write(name, "1")
        await cluster.until(lambda: len(cluster.running) == 4, 5)
        await cluster.client.delete(cluster.job.id(moved))
        # So that nothing which is still there names the key.
        await cluster.client.delete(cluster.copy.id(moved))
        await trio.sleep(1)
        assert cluster.running == [("web-1", name) for name in busy]
        joined_at = trio.current_time()
        second = await cluster.run("web-2", nursery)
        await has_all(cluster, first, second)
        await cluster.until(lambda: moved in reconciled_since(cluster, joined_at), TTL)


async def test_c6_deletion_in_hand_when_its_shard_moves_is_reconciled_by_the_next_holder(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reconcile does not end in time and is canceled. No checkpoint that is recorded meanwhile may cover it."""
    monkeypatch.setattr("headway.sharding._ownership.RECORD_INTERVAL", 1.0)
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    moved = moving_jobs()[0]
    hangs: set[str] = set()

    async def around(member: str, _: headway.Runtime, request: headway.Request[Job]) -> None:
        if member in hangs and request.id.name == moved:
            await trio.sleep_forever()

    async with cluster.open("web-1") as nursery:
        first = cluster.members["web-1"]
        await has_all(cluster, first)
        await cluster.write(moved, "1")
        await cluster.until(lambda: cluster.copied(**{moved: "1"}), 5)
        await trio.sleep(RECORD_INTERVAL)
        cluster.around = around
        hangs.add("web-1")
        await cluster.client.delete(cluster.job.id(moved))
        # So that nothing which is still there names the key.
        await cluster.client.delete(cluster.copy.id(moved))
        await cluster.until(lambda: cluster.running == [("web-1", moved)], 5)
        joined_at = trio.current_time()
        second = await cluster.run("web-2", nursery)
        await has_all(cluster, first, second)
        await cluster.until(lambda: ("web-2", moved) in {each[1:3] for each in cluster.reconciled}, TTL)
        assert trio.current_time() - joined_at > TTL


async def test_finished_deletion_of_a_moved_shard_is_not_reconciled_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder records what it has done when it hands the shard over, not only from time to time."""
    monkeypatch.setattr("headway.sharding._ownership.RECORD_INTERVAL", 1000.0)
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    moved = moving_jobs()[0]
    async with cluster.open("web-1") as nursery:
        first = cluster.members["web-1"]
        await has_all(cluster, first)
        await cluster.write(moved, "1")
        await cluster.until(lambda: cluster.copied(**{moved: "1"}), 5)
        await cluster.client.delete(cluster.job.id(moved))
        await cluster.until(cluster.copied, 5)
        with trio.fail_after(5):
            await first.engine.wait_idle()
        second = await cluster.run("web-2", nursery)
        await has_all(cluster, first, second)
        assert shard(moved) in shards_of(second)
        with trio.fail_after(TTL):
            await second.engine.wait_idle()
    assert {member for _, member, name, _ in cluster.reconciled if name == moved} == {"web-1"}


async def test_c7_shard_that_must_leave_as_it_opens_starts_no_further_reconciles(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the read of history and the listing of members that moves the shard come in one scheduler turn."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=1))
    read, left = Shards.deletions, list[int]()

    async def leave_once(shards: Shards, *args: Any) -> Any:
        found = await read(shards, *args)
        # The caller opens the shard without a further checkpoint.
        if not left:
            left.append(0)
            shards._shards[0].leave()
        return found

    monkeypatch.setattr(Shards, "deletions", leave_once)
    cluster.pause = 1.0
    jobs = {f"j{number}": "1" for number in range(20)}
    for name, text in jobs.items():
        await cluster.write(name, text)
    async with cluster.open("web-1"):
        member = cluster.members["web-1"]
        await cluster.until(
            lambda: "staff/copier#0/1" in {each.name for each in member.events_of(events.LeaseEnded)}, 30
        )
        assert cluster.running == []
        # At most one for each worker, canceled when the shard closed.
        assert len(cluster.reconciled) <= 4
        assert await cluster.copies() == {}
        # The shard has come back to this process.
        await cluster.until(lambda: cluster.copied(**jobs), TTL * 2)
