"""The true store of a simulation: in memory, with its whole history, and a hook on every commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from headway.resource import Key, Kind, Position, copy_message, pb
from headway.storage import Fence, MemoryBackend, Operation, Put, Require, RequireOwnsNothing

Resources = dict[tuple[Kind, Key], pb.Resource]
OnCommit = Callable[[int, Kind, Key, pb.Resource | None, pb.Resource | None, Fence | None], None]


class SimulatedStore(MemoryBackend):
    """Meets `Backend`; calls ``on_commit`` in the very step in which something changes, before any stream tells it."""

    def __init__(self, on_commit: OnCommit) -> None:
        super().__init__(max_changes=1_000_000, max_age=1e12)
        self._on_commit = on_commit
        self._now: Resources = {}
        self._history: list[tuple[int, Resources]] = [(0, {})]

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """See `Backend.commit`."""
        position = await super().commit(operations, fence)
        # In the step in which it was done: nothing has come between.
        self._note(position.revision, operations, fence)
        return position

    def _note(self, revision: int, operations: Sequence[Operation], fence: Fence | None) -> None:
        changes: list[tuple[Kind, Key, pb.Resource | None, pb.Resource | None]] = []
        for operation in operations:
            if isinstance(operation, Require | RequireOwnsNothing):
                continue
            place = (operation.kind, operation.key)
            old = self._now.get(place)
            new = self._tables.get(operation.kind, operation.key)
            if new is old:
                continue
            if new is None:
                self._now.pop(place, None)
            else:
                self._now[place] = new
            changes.append((*place, old, new))
        if changes:
            self._history.append((revision, dict(self._now)))
        for change in changes:
            self._on_commit(revision, *change, fence)

    def at(self, revision: int) -> Resources:
        """What there was at a revision."""
        return next(there for made, there in reversed(self._history) if made <= revision)

    @property
    def now(self) -> Resources:
        """What there is."""
        return self._now

    def end_leases(self) -> None:
        """End every lease, as if its time had passed."""
        for held in self._leases.list(""):
            self._end(held.lease)

    async def restored(self, revision: int) -> SimulatedStore:
        """Another store, with another id and higher revisions, that has what this one had at a revision."""
        other = SimulatedStore(self._on_commit)
        other._fences = dict(self._fences)
        other._append(self.position.revision + 1000, ())
        puts = [
            Put(kind, key, copy_message(resource), "")
            for (kind, key), resource in sorted(self.at(revision).items(), key=lambda each: int(each[1].version))
        ]
        if puts:
            with trio.CancelScope(shield=True):
                await MemoryBackend.commit(other, puts)
            other._now = {(put.kind, put.key): put.resource for put in puts}
            other._history = [(other.position.revision, dict(other._now))]
        return other
