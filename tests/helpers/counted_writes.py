"""The owner of a client's writes, reduced to a count of the reported unknown outcomes."""

from __future__ import annotations

from typing import Any

from headway.client import Acknowledged
from headway.errors import OutcomeUnknown
from headway.resource import ResourceType, pb


class CountedWrites:
    """An implementation of `client.Writes` without a fence and without a cache."""

    fence: pb.Fence | None = None
    store_id = ""
    governor = None

    def __init__(self) -> None:
        self.unknowns = 0

    def acknowledged(self, write: Acknowledged) -> None:
        pass

    async def wait_cached(self, type: ResourceType[Any], revision: int) -> None:
        pass

    def unknown(self, error: OutcomeUnknown | None, request: Any = None) -> None:  # noqa: ARG002  # only the number counts
        self.unknowns += 1

    def fenced(self, fence: pb.Fence | None) -> None:
        pass
