"""A channel whose snapshots arrive piece by piece, as the test lets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio
from typing_extensions import override

from headway.resource import ResourceType, SnapshotChunk
from headway.rpc import PassingChannel
from tests.helpers.items import taking


class GatedSnapshots(PassingChannel):
    """Holds back each piece of the snapshots of a type, until the test lets it pass."""

    def __init__(self, type: ResourceType[Any]) -> None:
        super().__init__()
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

    @override
    def stream(self, path: str, request: Any, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        inner = super().stream(path, request, **options)
        asked = getattr(request, "type", None)
        return inner if asked is None or asked.kind != self._type.name.kind else taking(inner, self._take)

    async def _take(self, items: AsyncIterator[Any]) -> Any:
        item = await anext(items)
        if isinstance(item, SnapshotChunk) and not self._open:
            await self._passes.acquire()
        return item
