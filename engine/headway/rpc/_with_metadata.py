"""A channel that adds metadata, such as the caller's token, to every call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from headway.rpc._channel import Channel, Metadata

Reply = TypeVar("Reply")


class WithMetadata:
    """A wrapper around a channel that adds metadata to every call. A call's own metadata takes precedence."""

    def __init__(self, inner: Channel, metadata: Metadata) -> None:
        self._inner = inner
        self._metadata = dict(metadata)

    @property
    def knows_outcomes(self) -> bool:
        """The value of the inner channel."""
        return self._inner.knows_outcomes

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Call a unary method with the added metadata, and return the reply."""
        return await self._inner.unary(path, request, reply_type, metadata={**self._metadata, **(metadata or {})})

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a server stream with the added metadata."""
        return self._inner.stream(path, request, metadata={**self._metadata, **(metadata or {})})


def _meets_the_protocol(inner: Channel) -> Channel:
    return WithMetadata(inner, {})
