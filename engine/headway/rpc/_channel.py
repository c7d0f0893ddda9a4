"""What a channel is: unary calls and server streams by method path, whatever carries them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

Metadata = Mapping[str, str]

Reply = TypeVar("Reply")


class Lagging(Exception):
    """Raised by a reader inside a stream's block, to leave it: the server lags. See `Channel.stream`."""


class Channel(Protocol):
    """A way to call services. Every failure is a ``grpclib.GRPCError`` with the status the service gave; a `NotBegun`
    where it is certain that nothing has been done.

    Attributes:
        knows_outcomes: whether a call that is cancelled or fails has certainly had no effect unless it said
            otherwise. True in process, where cancellation is delivered only when the outcome is known; over a
            network an error may hide a success.
    """

    @property
    def knows_outcomes(self) -> bool:
        """See above."""
        ...

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """One request, one reply."""
        ...

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """One request, many replies. Leaving the block ends the stream.

        Left by `Lagging`, which goes on outwards, a channel that has several servers opens its next streams at
        another one, for a time.
        """
        ...
