"""The shards of a controller: their assignment, their keys in the work queue, and the fences of their writes.

Shards are assigned by rendezvous hashing, with the same result in every process: a shard belongs to the member whose
name, hashed with the shard, is highest. A new member therefore takes only its own shards, and only the shards of a
leaving member move. Nothing else moves.

In the queue, a shard is closed, collecting or open. Keys added for a collecting shard are set aside until it opens, and
count as owed. Keys added for a closed shard are discarded, since another process handles them. A key that is still
queued when its shard closes is dropped when it would be dequeued.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b
from typing import Any

from headway.client import Acknowledged, Writes
from headway.errors import OutcomeUnknown
from headway.queue import LIVE, Priority, Taken, WaitingQueue, WorkQueue
from headway.reconcile import RECONCILING, Reason
from headway.resource import Key, ResourceType, pb
from headway.run._fence import RunWrites


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
    """A `WaitingQueue` divided into shards. It may have many holders, and each one releases it separately."""

    def __init__(self, machine: WorkQueue[Key, Reason], shard_of: Callable[[Key], int]) -> None:
        super().__init__(machine)
        self._shard_of = shard_of
        self._open: set[int] = set()
        self._collected: dict[int, dict[Key, tuple[Reason, Priority]]] = {}
        self._holders: set[object] = set()

    # --- shards ---

    def collect(self, shard: int) -> None:
        """Start to set aside the keys added for a shard, and hand out none. An open shard's owed keys are included."""
        collected = self._collected.setdefault(shard, {})
        if shard in self._open:
            collected.update({key: (_OWED, LIVE) for key in super().owed() if self._shard_of(key) == shard})
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
        for key in super().owed():
            if self._shard_of(key) == shard:
                # This makes a delayed key ready, so that it is dropped soon.
                super().add(key, _MOVED)

    def is_shard_idle(self, shard: int) -> bool:
        """Return True if no key of the shard is owed, collected ones included."""
        return all(self._shard_of(key) != shard for key in self.owed())

    # --- as a queue ---

    def add(self, key: Key, reason: Reason, *, priority: Priority = LIVE) -> None:
        """Add a key, if its shard is open or collecting."""
        shard = self._shard_of(key)
        if shard in self._open:
            super().add(key, reason, priority=priority)
        elif (collected := self._collected.get(shard)) is not None:
            known = collected.get(key)
            if known is None or priority < known[1]:
                collected[key] = (reason, priority)

    def add_all(self, keys: Iterable[Key], reason: Reason, *, priority: Priority = LIVE) -> None:
        """Add the keys whose shards are open."""
        super().add_all([key for key in keys if self._shard_of(key) in self._open], reason, priority=priority)

    def take_nowait(self) -> Taken[Key, Reason] | None:
        """Dequeue a key of an open shard without waiting, or return None."""
        while (taken := super().take_nowait()) is not None and self._shard_of(taken.key) not in self._open:
            self.dropped(taken.key)
        return taken

    def failed(self, key: Key, reason: Reason) -> float:
        """Requeue a failed key with back-off, or drop it if its shard is not open."""
        if self._shard_of(key) in self._open:
            return super().failed(key, reason)
        self.dropped(key)
        return 0.0

    def requeue_after(self, key: Key, delay: float, reason: Reason) -> None:
        """Requeue a key after a delay, or drop it if its shard is not open."""
        if self._shard_of(key) in self._open:
            super().requeue_after(key, delay, reason)
        else:
            self.dropped(key)

    def rest(self, key: Key, delay: float) -> None:
        """Delay a dequeued key, or drop it if its shard is not open."""
        if self._shard_of(key) in self._open:
            super().rest(key, delay)
        else:
            self.dropped(key)

    def is_idle(self) -> bool:
        """Return True if no key is owed. Collected keys are owed."""
        return not any(self._collected.values()) and super().is_idle()

    def owed(self) -> list[Key]:
        """Return the owed keys, from open shards and collected ones. Other processes handle other shards."""
        collected = [key for keys in self._collected.values() for key in keys]
        return collected + [key for key in super().owed() if self._shard_of(key) in self._open]

    def scheduled(self) -> dict[Key, float]:
        """Return the scheduled keys of open shards."""
        return {key: due for key, due in super().scheduled().items() if self._shard_of(key) in self._open}

    def hold(self, holder: object = None) -> None:
        """Hold all keys back for a holder."""
        self._holders.add(holder)
        super().hold()

    def is_held_by(self, holder: object) -> bool:
        """Return True if this holder has not released the queue."""
        return holder in self._holders

    def release(self, holder: object = None) -> None:
        """Release the queue for a holder. Keys are handed out again after the last holder has released it."""
        self._holders.discard(holder)
        if not self._holders:
            super().release()


class OneShard:
    """A view of a `ShardQueue` for one shard. Keys of other shards are not added, and it is a holder of its own.

    After `leave`, it no longer holds the queue. A write whose outcome is unknown then is resolved by the shard's next
    term.
    """

    def __init__(self, queue: ShardQueue, shard: int, shard_of: Callable[[Key], int]) -> None:
        self._queue = queue
        self._shard = shard
        self._shard_of = shard_of
        self._left = False

    def add(self, key: Key, reason: Reason, *, priority: Priority = LIVE) -> None:
        """Add a key, if it belongs to this shard."""
        if self._shard_of(key) == self._shard:
            self._queue.add(key, reason, priority=priority)

    @property
    def held(self) -> bool:
        """True if keys are held back for this shard."""
        return self._queue.is_held_by(self)

    def leave(self) -> None:
        """Release the queue and never hold it again. The shard has ended here, so nothing would release it later."""
        self._left = True
        self.release()

    def hold(self) -> None:
        """Hold all keys back, unless the shard has ended here."""
        if not self._left:
            self._queue.hold(self)

    def release(self) -> None:
        """Release the queue for this shard."""
        self._queue.release(self)


class ShardWrites:
    """An implementation of `client.Writes` for a sharded run.

    Writes outside a reconcile (by a source or the initialiser) carry the process' own fence.

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
    def fence(self) -> pb.Fence | None:
        """The fence of the current shard, or of the process."""
        return self._current.fence

    @property
    def store_id(self) -> str:
        """The store that the run writes to."""
        return self._own.store_id

    def acknowledged(self, write: Acknowledged) -> None:
        """Apply a write to the cache before the call returns."""
        self._own.acknowledged(write)

    async def wait_shown(self, type: ResourceType[Any], revision: int) -> None:
        """Wait for the streams of other versions of the kind, if the run caches any."""
        await self._own.wait_shown(type, revision)

    def unknown(self, error: OutcomeUnknown | None) -> None:
        """Hold all keys and start the resolution of the write."""
        self._current.unknown(error)

    def refused(self, fence: pb.Fence | None) -> None:
        """Find out whether another run has begun."""
        self._current.refused(fence)


def _meets_the_protocol(own: RunWrites) -> Writes:
    return ShardWrites(own, lambda _: 0)
