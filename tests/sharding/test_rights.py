"""A sharded controller whose members may read only some members' leases: wrong shares, but never two holders."""

from __future__ import annotations

from collections.abc import Iterable

import trio
from trio.testing import MockClock

import headway
from headway.access import ANONYMOUS, LEASE, Access, Authorizer, Guarded, Policy, Rule
from headway.rpc import InProcessChannel
from headway.service import LeaseService, ResourceService, StoreService
from tests.helpers.cluster import TTL, Cluster
from tests.helpers.shards import SHARDS, has_all, shards_of

JOBS = {f"j{number}": "1" for number in range(20)}


def rights(*readable: str) -> Access:
    """Return the rights of a member that may read the membership leases of these members, and all other leases."""
    lease = {"type": str(LEASE), "partition": "", "namespace": ""}
    rules = [
        Rule(verbs=["write", "list"], **lease, name_prefix="staff/"),
        *(Rule(verbs=["read"], **lease, name_prefix=f"staff/copier/members/{each}") for each in readable),
    ]
    return Access([Policy(ANONYMOUS, rules)])


async def run(cluster: Cluster, nursery: trio.Nursery, name: str, readable: Iterable[str]) -> Authorizer:
    """Start a member with these rights. Return the authorizer of its leases."""
    authorizer = Authorizer(rights(*readable))
    cluster.channel = InProcessChannel(
        ResourceService(cluster.store, cluster.registry),
        Guarded(lambda caller: LeaseService(cluster.store, caller), authorizer, cluster.registry),
        StoreService(cluster.store, cluster.registry),
    )
    await cluster.run(name, nursery)
    return authorizer


def held(cluster: Cluster) -> list[int]:
    """Return the shards that the members hold. A shard that two members hold is there twice."""
    return sorted(each for member in cluster.members.values() for each in shards_of(member))


async def test_member_that_is_not_seen_gets_no_shards_until_the_rule_is_complete(autojump_clock: MockClock) -> None:
    """The first member sees only itself, so it keeps all shards. Each key is reconciled, by one process at a time.

    With the missing rule, the shares become right without a restart.
    """
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    async with cluster.open() as nursery:
        first = await run(cluster, nursery, "web-1", ["web-1"])
        await cluster.until(lambda: len(shards_of(cluster.members["web-1"])) == SHARDS, TTL + 8)
        await run(cluster, nursery, "web-2", [""])
        for name, text in JOBS.items():
            await cluster.write(name, text)
        await cluster.until(lambda: cluster.copied(**JOBS), 60)
        # Longer than any move of a shard between members that see each other.
        await trio.sleep(3 * TTL)
        assert {name: len(shards_of(each)) for name, each in cluster.members.items()} == {"web-1": SHARDS, "web-2": 0}
        assert {member for _, member, _, _ in cluster.reconciled} == {"web-1"}

        first.replace(rights(""))
        await has_all(cluster, *cluster.members.values())
        changed = dict.fromkeys(JOBS, "2")
        for name, text in changed.items():
            await cluster.write(name, text)
        await cluster.until(lambda: cluster.copied(**changed), 60)
        assert {member for _, member, _, _ in cluster.reconciled} == {"web-1", "web-2"}
    cluster.check_fences()


async def test_member_that_sees_only_itself_takes_over_when_the_other_dies(autojump_clock: MockClock) -> None:
    """Both members want every shard, and only the leases decide. None is held by two, and none is left behind."""
    cluster = Cluster(autojump_clock, headway.sharded(shards=SHARDS))
    async with cluster.open() as nursery:
        for name in ("web-1", "web-2"):
            await run(cluster, nursery, name, [name])
        await cluster.until(lambda: held(cluster) == list(range(SHARDS)), TTL + 8)
        for name, text in JOBS.items():
            await cluster.write(name, text)
        await cluster.until(lambda: cluster.copied(**JOBS), 60)
        assert held(cluster) == list(range(SHARDS))

        cluster.members["web-1"].kill()
        survivor = cluster.members["web-2"]
        await cluster.until(lambda: len(shards_of(survivor)) == SHARDS, 2 * TTL + 8)
        changed = dict.fromkeys(JOBS, "2")
        for name, text in changed.items():
            await cluster.write(name, text)
        await cluster.until(lambda: cluster.copied(**changed), 60)
    cluster.check_fences()
