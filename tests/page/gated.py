"""A channel whose snapshots arrive piece by piece, as the test lets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import trio

from headway.resource import ResourceType, SnapshotChunk
from headway.rpc import Channel, Metadata

Reply = TypeVar("Reply")


class GatedSnapshots:
    """Holds back each piece of the snapshots of a type, until the test lets it pass."""

    def __init__(self, type: ResourceType[Any]) -> None:
        self._type = type
        self._passes = trio.Semaphore(0)
        self._open = False

    def let_pass(self) -> None:
        """Let one piece pass."""
        self._passes.release()

    def release(self) -> None:
        """Let everything pass."""
        self._open = True
        self._passes.release()

    def over(self, inner: Channel) -> Channel:
        """Return the channel, for ``headway.testing.open_engine(wrap_channel=...)``."""
        return _Gated(inner, self)

    async def wait(self, item: Any) -> None:
        """Wait until an item may pass."""
        if isinstance(item, SnapshotChunk) and not self._open:
            await self._passes.acquire()

    def concerns(self, request: Any) -> bool:
        """Return True for a stream of the type."""
        asked = getattr(request, "type", None)
        return asked is not None and asked.kind == self._type.name.kind


class _Gated:
    def __init__(self, inner: Channel, gate: GatedSnapshots) -> None:
        self._inner = inner
        self._gate = gate

    @property
    def knows_outcomes(self) -> bool:
        return self._inner.knows_outcomes

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        return await self._inner.unary(path, request, reply_type, metadata=metadata)

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        inner = self._inner.stream(path, request, metadata=metadata)
        return self._held(inner) if self._gate.concerns(request) else inner

    @asynccontextmanager
    async def _held(self, inner: AbstractAsyncContextManager[AsyncIterator[Any]]) -> AsyncIterator[AsyncIterator[Any]]:
        async with inner as items:
            yield _Items(items, self._gate)


class _Items:
    """The items of a stream. (An async generator would have to be closed within its task.)"""

    def __init__(self, items: AsyncIterator[Any], gate: GatedSnapshots) -> None:
        self._items = items
        self._gate = gate

    def __aiter__(self) -> _Items:
        return self

    async def __anext__(self) -> Any:
        item = await anext(self._items)
        await self._gate.wait(item)
        return item


class Kept:
    """A store that stays open when an engine closes it."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    async def __aenter__(self) -> Any:
        """Return the store."""
        return self._backend

    async def __aexit__(self, *_: object) -> None:
        """Leave it open."""
