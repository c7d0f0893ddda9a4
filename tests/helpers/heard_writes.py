"""The owner of a client's writes, reduced to a record of what it was told."""

from __future__ import annotations

from typing import Any

from headway.client import Acknowledged
from headway.errors import OutcomeUnknown
from headway.resource import Key, Position, ResourceType, pb


class Heard:
    """An implementation of `Writes` that records its calls."""

    governor: Any = None

    def __init__(self, fence: pb.Fence | None = None, store_id: str = "") -> None:
        self.fence = fence
        self.store_id = store_id
        self.acknowledgements: list[tuple[ResourceType[Any], Key, pb.Resource | None, Position]] = []
        self.unknowns: list[OutcomeUnknown | None] = []
        self.refusals: list[pb.Fence | None] = []

    def acknowledged(self, write: Acknowledged) -> None:
        self.acknowledgements.append(write[:4])

    async def wait_cached(self, type: ResourceType[Any], revision: int) -> None:
        pass

    def unknown(self, error: OutcomeUnknown | None, request: Any = None) -> None:  # noqa: ARG002  # only the error
        self.unknowns.append(error)

    def fenced(self, fence: pb.Fence | None) -> None:
        self.refusals.append(fence)
