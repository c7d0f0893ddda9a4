"""A channel to the subscribe service whose streams are lost, repeat themselves, or come from a server that lags."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from grpclib.const import Status

from headway.rpc import Channel
from headway.subscription import Commits
from tests.helpers.service_errors import failed


class FaultySubscription(Channel):
    """A channel over another one, with faults that a test sets.

    Attributes:
        drops: the number of items that are lost with their streams, from the next one on.
        status: the status of those losses; None for streams that end without one.
        repeats: the number of batches of commits that are delivered twice, from the next one on.
        behind: a channel to a server that lags, for the next streams.
        behind_for: the number of streams that it serves.
    """

    def __init__(self, inner: Channel) -> None:
        self.inner = inner
        self.drops = 0
        self.status: Status | None = Status.UNAVAILABLE
        self.repeats = 0
        self.behind: Channel | None = None
        self.behind_for = 0

    @property
    def knows_outcomes(self) -> bool:
        return False

    def heal(self) -> None:
        """End all faults."""
        self.drops = self.repeats = self.behind_for = 0
        self.behind = None

    async def unary(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def stream(self, path: str, request: Any, **_: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        channel = self.inner
        if self.behind is not None and self.behind_for:
            channel = self.behind
            self.behind_for -= 1
        return self._open(channel, path, request)

    @asynccontextmanager
    async def _open(self, channel: Channel, path: str, request: Any) -> AsyncIterator[AsyncIterator[Any]]:
        async with channel.stream(path, request) as items:
            yield _Items(items, self)


class _Items:
    def __init__(self, items: AsyncIterator[Any], channel: FaultySubscription) -> None:
        self._items = items
        self._channel = channel
        self._again: Any = None

    def __aiter__(self) -> _Items:
        return self

    async def __anext__(self) -> Any:
        channel = self._channel
        item, self._again = self._again or await anext(self._items), None
        if channel.drops:
            channel.drops -= 1
            if channel.status is None:
                raise StopAsyncIteration
            raise failed(channel.status, "lost")
        if channel.repeats and isinstance(item, Commits):
            channel.repeats -= 1
            self._again = item
        return item
