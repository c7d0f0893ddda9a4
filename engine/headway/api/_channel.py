"""The protocol of channels: what reaches the services of a process, by the paths of their methods."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

Metadata = Mapping[str, str]
Reply = TypeVar("Reply")


class Lagging(Exception):
    """The server of a stream lags behind the others. A reader raises it to leave the block of `Channel.stream`."""


class Channel(Protocol):
    """A way to call services.

    A failed call raises the error of the service, or `Interrupted` if it may have had an effect. Each error is one of a
    call (`of_call`): a reader of a stream takes any other for an error of its own code, and does not go on.
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


def timeout_of(channel: object) -> float:
    """Return the timeout of the channel's calls in seconds. Within a process they have none: it is infinity."""
    seconds: float = getattr(channel, "timeout", math.inf)
    return seconds
