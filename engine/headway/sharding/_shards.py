"""The shards of a controller: their assignment, their keys in the work queue, and the fences of their writes.

Shards are assigned by rendezvous hashing, with the same result in every process: a shard belongs to the member whose
name, hashed with the shard, is highest. A new member therefore takes only its own shards, and only the shards of a
leaving member move. Nothing else moves.

In the queue, a shard is closed, collecting or open. Keys added for a collecting shard are set aside until it opens, and
count as pending. Keys added for a closed shard are discarded, since another process handles them. A key that is still
queued when its shard closes is dropped when it would be dequeued.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b
from typing import Any

from typing_extensions import override

from headway.client import Acknowledged, Writes
from headway.errors import OutcomeUnknown
from headway.queue import LIVE, Dequeued, Priority, WaitingQueue, WorkQueue
from headway.reconcile import RECONCILING, Reason
from headway.resource import Key, ResourceType, pb
from headway.run import Governor, RunWrites


def shard_of(key: Key, shards: int) -> int:
    """Return the shard of a key, by a hash of its partition, namespace and name (they never contain a NUL)."""
    return _hash("\0".join(key)) % shards


def member_of(shard: int, members: Collection[str]) -> str:
    """Return the member that should have a shard. There must be at least one member."""
    return max(members, key=lambda member: (_hash(f"{shard}\0{member}"), member))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


_MOVED = Reason("moved")
_OWED = Reason("owed")


class ShardQueue(WaitingQueue[Key, Reason]):
    """A `WaitingQueue` divided into shards.

    It accepts keys of open and of collecting shards, and hands out only keys of open ones.
    """

    def __init__(self, machine: WorkQueue[Key, Reason], shard_of: Callable[[Key], int]) -> None:
        super().__init__(machine)
        self._shard_of = shard_of
        self._open: set[int] = set()
        self._collected: dict[int, dict[Key, tuple[Reason, Priority]]] = {}

    # --- shards ---

    def collect(self, shard: int) -> None:
        """Begin to set aside the keys that are added for a shard instead of handing them out.

        If the shard is open, its pending and its scheduled keys are set aside as well. They all run at once when it
        opens again, like the keys that a run leaves to the next one.
        """
        collected = self._collected.setdefault(shard, {})
        if shard in self._open:
            collected.update(dict.fromkeys(self._keys_of(shard), (_OWED, LIVE)))
            self._close(shard)

    def open_shard(self, shard: int) -> None:
        """Start to hand out the keys of a shard, beginning with the collected ones."""
        self._open.add(shard)
        for key, (reason, priority) in self._collected.pop(shard, {}).items():
            super().add(key, reason, priority=priority)

    def close_shard(self, shard: int) -> None:
        """Hand out no more keys of a shard, and forget those that are queued. Idempotent."""
        self._collected.pop(shard, None)
        if shard in self._open:
            self._close(shard)

    def _close(self, shard: int) -> None:
        self._open.remove(shard)
        for key in self._keys_of(shard):
            # This makes a delayed key ready, so that it is dropped soon.
            self.end_interval(key)
            super().add(key, _MOVED)

    def _keys_of(self, shard: int) -> list[Key]:
        """Return the scheduled and the pending keys of a shard that is or was open."""
        # Read the scheduled keys first: a key that becomes due in between is then in both, and not in neither.
        return [key for key in [*super().scheduled(), *super().owed()] if self._shard_of(key) == shard]

    def is_shard_idle(self, shard: int) -> bool:
        """Return True if no key of the shard is pending, and False once it is closed: its keys are then unknown."""
        return shard in self._open and all(self._shard_of(key) != shard for key in self.owed())

    # --- as a queue ---

    @override
    def add(self, key: Key, reason: Reason, *, priority: Priority = LIVE, due: float = -math.inf) -> None:
        shard = self._shard_of(key)
        if shard in self._open:
            super().add(key, reason, priority=priority, due=due)
        elif (collected := self._collected.get(shard)) is not None:
            known = collected.get(key)
            if known is None or priority < known[1]:
                collected[key] = (reason, priority)

    @override
    def add_all(self, keys: Iterable[Key], reason: Reason, *, priority: Priority = LIVE) -> None:
        super().add_all([key for key in keys if self._shard_of(key) in self._open], reason, priority=priority)

    @override
    def dequeue_nowait(self, now: float | None = None) -> Dequeued[Key, Reason] | None:
        while (dequeued := super().dequeue_nowait(now)) is not None and self._shard_of(dequeued.key) not in self._open:
            # It was not worked on, so no interval begins.
            self.end_interval(dequeued.key)
            self.dropped(dequeued.key)
        return dequeued

    @override
    def failed(self, key: Key, reason: Reason) -> float:
        if self._shard_of(key) in self._open:
            return super().failed(key, reason)
        self.dropped(key)
        return 0.0

    @override
    def requeue_after(self, key: Key, delay: float, reason: Reason) -> None:
        if self._shard_of(key) in self._open:
            super().requeue_after(key, delay, reason)
        else:
            self.dropped(key)

    @override
    def back_off(self, key: Key, delay: float, now: float) -> None:
        if self._shard_of(key) in self._open:
            super().back_off(key, delay, now)
        else:
            self.dropped(key)

    @override
    def is_idle(self) -> bool:
        return not any(self._collected.values()) and super().is_idle()

    @override
    def owed(self) -> list[Key]:
        collected = [key for keys in self._collected.values() for key in keys]
        return collected + [key for key in super().owed() if self._shard_of(key) in self._open]


class OneShard:
    """A view of a `ShardQueue` for one shard, to which keys of other shards are not added."""

    def __init__(self, queue: ShardQueue, shard: int, shard_of: Callable[[Key], int]) -> None:
        self._queue = queue
        self._shard = shard
        self._shard_of = shard_of

    def add(self, key: Key, reason: Reason, *, priority: Priority = LIVE, due: float = -math.inf) -> None:
        """Add a key, if it belongs to this shard."""
        if self._shard_of(key) == self._shard:
            self._queue.add(key, reason, priority=priority, due=due)


class ShardWrites(Writes):
    """The writes of a sharded run.

    Writes outside a reconcile (by a source or the initialiser) carry the process's own fence.

    Attributes:
        by_shard: the writes of each shard that the run has or had. Writes of a shard that has moved are refused.
    """

    def __init__(self, own: RunWrites, shard_of: Callable[[Key], int]) -> None:
        self._own = own
        self._shard_of = shard_of
        self.by_shard: dict[int, RunWrites] = {}

    @property
    def _current(self) -> RunWrites:
        reconciling = RECONCILING.get()
        if reconciling is None or reconciling.key is None:
            return self._own
        return self.by_shard[self._shard_of(reconciling.key)]

    @property
    @override
    def governor(self) -> Governor | None:
        return self._own.governor

    @property
    @override
    def fence(self) -> pb.Fence | None:
        return self._current.fence

    @property
    @override
    def store_id(self) -> str:
        return self._own.store_id

    @override
    def acknowledged(self, write: Acknowledged) -> None:
        self._own.acknowledged(write)

    @override
    async def wait_cached(self, type: ResourceType[Any], revision: int) -> None:
        await self._own.wait_cached(type, revision)

    @override
    def unknown(self, error: OutcomeUnknown | None, request: Any = None) -> None:
        self._current.unknown(error, request)

    @override
    def fenced(self, fence: pb.Fence | None) -> None:
        self._current.fenced(fence)
