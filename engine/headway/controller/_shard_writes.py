"""The writes of a sharded controller. Each carries the fence of the shard whose key is being reconciled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.client import Acknowledged, Writes
from headway.controller._fence import RunWrites
from headway.controller._own_writes import RECONCILING
from headway.errors import OutcomeUnknown
from headway.resource import Key, ResourceType, pb


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

    async def wait_cached(self, type: ResourceType[Any], revision: int) -> None:
        """Wait for the streams of other versions of the kind, if the run caches any."""
        await self._own.wait_cached(type, revision)

    def unknown(self, error: OutcomeUnknown | None) -> None:
        """Hold all keys and start the resolution of the write."""
        self._current.unknown(error)

    def fenced(self, fence: pb.Fence | None) -> None:
        """Find out whether another run has begun."""
        self._current.fenced(fence)


def _meets_the_protocol(own: RunWrites) -> Writes:
    return ShardWrites(own, lambda _: 0)
