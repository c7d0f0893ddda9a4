"""A channel that copies, so that callers may modify replies, and requests that they have sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from headway.rpc._channel import Channel, Metadata

Reply = TypeVar("Reply")


class CopyingChannel:
    """A wrapper around a channel that copies requests and replies.

    ``copy`` is called with messages and with the items of streams.
    """

    def __init__(self, channel: Channel, copy: Callable[[Any], Any]) -> None:
        self._channel = channel
        self._copy = copy

    @property
    def knows_outcomes(self) -> bool:
        """The value of the inner channel."""
        return self._channel.knows_outcomes

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Call a unary method with a copy of the request, and return a copy of the reply."""
        reply: Reply = self._copy(await self._channel.unary(path, self._copy(request), reply_type, metadata=metadata))
        return reply

    @asynccontextmanager
    async def _stream(self, path: str, request: object, metadata: Metadata | None) -> AsyncIterator[AsyncIterator[Any]]:
        async with self._channel.stream(path, self._copy(request), metadata=metadata) as items:
            yield _Copies(items, self._copy)

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a server stream with a copy of the request. It yields copies."""
        return self._stream(path, request, metadata)


class _Copies:
    def __init__(self, items: AsyncIterator[Any], copy: Callable[[Any], Any]) -> None:
        self._items = items
        self._copy = copy

    def __aiter__(self) -> _Copies:
        return self

    async def __anext__(self) -> Any:
        return self._copy(await self._items.__anext__())
