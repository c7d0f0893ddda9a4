"""The work queue of a sharded controller: only keys of open shards go in and come out.

A shard is closed, collecting or open. What is added for a shard that collects is kept aside until it opens, and is
owed; for a closed one nothing is kept, since whoever has it does it. A key that is still here when its shard has closed
is dropped when it would be handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headway.controller._request import Reason
from headway.queue import LIVE, Priority, Taken, WaitingQueue, WorkQueue
from headway.resource import Key

_MOVED = Reason("moved")
_OWED = Reason("owed")


class ShardQueue(WaitingQueue[Key, Reason]):
    """A `WaitingQueue` by shards. Many may hold it: each lets go for itself."""

    def __init__(self, machine: WorkQueue[Key, Reason], shard_of: Callable[[Key], int]) -> None:
        super().__init__(machine)
        self._shard_of = shard_of
        self._open: set[int] = set()
        self._collected: dict[int, dict[Key, tuple[Reason, Priority]]] = {}
        self._holders: set[object] = set()

    # --- shards ---

    def collect(self, shard: int) -> None:
        """Keep from now on what is added for it; hand out nothing of it. What is owed of an open one is kept too."""
        collected = self._collected.setdefault(shard, {})
        if shard in self._open:
            collected.update({key: (_OWED, LIVE) for key in super().owed() if self._shard_of(key) == shard})
            self._close(shard)

    def open_shard(self, shard: int) -> None:
        """Hand out its keys from now on, those first that were collected."""
        self._open.add(shard)
        for key, (reason, priority) in self._collected.pop(shard, {}).items():
            super().add(key, reason, priority=priority)

    def close_shard(self, shard: int) -> None:
        """Hand out none of its keys any more, and forget what is here of it. Idempotent."""
        self._collected.pop(shard, None)
        if shard in self._open:
            self._close(shard)

    def _close(self, shard: int) -> None:
        self._open.remove(shard)
        for key in super().owed():
            if self._shard_of(key) == shard:
                # A key that rests is ready then, and so is dropped soon.
                super().add(key, _MOVED)

    def owes(self, shard: int) -> bool:
        """Whether a key of the shard is ready, in hand, resting or collected."""
        return any(self._shard_of(key) == shard for key in self.owed())

    # --- as a queue ---

    def add(self, key: Key, reason: Reason, *, priority: Priority = LIVE) -> None:
        """See `WaitingQueue.add`."""
        shard = self._shard_of(key)
        if shard in self._open:
            super().add(key, reason, priority=priority)
        elif (collected := self._collected.get(shard)) is not None:
            known = collected.get(key)
            if known is None or priority < known[1]:
                collected[key] = (reason, priority)

    def add_all(self, keys: Iterable[Key], reason: Reason, *, priority: Priority = LIVE) -> None:
        """See `WaitingQueue.add_all`."""
        super().add_all([key for key in keys if self._shard_of(key) in self._open], reason, priority=priority)

    def take_nowait(self) -> Taken[Key, Reason] | None:
        """See `WaitingQueue.take_nowait`."""
        while (taken := super().take_nowait()) is not None and self._shard_of(taken.key) not in self._open:
            self.dropped(taken.key)
        return taken

    def failed(self, key: Key, reason: Reason) -> float:
        """See `WaitingQueue.failed`."""
        if self._shard_of(key) in self._open:
            return super().failed(key, reason)
        self.dropped(key)
        return 0.0

    def requeue_after(self, key: Key, delay: float, reason: Reason) -> None:
        """See `WaitingQueue.requeue_after`."""
        if self._shard_of(key) in self._open:
            super().requeue_after(key, delay, reason)
        else:
            self.dropped(key)

    def rest(self, key: Key, delay: float) -> None:
        """See `WaitingQueue.rest`."""
        if self._shard_of(key) in self._open:
            super().rest(key, delay)
        else:
            self.dropped(key)

    def is_idle(self) -> bool:
        """See `WaitingQueue.is_idle`: what is collected is owed too."""
        return not any(self._collected.values()) and super().is_idle()

    def owed(self) -> list[Key]:
        """See `WaitingQueue.owed`: the keys of open shards, and what is collected; others' are others' to do."""
        collected = [key for keys in self._collected.values() for key in keys]
        return collected + [key for key in super().owed() if self._shard_of(key) in self._open]

    def scheduled(self) -> dict[Key, float]:
        """See `WaitingQueue.scheduled`: the keys of open shards."""
        return {key: due for key, due in super().scheduled().items() if self._shard_of(key) in self._open}

    def hold(self, holder: object = None) -> None:
        """See `WaitingQueue.hold`."""
        self._holders.add(holder)
        super().hold()

    def is_held_by(self, holder: object) -> bool:
        """Whether this holder has not let go."""
        return holder in self._holders

    def release(self, holder: object = None) -> None:
        """Let keys be taken again, when every holder has said so."""
        self._holders.discard(holder)
        if not self._holders:
            super().release()


class OneShard:
    """A `ShardQueue` as seen by what serves one shard: keys of others don't go in, and it is held for itself.

    Once it has been left it is not held any more: a write that is lost then is settled by the shard's next term.
    """

    def __init__(self, queue: ShardQueue, shard: int, shard_of: Callable[[Key], int]) -> None:
        self._queue = queue
        self._shard = shard
        self._shard_of = shard_of
        self._left = False

    def add(self, key: Key, reason: Reason, *, priority: Priority = LIVE) -> None:
        """See `WaitingQueue.add`."""
        if self._shard_of(key) == self._shard:
            self._queue.add(key, reason, priority=priority)

    @property
    def held(self) -> bool:
        """Whether keys are held back for this shard."""
        return self._queue.is_held_by(self)

    def leave(self) -> None:
        """Nothing serves the shard any more: nobody is there to release what would be held from now on."""
        self._left = True
        self.release()

    def hold(self) -> None:
        """See `ShardQueue.hold`."""
        if not self._left:
            self._queue.hold(self)

    def release(self) -> None:
        """See `ShardQueue.release`."""
        self._queue.release(self)
