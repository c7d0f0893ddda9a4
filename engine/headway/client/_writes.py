"""The interface between a client's writes and their owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from headway.errors import OutcomeUnknown
from headway.resource import Key, Position, ResourceType, pb


class Acknowledged(NamedTuple):
    """The reply to a write.

    A WriteStatus or Delete that had nothing to change was not committed. Its reply may be of another writer's revision.

    Attributes:
        stored: the resource with this key at ``position``, or None if it did not exist.
        position: the store's position in the reply.
        status_key: the key of the status, if it was a WriteStatus.
        deleted: True if it was a Delete.
        unchanged: True if the write had nothing to change. Servers before this field do not tell it of a WriteStatus.
    """

    type: ResourceType[Any]
    key: Key
    stored: pb.Resource | None
    position: Position
    status_key: str = ""
    deleted: bool = False
    unchanged: bool = False


def stored_in(reply: Any) -> pb.Resource | None:
    """Return the stored resource in a reply. A server may remove it at once with its last finalizer: no version."""
    return None if reply.resource is None or not reply.resource.version else reply.resource


class WaitsForTurn(Protocol):
    """A limit on the rate of writes."""

    async def wait(self) -> None:
        """Wait until the next write may be made."""
        ...


class Writes(Protocol):
    """The owner of a client's writes. A controller's run fences them and keeps its cache up to date with them (C5)."""

    @property
    def governor(self) -> WaitsForTurn | None:
        """The limit on the rate of writes, or None. Nothing of a write has been decided before its turn."""
        ...

    @property
    def fence(self) -> pb.Fence | None:
        """The fence that the next write carries, or None."""
        ...

    @property
    def store_id(self) -> str:
        """The id of the store that the writer has read. Any other store rejects its writes. Empty means any store."""
        ...

    def acknowledged(self, write: Acknowledged) -> None:
        """Handle the reply to a write. It is called without a checkpoint before the client's method returns."""
        ...

    async def wait_cached(self, type: ResourceType[Any], revision: int) -> None:
        """Wait until the writer's caches of other versions of this kind contain the write of this revision."""
        ...

    def unknown(self, error: OutcomeUnknown | None, request: Any = None) -> None:
        """Handle a write with an unknown outcome. ``error`` is None after a cancellation or an unexpected exception.

        ``request`` is the request of the write, if it is known.
        """
        ...

    def fenced(self, fence: pb.Fence | None) -> None:
        """Handle a write that was rejected because the stored fence is higher than this one."""
        ...


Allow = Callable[[Any], None]
"""A function called with the request of each call. It raises if the client's owner may not make this call."""
