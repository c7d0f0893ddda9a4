"""The work queue of a sharded controller. It accepts and returns only keys of open shards.

A shard is closed, collecting or open. Keys added for a collecting shard are set aside until it opens, and count as
owed. Keys added for a closed shard are discarded, since another process handles them. A key that is still queued when
its shard closes is dropped when it would be dequeued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headway.controller._request import Reason
from headway.queue import LIVE, Dequeued, Priority, WaitingQueue, WorkQueue
from headway.resource import Key

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

    def owes(self, shard: int) -> bool:
        """Return True if a key of the shard is ready, being processed, delayed or collected."""
        return any(self._shard_of(key) == shard for key in self.owed())

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

    def dequeue_nowait(self) -> Dequeued[Key, Reason] | None:
        """Dequeue a key of an open shard without waiting, or return None."""
        while (dequeued := super().dequeue_nowait()) is not None and self._shard_of(dequeued.key) not in self._open:
            self.dropped(dequeued.key)
        return dequeued

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

    def back_off(self, key: Key, delay: float) -> None:
        """Delay a dequeued key, or drop it if its shard is not open."""
        if self._shard_of(key) in self._open:
            super().back_off(key, delay)
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
