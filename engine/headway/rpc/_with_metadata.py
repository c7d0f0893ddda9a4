"""A channel that sends something along with every call: who the caller is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from headway.rpc._channel import Channel, Metadata

Reply = TypeVar("Reply")


class WithMetadata:
    """Meets `Channel`. What a call brings along itself goes before what is sent with all."""

    def __init__(self, inner: Channel, metadata: Metadata) -> None:
        self._inner = inner
        self._metadata = dict(metadata)

    @property
    def knows_outcomes(self) -> bool:
        """See `Channel`."""
        return self._inner.knows_outcomes

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """See `Channel`."""
        return await self._inner.unary(path, request, reply_type, metadata={**self._metadata, **(metadata or {})})

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """See `Channel`."""
        return self._inner.stream(path, request, metadata={**self._metadata, **(metadata or {})})


def _meets_the_protocol(inner: Channel) -> Channel:
    return WithMetadata(inner, {})
