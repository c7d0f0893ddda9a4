"""How a client's writes go out, and who hears of their outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from headway.errors import OutcomeUnknown
from headway.resource import Key, Position, ResourceType, pb


class Acknowledged(NamedTuple):
    """The answer to a write. A WriteStatus and a Delete may have found it so already, at another writer's revision.

    Attributes:
        stored: what bears the key at ``position``; None: nothing does.
        status_key: that of a WriteStatus.
        deleted: it was a Delete.
    """

    type: ResourceType[Any]
    key: Key
    stored: pb.Resource | None
    position: Position
    status_key: str = ""
    deleted: bool = False


class Writes(Protocol):
    """What stands behind the writes of a client. A controller's run fences them and keeps its cache in step (C5)."""

    @property
    def fence(self) -> pb.Fence | None:
        """What the next write carries."""
        ...

    @property
    def store_id(self) -> str:
        """The store that the writer's view is of: any other one refuses its writes. Empty: whichever it is."""
        ...

    def acknowledged(self, write: Acknowledged) -> None:
        """A write was answered. Called before the call returns to its caller, without a checkpoint between."""
        ...

    async def wait_shown(self, type: ResourceType[Any], revision: int) -> None:
        """Return when what the writer caches of other versions of the type's kind shows a write of this revision."""
        ...

    def unknown(self, error: OutcomeUnknown | None) -> None:
        """A write may have happened: it failed oddly, or (None) was cancelled half-way."""
        ...

    def refused(self, fence: pb.Fence | None) -> None:
        """A write that carried this fence was refused, because the stored one is higher."""
        ...


Allow = Callable[[str, Any], None]
"""``allow(method, request)`` raises when the client's owner may not make this call."""


class PlainWrites:
    """Meets `Writes` for a client that is no controller's: no fence, nobody to tell."""

    fence = None
    store_id = ""

    def acknowledged(self, write: Acknowledged) -> None:
        """Tell nobody."""

    async def wait_shown(self, type: ResourceType[Any], revision: int) -> None:
        """Wait for nothing: nothing is cached."""

    def unknown(self, error: OutcomeUnknown | None) -> None:
        """Tell nobody; the caller gets the error."""

    def refused(self, fence: pb.Fence | None) -> None:
        """Tell nobody; likewise."""


def _meets_the_protocol() -> Writes:
    return PlainWrites()
