"""The pending keys of a shard, through lost leases, failing runs and dying holders (C6)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.run import RECORD_INTERVAL
from headway.testing import Fault
from tests.helpers.cluster import TTL, Cluster, Job
from tests.helpers.shards import SHARDS, Sources, has_all, lose, reconciled_since, shard, shards_of


async def test_c6_pending_keys_of_a_run_are_pending_in_the_next(autojump_clock: MockClock) -> None:
    """The keys are waiting or being reconciled when the run fails, and no cache shows them.

    The leases of the shards are acquired anew.
    """
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    sources = Sources(cluster)
    nowhere = {f"x{number}" for number in range(12)}
    async with cluster.open("web-1"):
        member = cluster.members["web-1"]
        await has_all(cluster, member)
        cluster.pause = 1000.0
        for name in nowhere:
            sources.enqueue["web-1"](cluster.job.id(name))
        await cluster.until(lambda: len(cluster.running) == 4, 5)
        cluster.pause = 0.0
        failed_at = trio.current_time()
        sources.fail("web-1")
        await cluster.until(lambda: reconciled_since(cluster, failed_at) == nowhere, TTL)
        with trio.fail_after(5):
            await member.engine.wait_idle()
        assert len(member.events_of(events.RunEnded)) == 1


async def test_c6_pending_keys_survive_the_loss_of_the_lease_of_their_shard(autojump_clock: MockClock) -> None:
    """Keys that arrive before the lease is acquired again survive too. A run that fails in between hands them on."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    sources = Sources(cluster)
    alike = [f"x{number}" for number in range(99) if shard(f"x{number}") == 0]
    before, after = set(alike[:6]), set(alike[6:9])
    async with cluster.open("web-1"):
        member = cluster.members["web-1"]
        await has_all(cluster, member)

        async def lose_shard() -> float:
            """Lose the lease while these keys wait for reconciles that take long, and return the time."""
            cluster.pause = 1000.0
            for name in before:
                sources.enqueue["web-1"](cluster.job.id(name))
            await cluster.until(lambda: len(cluster.running) == 4, 5)
            cluster.pause = 0.0
            member.script.raises(*[Fault.FAILED] * 2)
            lost_at = trio.current_time()
            await lose(cluster, f"staff/copier#0/{SHARDS}")
            await cluster.until(lambda: 0 not in shards_of(member), TTL)
            return lost_at

        lost_at = await lose_shard()
        for name in after:
            sources.enqueue["web-1"](cluster.job.id(name))
        await trio.sleep(0.1)
        assert reconciled_since(cluster, lost_at) == set()
        assert member.engine.controllers["copier"].checkpoint() == 0
        await cluster.until(lambda: reconciled_since(cluster, lost_at) == before | after, TTL * 2)
        assert member.events_of(events.RunEnded) == []

        # Do the same, but fail the run while another member has the shard.
        lost_at = await lose_shard()
        sources.fail("web-1")
        await cluster.until(lambda: reconciled_since(cluster, lost_at) >= before, TTL * 2)


@pytest.mark.parametrize("ends", ["the run", "the lease of the shard"])
async def test_c6_scheduled_keys_survive_the_end_of_the_run_or_of_their_lease(
    autojump_clock: MockClock, ends: str
) -> None:
    """The keys had asked to be requeued, and no cache shows them. They no longer wait for the requested time."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    sources = Sources(cluster)
    nowhere = {f"x{number}" for number in range(99) if shard(f"x{number}") == 0}
    ended_at = math.inf

    async def around(_: str, __: headway.Runtime, ___: headway.Request[Job]) -> headway.RequeueAfter | None:
        return headway.requeue_after(1000) if trio.current_time() < ended_at else None

    cluster.around = around
    async with cluster.open("web-1"):
        member = cluster.members["web-1"]
        await has_all(cluster, member)
        for name in nowhere:
            sources.enqueue["web-1"](cluster.job.id(name))
        run = member.engine.controllers["copier"].run
        assert run is not None
        await cluster.until(lambda: {name for *_, name in run.scheduled()} == nowhere, 5)
        ended_at = trio.current_time()
        if ends == "the run":
            sources.fail("web-1")
        else:
            await lose(cluster, f"staff/copier#0/{SHARDS}")
        await cluster.until(lambda: reconciled_since(cluster, ended_at) == nowhere, TTL * 2)
        assert len(member.events_of(events.RunEnded)) == (ends == "the run")


async def test_c6_keys_of_a_shard_that_is_being_acquired_are_pending(autojump_clock: MockClock) -> None:
    """The lease of the shard is held, but one type has not reached the starting revision yet."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    sources = Sources(cluster)
    async with cluster.open("web-1", "web-2"):
        first, second = cluster.members["web-1"], cluster.members["web-2"]
        await has_all(cluster, first, second)
        nowhere = next(f"x{number}" for number in range(99) if shard(f"x{number}") in shards_of(second))
        first.script.hold(cluster.copy)
        before = len(first.events)
        await second.stop()
        lease = f"staff/copier#{shard(nowhere)}/{SHARDS}"

        def is_held() -> bool:
            return any(isinstance(each, events.LeaseTaken) and each.name == lease for each in first.events[before:])

        await cluster.until(is_held, TTL)
        await trio.sleep(1)
        assert shard(nowhere) not in shards_of(first)
        sources.enqueue["web-1"](cluster.job.id(nowhere))
        await trio.sleep(1)
        assert nowhere not in reconciled_since(cluster, 0)
        first.script.release(cluster.copy)
        await cluster.until(lambda: nowhere in reconciled_since(cluster, 0), 5)


async def test_c6_unreconciled_deletion_of_a_dead_holder_is_found(autojump_clock: MockClock) -> None:
    """The previous holder had received the deletion, but had not reconciled it when it recorded its checkpoint."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    stuck: list[str] = []

    async def around(member: str, _: headway.Runtime, request: headway.Request[Job]) -> None:
        if member == "web-2" and request.id.name in stuck:
            await trio.sleep_forever()

    cluster.around = around
    async with cluster.open("web-1", "web-2"):
        second = cluster.members["web-2"]
        await has_all(cluster, *cluster.members.values())
        name = next(f"j{number}" for number in range(99) if shard(f"j{number}") in shards_of(second))
        await cluster.write(name, "1")
        await cluster.until(lambda: cluster.copied(**{name: "1"}), 5)
        stuck.append(name)
        await cluster.client.delete(cluster.job.id(name))
        await cluster.client.delete(cluster.copy.id(name))
        await trio.sleep(RECORD_INTERVAL * 2)
        assert cluster.running == [("web-2", name)]
        killed_at = trio.current_time()
        second.kill()
        await cluster.until(lambda: reconciled_since(cluster, killed_at) == {name}, TTL * 2)


async def test_c6_unmapped_deletion_of_a_dead_holder_is_found(autojump_clock: MockClock) -> None:
    """The holder's predicate failed for a deletion from history. The next holder finds the deletion there again."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    failed: list[str] = []

    def options(member: str) -> dict[str, Any]:
        def when(_: headway.Resource[Job] | None, new: headway.Resource[Job] | None) -> bool:
            if member == "web-1" and new is None:
                failed.append(member)
                raise LookupError("no answer")
            return True

        return {"when": when}

    async def around(_: str, __: headway.Runtime, ___: headway.Request[Job]) -> None:
        # No copy is made: a copy would cause a reconcile of the key as well.
        raise headway.PermanentFailure("not this one")

    cluster.options, cluster.around = options, around
    async with cluster.open("web-1", "web-2") as nursery:
        await has_all(cluster, *cluster.members.values())
        second = cluster.members["web-2"]
        name = next(f"j{number}" for number in range(99) if shard(f"j{number}") in shards_of(second))
        await cluster.write(name, "1")
        await trio.sleep(RECORD_INTERVAL * 2)
        second.kill()
        await trio.sleep(1)
        await cluster.client.delete(cluster.job.id(name))
        await has_all(cluster, cluster.members["web-1"])
        await trio.sleep(RECORD_INTERVAL * 2)
        assert failed
        killed_at = trio.current_time()
        cluster.members["web-1"].kill()
        await cluster.run("web-3", nursery)
        await cluster.until(lambda: reconciled_since(cluster, killed_at) == {name}, TTL * 3)


async def test_controller_is_not_idle_while_a_shard_has_an_unmapped_deletion(autojump_clock: MockClock) -> None:
    """The deletion was found in history when the shard was acquired. The predicate still fails for it."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    answers = False

    def options(_: str) -> dict[str, Any]:
        def when(_: headway.Resource[Job] | None, new: headway.Resource[Job] | None) -> bool:
            if new is None and not answers:
                raise LookupError("no answer")
            return True

        return {"when": when}

    async def around(_: str, __: headway.Runtime, ___: headway.Request[Job]) -> None:
        # No copy is made: a copy would cause a reconcile of the key as well.
        raise headway.PermanentFailure("not this one")

    cluster.options, cluster.around = options, around
    async with cluster.open("web-1") as nursery:
        await has_all(cluster, cluster.members["web-1"])
        await cluster.write("a", "1")
        await trio.sleep(RECORD_INTERVAL * 2)
        cluster.members["web-1"].kill()
        await trio.sleep(1)
        await cluster.client.delete(cluster.job.id("a"))
        second = await cluster.run("web-2", nursery)
        await cluster.until(lambda: second.status().shards == tuple(range(SHARDS)), TTL * 3)
        began, controller = trio.current_time(), second.engine.controllers["copier"]
        await trio.sleep(RECORD_INTERVAL * 2)
        assert controller.checkpoint() == 0
        answers = True
        with trio.fail_after(TTL * 3):
            await second.engine.wait_idle()
        assert reconciled_since(cluster, began) == {"a"}
        assert controller.checkpoint() > 0
