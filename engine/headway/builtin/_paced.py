"""A channel whose streams are read at intervals, so that not every commit of a store wakes their readers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

import trio

from headway.resource import Bookmark, Changes
from headway.rpc import Channel, Metadata

Reply = TypeVar("Reply")


class PacedChannel(Channel):
    """A channel. Items within ``seconds`` of a stream's last item are read together later.

    The engine's own controllers watch types that rarely change. Without this, every write of any resource would wake
    each of them just to learn that nothing relevant happened.
    """

    def __init__(self, inner: Channel, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    @property
    def knows_outcomes(self) -> bool:
        """True if the inner channel knows the outcome of every call."""
        return self._inner.knows_outcomes

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Make a call without delay."""
        return await self._inner.unary(path, request, reply_type, metadata=metadata)

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream that is read at intervals."""
        return _PacedStream(self._inner.stream(path, request, metadata=metadata), self._seconds)


class _PacedStream:
    def __init__(self, opened: AbstractAsyncContextManager[AsyncIterator[Any]], seconds: float) -> None:
        self._opened = opened
        self._seconds = seconds
        self._items: AsyncIterator[Any]
        # When the next item may be requested. A stream that is not being read is not woken.
        self._next_at = -float("inf")

    async def __aenter__(self) -> AsyncIterator[Any]:
        self._items = await self._opened.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, traceback)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        await trio.sleep_until(self._next_at)
        item = await self._items.__anext__()
        if isinstance(item, Bookmark | Changes):
            self._next_at = trio.current_time() + self._seconds
        return item
