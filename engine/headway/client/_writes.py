"""How a client's writes go out, and who hears of their outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headway.errors import OutcomeUnknown
from headway.resource import Key, Position, ResourceType, pb


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

    def acknowledged(
        self,
        type: ResourceType[Any],
        key: Key,
        stored: pb.Resource | None,
        position: Position,
        *,
        status_key: str = "",
        deleted: bool = False,
    ) -> None:
        """A write was answered: at ``position`` this is what bears the name; None: nothing does.

        ``status_key`` is that of a WriteStatus, and ``deleted`` says that it was a Delete: those two may have found it
        so already, and a revision that is another writer's. Called before the call returns to its caller, without a
        checkpoint between.
        """
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

    def acknowledged(
        self,
        type: ResourceType[Any],
        key: Key,
        stored: pb.Resource | None,
        position: Position,
        *,
        status_key: str = "",
        deleted: bool = False,
    ) -> None:
        """Tell nobody."""

    def unknown(self, error: OutcomeUnknown | None) -> None:
        """Tell nobody; the caller gets the error."""

    def refused(self, fence: pb.Fence | None) -> None:
        """Tell nobody; likewise."""


def _meets_the_protocol() -> Writes:
    return PlainWrites()
