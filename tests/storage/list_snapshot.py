"""A snapshot over a list, for the broken stores."""

from __future__ import annotations

from collections.abc import Sequence

from headway.resource import pb
from headway.storage import SNAPSHOT_CHUNK


class ListSnapshot:
    """A `Snapshot` over resources that are already in memory."""

    def __init__(self, resources: Sequence[pb.Resource]) -> None:
        self._resources = resources
        self._taken = 0

    async def next(self) -> list[pb.Resource]:
        chunk = list(self._resources[self._taken : self._taken + SNAPSHOT_CHUNK])
        self._taken += len(chunk)
        return chunk
