"""The items of a stream that a test changes on their way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any


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
