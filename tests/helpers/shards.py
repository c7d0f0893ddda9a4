"""Helpers for sharded controllers in a `Cluster`: the sources of its members, and the shards that each holds."""

from __future__ import annotations

from typing import Any

import trio

import headway
from headway.sharding import member_of, shard_of
from tests.helpers.cluster import TTL, Cluster, Member

SHARDS = 8


class SourceFailed(Exception):
    """The exception that a source raises on request."""


class Sources:
    """The sources of all members, which a test can end."""

    def __init__(self, cluster: Cluster) -> None:
        self.enqueue: dict[str, headway.sources.Enqueue] = {}
        self.runtime: dict[str, headway.Runtime] = {}
        self._fail: dict[str, trio.Event] = {}
        cluster.options = self.of

    def of(self, member: str) -> dict[str, Any]:
        async def source(rt: headway.Runtime, enqueue: headway.sources.Enqueue) -> None:
            self.runtime[member], self.enqueue[member] = rt, enqueue
            self._fail[member] = trio.Event()
            await self._fail[member].wait()
            raise SourceFailed

        return {"sources": {"requests": source}}

    def fail(self, member: str) -> None:
        """End the member's run."""
        self._fail[member].set()


def shard(job: str) -> int:
    return shard_of(("default", "default", job), SHARDS)


def shards_of(member: Member) -> tuple[int, ...]:
    return member.status().shards or ()


async def has_all(cluster: Cluster, *members: Member) -> None:
    """Wait until the shards are divided among exactly these members."""
    names = [member.name for member in members]
    wanted = {name: tuple(each for each in range(SHARDS) if member_of(each, names) == name) for name in names}
    await cluster.until(lambda: {member.name: shards_of(member) for member in members} == wanted, TTL + 8)


async def lose(cluster: Cluster, name: str) -> None:
    """End the term of a lease without its holder's knowledge."""
    (held,) = [each for each in await cluster.leases.list(name) if each.name == name]
    await cluster.leases.release(name, held.holder, held.term)


def reconciled_since(cluster: Cluster, when: float) -> set[str]:
    return {name for at, _, name, _ in cluster.reconciled if at >= when}
