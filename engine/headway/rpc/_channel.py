"""The channel protocol: unary calls and server streams by method path, independent of the transport."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

Metadata = Mapping[str, str]

Reply = TypeVar("Reply")


class Lagging(Exception):
    """The server of a stream lags behind the others. A reader raises it to leave the block of `Channel.stream`."""


class Channel(Protocol):
    """A way to call services.

    A failed call raises ``grpclib.GRPCError`` with the service's status, or its subclass `NotBegun` if the call
    certainly had no effect.
    """

    @property
    def knows_outcomes(self) -> bool:
        """True if a call that failed or was canceled certainly had no effect, unless its error says otherwise.

        It is True within a process, where a call is canceled only when its outcome is known. Over a network it is
        False: a call that succeeded may end with an error.
        """
        ...

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Send a request, wait for the reply and return it."""
        ...

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Send a request and iterate over the replies. Leaving the block ends the stream.

        If the block raises `Lagging`, a channel with several servers opens its next streams at another server for a
        while. The exception still propagates.
        """
        ...
