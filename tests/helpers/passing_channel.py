"""A channel that passes everything on to another one. A subclass changes what its test is about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

from headway.rpc import Channel, Metadata, timeout_of


class PassingChannel(Channel):
    """A channel over another one, which is given here or to `over`. A test may put another one below it.

    Attributes:
        remote: True if calls that fail may have had an effect, as over a network.
    """

    inner: Channel
    remote = False

    def __init__(self, inner: Channel | None = None) -> None:
        if inner is not None:
            self.inner = inner

    def over(self, inner: Channel) -> Self:
        """Put this channel over another one. Pass this method as ``wrap_channel``."""
        self.inner = inner
        return self

    @property
    def knows_outcomes(self) -> bool:
        return not self.remote and self.inner.knows_outcomes

    @property
    def timeout(self) -> float:
        return timeout_of(self.inner)

    async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Metadata | None = None) -> Any:
        return await self.inner.unary(path, request, reply_type, metadata=metadata)

    def stream(
        self, path: str, request: Any, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        return self.inner.stream(path, request, metadata=metadata)


class Items:
    """The items that a function returns. (An async generator would have to be closed within its task.)"""

    def __init__(self, take: Callable[[], Awaitable[Any]]) -> None:
        self._take = take

    def __aiter__(self) -> Items:
        return self

    async def __anext__(self) -> Any:
        return await self._take()


@asynccontextmanager
async def taking(
    opened: AbstractAsyncContextManager[AsyncIterator[Any]], take: Callable[[AsyncIterator[Any]], Awaitable[Any]]
) -> AsyncIterator[AsyncIterator[Any]]:
    """Open a stream of the items that a function takes from the items of another one."""
    async with opened as items:
        yield Items(lambda: take(items))
