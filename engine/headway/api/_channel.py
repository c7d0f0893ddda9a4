"""Channels: what reaches the services of a process, by the paths of their methods."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self, TypeVar

from typing_extensions import override

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


class PassingChannel(Channel):
    """A channel over another one, which passes everything on. A subclass changes what it is about.

    Attributes:
        remote: True if a call that fails may have had an effect, as over a network.
    """

    remote = False
    _inner: Channel

    def __init__(self, inner: Channel | None = None) -> None:
        if inner is not None:
            self._inner = inner

    def over(self, inner: Channel) -> Self:
        """Put this channel over another one, and return it."""
        self._inner = inner
        return self

    @property
    def inner(self) -> Channel:
        """The channel below."""
        return self._inner

    @property
    @override
    def knows_outcomes(self) -> bool:
        return not self.remote and self.inner.knows_outcomes

    @property
    def timeout(self) -> float:
        """The timeout of the inner channel's calls."""
        return timeout_of(self.inner)

    @property
    def lasting_leases(self) -> bool:
        """True if leases held through the inner channel don't expire."""
        return bool(getattr(self.inner, "lasting_leases", False))

    @override
    async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Metadata | None = None) -> Any:
        return await self.inner.unary(path, request, reply_type, metadata=metadata)

    @override
    def stream(
        self, path: str, request: Any, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        return self.inner.stream(path, request, metadata=metadata)
