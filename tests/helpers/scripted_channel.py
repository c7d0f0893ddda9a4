"""A channel whose streams replay scripts with pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import trio

from headway.resource import Position, StreamItem, pb, position
from headway.rpc import Metadata

Reply = TypeVar("Reply")


@dataclass(frozen=True)
class Pause:
    """A pause of the stream, in seconds."""

    seconds: float


SILENCE = Pause(1e9)

Line = StreamItem | Exception | Pause


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

    knows_outcomes = True

    def __init__(self, scripts: Iterable[list[Line]]) -> None:
        self._scripts = list(scripts)
        self.openings: list[Opening] = []
        self.open = 0
        self.left_by: list[type[BaseException]] = []

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        raise NotImplementedError("a scripted channel has only streams")

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        assert path == "/headway.resource.v1.ResourceService/WatchList"
        assert isinstance(request, pb.WatchListRequest)
        assert not metadata
        asked = (position(request.resume_after), request.bookmark_interval_ms, position(request.known))
        self.openings.append(Opening(trio.current_time(), *asked))
        return self._opened(self._scripts.pop(0) if self._scripts else [SILENCE])

    @asynccontextmanager
    async def _opened(self, script: list[Line]) -> AsyncIterator[AsyncIterator[Any]]:
        self.open += 1
        try:
            yield _Lines(script)
        except BaseException as error:
            self.left_by.append(type(error))
            raise
        finally:
            self.open -= 1


class _Lines:
    def __init__(self, script: list[Line]) -> None:
        self._script = script

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> StreamItem:
        await trio.lowlevel.checkpoint()
        while self._script:
            line = self._script.pop(0)
            if isinstance(line, Exception):
                raise line
            if not isinstance(line, Pause):
                return line
            await trio.sleep(line.seconds)
        raise StopAsyncIteration
