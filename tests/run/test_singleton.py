"""A singleton in several processes: one leads, the others stand by, and a previous leader's late writes fail."""

from __future__ import annotations

import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.client import client_error
from headway.errors import Fenced
from headway.testing import Fault
from tests.helpers.cluster import TTL, Cluster, Member


def leader(cluster: Cluster) -> Member:
    (leading,) = [member for member in cluster.members.values() if member.status().phase == "running"]
    return leading


async def led(cluster: Cluster) -> tuple[Member, Member]:
    """Wait until one member leads and the other stands by. Return both, in this order."""

    def phases() -> list[str]:
        return sorted(member.status().phase for member in cluster.members.values())

    await cluster.until(lambda: phases() == ["running", "standby"], 10)
    first = leader(cluster)
    (second,) = [member for member in cluster.members.values() if member is not first]
    return first, second


async def test_one_of_two_reconciles_and_the_other_reports_the_leader(autojump_clock: MockClock) -> None:
    """The other process stands by, is ready and idle, and has its types primed."""
    cluster = Cluster(autojump_clock, "singleton")
    async with cluster.open("web-1", "web-2"):
        first, second = await led(cluster)
        for number in range(20):
            await cluster.write(f"j{number}", "1")
        await cluster.until(lambda: len({name for _, _, name, _ in cluster.reconciled}) == 20, 10)
        assert {member for _, member, _, _ in cluster.reconciled} == {first.name}
        status = second.status()
        assert (status.phase, status.leader, status.problem) == ("standby", first.name, "")
        with trio.fail_after(10):
            await second.engine.wait_idle()
            await first.engine.wait_idle()
        assert await cluster.copied(**{f"j{number}": "1" for number in range(20)})
        await trio.sleep(TTL * 20)
        assert leader(cluster) is first


async def test_killed_leader_is_replaced_within_its_ttl(autojump_clock: MockClock) -> None:
    """The successor has every write of the killed leader, needs no snapshot, and leads in a later term."""
    cluster = Cluster(autojump_clock, "singleton")
    async with cluster.open("web-1", "web-2"):
        first, second = await led(cluster)
        await cluster.write("a", "1")
        await cluster.until(lambda: cluster.copied(a="1"), 10)
        seen: list[tuple[int, str]] = []

        async def look(member: str, rt: headway.Runtime, _: headway.Request) -> None:
            if member == second.name:
                made = rt.cache.get(cluster.copy, "a")
                seen.append((rt.term, made.data.by if made is not None else ""))

        cluster.around = look
        killed_at = trio.current_time()
        first.kill()
        await cluster.write("b", "2")
        await cluster.until(lambda: cluster.copied(a="1", b="2"), TTL + 2)
        # The last renewal was at most a third of a ttl before the kill.
        assert trio.current_time() - killed_at >= TTL * 0.6
        assert seen[0][1] == first.name
        assert seen[0][0] > cluster.reconciled[0][3]
        assert second.wire.snapshots(killed_at) == []
        assert second.events_of(events.RunEnded) == []
        cluster.check_fences()


async def test_leader_that_ends_hands_over_at_once(autojump_clock: MockClock) -> None:
    """The leader releases the lease when its run has ended, which wakes the waiting process."""
    cluster = Cluster(autojump_clock, "singleton")
    async with cluster.open("web-1", "web-2"):
        first, second = await led(cluster)
        await cluster.write("a", "1")
        await cluster.until(lambda: cluster.copied(a="1"), 10)
        began = trio.current_time()
        await first.stop()
        await cluster.write("b", "2")
        await cluster.until(lambda: cluster.copied(a="1", b="2"), 2)
        assert leader_names(cluster, began) == {second.name}
        assert second.wire.snapshots(began) == []


def leader_names(cluster: Cluster, since: float) -> set[str]:
    return {member for when, member, _, _ in cluster.reconciled if when > since}


async def test_late_write_of_a_previous_leader_is_rejected(autojump_clock: MockClock) -> None:
    """The write was sent in time, and arrives when another process leads (C8)."""
    cluster = Cluster(autojump_clock, "singleton")
    async with cluster.open("web-1", "web-2"):
        first, second = await led(cluster)
        first.script.writes(Fault.LATE)
        first.script.raises(*[Fault.FAILED] * 1000)
        await cluster.write("a", "1")
        await cluster.until(lambda: bool(first.script.unknown), 10)
        first.kill()
        await cluster.until(lambda: cluster.copied(a="1"), TTL + 2)
        (late,) = await first.script.run_late()
        assert late.error is not None
        assert isinstance(client_error(late.error, write=True), Fenced)
        assert [copy.data.by for copy in await cluster.client.list(cluster.copy)] == [second.name]


async def test_partitioned_leader_ends_before_its_lease_expires(autojump_clock: MockClock) -> None:
    """The leader ends its run by its own clock (C7), without a failure.

    It stands by once it reaches the server again.
    """
    cluster = Cluster(autojump_clock, "singleton")
    cluster.pause = 1000.0
    async with cluster.open("web-1", "web-2"):
        first, second = await led(cluster)
        await cluster.write("a", "1")
        await cluster.until(lambda: bool(cluster.running), 10)
        first.wire.cut()
        cut_at = trio.current_time()
        await cluster.until(lambda: (first.name, "a") not in cluster.running, TTL)
        assert trio.current_time() - cut_at <= TTL * 0.8 + 0.1
        cluster.pause = 0.0
        await cluster.until(lambda: cluster.copied(a="1"), TTL)
        assert first.status().phase == "starting"
        assert "Unavailable" in first.status().problem
        first.wire.mend()
        await cluster.until(lambda: first.status().phase == "standby", 10)
        assert first.status().leader == second.name
        (ended,) = first.events_of(events.RunEnded)
        assert (type(ended.error), ended.delay) == (headway.errors.LeaseLost, 0.0)


async def test_feeds_of_a_previous_run_end_when_another_process_leads(autojump_clock: MockClock) -> None:
    """Feeds that continued would grow for as long as the process stands by."""
    cluster = Cluster(autojump_clock, "singleton")
    async with cluster.open("web-1", "web-2"):
        first, second = await led(cluster)
        first.wire.cut()
        await cluster.until(lambda: second.status().phase == "running", TTL + 2)
        first.wire.mend()
        await cluster.until(lambda: first.status().phase == "standby", TTL * 2)
        supervisor = first.engine.controllers["copier"]
        assert supervisor._owed.subscriptions == ()


async def test_c6_keys_that_a_run_left_are_reconciled_after_a_standby(autojump_clock: MockClock) -> None:
    """The leader in between cannot know of a requeue whose resource does not exist."""
    cluster = Cluster(autojump_clock, "singleton")

    async def poll(member: str, _: headway.Runtime, __: headway.Request) -> headway.RequeueAfter | None:
        return headway.requeue_after(10_000) if member == first.name else None

    async with cluster.open("web-1", "web-2"):
        first, second = await led(cluster)
        cluster.around = poll
        await cluster.write("a", "1")
        await cluster.until(lambda: cluster.copied(a="1"), 10)
        await cluster.client.delete(cluster.job.id("a"))
        await cluster.until(cluster.copied, 10)
        first.wire.cut()
        await cluster.until(lambda: second.status().phase == "running", TTL + 2)
        first.wire.mend()
        await cluster.until(lambda: first.status().phase == "standby", TTL * 2)
        began = trio.current_time()
        await second.stop()
        await cluster.until(lambda: first.status().phase == "running", 10)
        await first.engine.wait_idle()
        assert [(member, name) for when, member, name, _ in cluster.reconciled if when >= began] == [(first.name, "a")]


async def test_status_shows_a_failed_renewal_until_one_succeeds(autojump_clock: MockClock) -> None:
    """The status has the reason of the failure."""
    cluster = Cluster(autojump_clock, "singleton")
    async with cluster.open("web-1"):
        (first,) = cluster.members.values()
        await cluster.until(lambda: first.status().phase == "running", 10)
        for _ in range(2):
            assert first.status().error == ""
            first.wire.cut()
            await cluster.until(lambda: "Unavailable" in first.status().error, TTL / 2)
            first.wire.mend()
            await cluster.until(lambda: first.status().error == "", TTL / 2)
        assert first.events_of(events.RunEnded) == []


async def test_standby_that_is_cut_off_has_been_starting_since_then(autojump_clock: MockClock) -> None:
    """The time for which it has stood by is not counted, so it does not look stuck after a moment without a server."""
    cluster = Cluster(autojump_clock, "singleton")
    async with cluster.open("web-1", "web-2"):
        _, second = await led(cluster)
        await trio.sleep(TTL * 20)
        second.wire.cut()
        cut_at = trio.current_time()
        await cluster.until(lambda: second.status().phase == "starting", TTL * 3)
        assert second.status().seconds <= trio.current_time() - cut_at
        await trio.sleep(TTL)
        assert TTL <= second.status().seconds <= trio.current_time() - cut_at
        second.wire.mend()
        mended_at = trio.current_time()
        await cluster.until(lambda: second.status().phase == "standby", 10)
        assert second.status().seconds <= trio.current_time() - mended_at
