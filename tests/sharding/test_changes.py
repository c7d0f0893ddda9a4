"""A controller whose placement, or number of shards, changes while none of its processes runs (C3, C6)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from tests.helpers.cluster import TTL, Cluster
from tests.helpers.shards import reconciled_since

PLACEMENTS: dict[str, Any] = {
    "singleton": "singleton",
    "every process": "every_process",
    "3 shards": headway.sharded(shards=3),
    "8 shards": headway.sharded(shards=8),
}
CHANGES = [(before, after) for before in PLACEMENTS for after in PLACEMENTS if before != after]
JOBS = [f"j{number}" for number in range(20)]


async def delete(cluster: Cluster, name: str) -> None:
    """Delete a job and its copy, so that nothing which is still there names the key."""
    await cluster.client.delete(cluster.job.id(name))
    await cluster.client.delete(cluster.copy.id(name))


async def all_done(cluster: Cluster, *names: str) -> None:
    """Wait until these members have done everything."""
    with trio.fail_after(3 * TTL):
        for name in names:
            await cluster.members[name].engine.wait_idle()


@pytest.mark.parametrize(("before", "after"), CHANGES, ids=[" to ".join(each) for each in CHANGES])
async def test_c6_deletions_before_a_change_of_the_placement_are_reconciled(
    before: str, after: str, autojump_clock: MockClock
) -> None:
    """Some were pending when the processes stopped, and others came while none ran. Another process runs afterwards."""
    cluster = Cluster(autojump_clock, PLACEMENTS[before])
    pending, late = JOBS[:4], JOBS[4:8]

    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    async with cluster.open("web-1", "web-2"):
        for name in JOBS:
            await cluster.write(name, "1")
        await cluster.until(lambda: cluster.copied(**dict.fromkeys(JOBS, "1")), 3 * TTL)
        await all_done(cluster, "web-1", "web-2")
        await trio.sleep(TTL)
        cluster.around = hang
        for name in pending:
            await delete(cluster, name)
        await cluster.until(lambda: {name for _, name in cluster.running} == set(pending), TTL)
    cluster.around = None
    for name in late:
        await delete(cluster, name)
    cluster.placement, changed_at = PLACEMENTS[after], trio.current_time()
    async with cluster.open("web-2", "web-3"):
        await cluster.until(lambda: {*pending, *late} <= set(reconciled_since(cluster, changed_at)), 3 * TTL)
        await all_done(cluster, "web-2", "web-3")
        assert not any(member.events_of(events.DeletionsUnknown) for member in cluster.members.values())


async def test_c3_terms_of_a_key_rise_across_changes_of_the_placement(autojump_clock: MockClock) -> None:
    """A receiver that compares `rt.term` rejects no run with another placement, and none after the change back."""
    cluster = Cluster(autojump_clock, "singleton")
    reached: dict[str, int] = {}
    for number, placement in enumerate(["singleton", "3 shards", "8 shards", "every process", "singleton", "3 shards"]):
        cluster.placement = PLACEMENTS[placement]
        for again in range(2):  # so that a placement also has more runs than the one before it
            cluster.reconciled.clear()
            async with cluster.open("web-1"):
                text = f"{number} {again}"
                for name in JOBS:
                    await cluster.write(name, text)
                await cluster.until(partial(cluster.copied, **dict.fromkeys(JOBS, text)), 3 * TTL)
            terms = {name: term for _, _, name, term in cluster.reconciled}
            assert set(terms) == set(JOBS)
            assert all(term > reached.get(name, 0) for name, term in terms.items()), (placement, reached, terms)
            reached = terms


async def test_c6_process_that_joins_maps_no_deletion_that_is_done(autojump_clock: MockClock) -> None:
    cluster = Cluster(autojump_clock, "every_process")
    async with cluster.open("web-1") as nursery:
        await cluster.write("j0", "1")
        await cluster.until(lambda: cluster.copied(j0="1"), TTL)
        await delete(cluster, "j0")
        await all_done(cluster, "web-1")
        await trio.sleep(TTL)
        joined_at = trio.current_time()
        await cluster.run("web-2", nursery)
        await cluster.write("j1", "1")
        await all_done(cluster, "web-1", "web-2")
        assert set(reconciled_since(cluster, joined_at)) == {"j1"}
