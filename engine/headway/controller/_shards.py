"""The assignment of keys to shards and of shards to members. Always the same in every process. No I/O.

Shards are assigned by rendezvous hashing: a shard belongs to the member whose name, hashed with the shard, is highest.
A new member therefore takes only its own shards, and only the shards of a leaving member move. Nothing else moves.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from headway.resource import Key


def shard_of(key: Key, shards: int) -> int:
    """Return the shard of a key, by a hash of its partition, namespace and name (they never contain a NUL)."""
    return _hash("\0".join(key)) % shards


def member_of(shard: int, members: Collection[str]) -> str:
    """Return the member that should have a shard. There must be at least one member."""
    return max(members, key=lambda member: (_hash(f"{shard}\0{member}"), member))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
