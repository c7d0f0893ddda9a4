"""Which shard a key is in, and which member has a shard. Pure: the same in every process, today and next year.

Shards go to members by rendezvous: the member whose name, hashed with the shard, is highest has it. So who comes takes
only what becomes its own, and of who leaves only what it had goes to others; nothing else moves.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from headway.resource import Key


def shard_of(key: Key, shards: int) -> int:
    """The shard of a key, by a hash of its partition, namespace and name (which have no NUL in them)."""
    return _hash("\0".join(key)) % shards


def member_of(shard: int, members: Collection[str]) -> str:
    """The member that should have a shard. There must be one."""
    return max(members, key=lambda member: (_hash(f"{shard}\0{member}"), member))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
