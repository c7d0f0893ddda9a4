"""The writes of a sharded controller: each under the fence of the shard whose key is being reconciled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.client import Acknowledged, Writes
from headway.controller._fence import RunWrites
from headway.controller._own_writes import RECONCILING
from headway.errors import OutcomeUnknown
from headway.resource import Key, ResourceType, pb


class ShardWrites:
    """Meets `client.Writes`. What no reconcile writes (a source, the initialiser) bears the process' own fence.

    Attributes:
        by_shard: the writes of each shard that the run has, or had last: those of one that has moved are refused.
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
        """See `client.Writes`."""
        return self._current.fence

    @property
    def store_id(self) -> str:
        """See `client.Writes`."""
        return self._own.store_id

    def acknowledged(self, write: Acknowledged) -> None:
        """See `client.Writes`."""
        self._own.acknowledged(write)

    async def wait_shown(self, type: ResourceType[Any], revision: int) -> None:
        """See `client.Writes`."""
        await self._own.wait_shown(type, revision)

    def unknown(self, error: OutcomeUnknown | None) -> None:
        """See `client.Writes`."""
        self._current.unknown(error)

    def refused(self, fence: pb.Fence | None) -> None:
        """See `client.Writes`."""
        self._current.refused(fence)


def _meets_the_protocol(own: RunWrites) -> Writes:
    return ShardWrites(own, lambda _: 0)
