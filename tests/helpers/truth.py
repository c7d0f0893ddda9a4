"""A memory store that remembers everything it has committed: what a cache must agree with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headway.resource import Key, Kind, Position, Resource, ResourceType, pb
from headway.storage import Fence, MemoryBackend, Operation, Put, Require, RequireOwnsNothing


class Commit(NamedTuple):
    """One change of one resource."""

    revision: int
    kind: Kind
    key: Key
    old: pb.Resource | None
    new: pb.Resource | None
    fence: Fence | None


class RecordingBackend(MemoryBackend):
    """Meets `Backend`, and keeps every change in ``commits``."""

    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        self.commits: list[Commit] = []
        self._now: dict[tuple[Kind, Key], pb.Resource] = {}

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """See `Backend.commit`. Recorded in the step in which it happens."""
        position = await super().commit(operations, fence)
        for operation in operations:
            if isinstance(operation, Require | RequireOwnsNothing):
                continue
            place = (operation.kind, operation.key)
            old = self._now.get(place)
            new = operation.resource if isinstance(operation, Put) else None
            if new is None and (old is None or old.version != operation.expected):
                continue
            if new is None:
                del self._now[place]
            else:
                self._now[place] = new
            self.commits.append(Commit(position.revision, *place, old, new, fence))
        return position

    def versions(self, type: ResourceType[Any], revision: int) -> dict[Key, int]:
        """What was there of a type at a revision: key to version."""
        there: dict[Key, int] = {}
        for commit in self.commits:
            if commit.revision > revision or commit.kind != type.kind:
                continue
            if commit.new is None:
                there.pop(commit.key, None)
            else:
                there[commit.key] = commit.revision
        return there

    def resources(self, type: ResourceType[Any]) -> dict[str, Resource[Any]]:
        """What is there of a type now, by name."""
        return {key[2]: type.view(message) for (kind, key), message in self._now.items() if kind == type.kind}
