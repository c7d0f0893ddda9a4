"""The checkpoint that a holder records when its shard moves, and how the next holder uses it (C6)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.run import RECORD_INTERVAL, member_of
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


async def test_finished_deletion_of_a_moved_shard_is_not_reconciled_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder records what it has done when it hands the shard over, not only from time to time."""
    monkeypatch.setattr("headway.run._sharding.RECORD_INTERVAL", 1000.0)
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
