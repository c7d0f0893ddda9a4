"""A channel whose streams replay scripts with pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import trio

from headway.resource import Position, StreamItem, position
from headway.rpc import Metadata
from headway.service import WATCH_LIST
from tests.helpers.items import Items

Reply = TypeVar("Reply")


Line = Any
"""An item of the stream, an exception with which it ends, or an async function to wait for."""

SILENCE = trio.sleep_forever


def pause(seconds: float) -> Callable[[], Awaitable[None]]:
    """Return a pause of the stream."""
    return partial(trio.sleep, seconds)


class Opening(NamedTuple):
    """The request of a stream: its time, the position to resume after, and the milliseconds between bookmarks.

    `known` is the position that the store must have reached, if it differs from the position to resume after.
    """

    time: float
    resume_after: Position | None
    interval: int
    known: Position | None


class ScriptedChannel:
    """A channel on which each opened stream plays the next script. Without a script left, streams are silent.

    Attributes:
        openings: the streams that were opened.
        left_by: the errors with which the streams were left, in order.
        open: the number of streams that are open now.
    """

    path = WATCH_LIST
    knows_outcomes = True

    def __init__(self, scripts: Iterable[list[Line]]) -> None:
        self._scripts = list(scripts)
        self.openings: list[Any] = []
        self.open = 0
        self.left_by: list[type[BaseException]] = []

    def opening(self, request: Any) -> Any:
        """Return what is kept of the request of a stream."""
        asked = (position(request.resume_after), request.bookmark_interval_ms, position(request.known))
        return Opening(trio.current_time(), *asked)

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        raise NotImplementedError("a scripted channel has only streams")

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        assert path == self.path
        assert not metadata
        self.openings.append(self.opening(request))
        return self._opened(self._scripts.pop(0) if self._scripts else [SILENCE])

    @asynccontextmanager
    async def _opened(self, script: list[Line]) -> AsyncIterator[AsyncIterator[Any]]:
        self.open += 1
        try:
            yield Items(partial(_next, list(script)))
        except BaseException as error:
            self.left_by.append(type(error))
            raise
        finally:
            self.open -= 1


async def _next(script: list[Line]) -> StreamItem:
    await trio.lowlevel.checkpoint()
    while script:
        line = script.pop(0)
        if isinstance(line, Exception):
            raise line
        if not callable(line):
            item: StreamItem = line
            return item
        await line()
    raise StopAsyncIteration
