"""A way between a process and a server that can be cut: what is under way breaks then, and nothing comes through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Status

Opened = AbstractAsyncContextManager[AsyncIterator[Any]]


class Wire:
    """What a channel's calls and streams go through.

    Attributes:
        up: whether it is whole.
    """

    def __init__(self) -> None:
        self.up = True
        self._open: set[trio.CancelScope] = set()
        # How often it is paused just now, and what is set when it isn't any more.
        self._pauses = 0
        self._going_on = trio.Event()

    def break_all(self) -> None:
        """Break what is under way."""
        for scope in list(self._open):
            scope.cancel()

    def cut(self) -> None:
        """Nothing comes through from now on, and what is under way breaks."""
        self.up = False
        self.break_all()

    def mend(self) -> None:
        """Let calls through again."""
        self.up = True

    @property
    def paused(self) -> bool:
        """True while nothing leaves or arrives."""
        return self._pauses > 0

    def pause(self) -> None:
        """Nothing leaves or arrives until `go_on` is called as often; nothing breaks."""
        self._pauses += 1

    def go_on(self) -> None:
        """One pause is over."""
        self._pauses -= 1
        if not self._pauses:
            self._going_on.set()
            self._going_on = trio.Event()

    async def _paused(self) -> None:
        # Shielded, as what doesn't run isn't cancelled either.
        while self._pauses:
            with trio.CancelScope(shield=True):
                await self._going_on.wait()

    async def through(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call that breaks with the wire, and waits while it is paused."""
        await self._paused()
        if not self.up:
            await trio.lowlevel.checkpoint()
            raise GRPCError(Status.UNAVAILABLE, "the process reaches nothing")
        with trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                answer = await call()
                await self._paused()
                return answer
            finally:
                self._open.discard(scope)
        raise GRPCError(Status.UNAVAILABLE, "the connection broke")


class WireStream:
    """A stream whose items come through a wire; ``heard`` is called with each."""

    def __init__(self, wire: Wire, opened: Opened, heard: Callable[[Any], None] = lambda _: None) -> None:
        self._wire = wire
        self._opened = opened
        self._heard = heard

    async def __aenter__(self) -> AsyncIterator[Any]:
        self._items = await self._opened.__aenter__()
        return self

    async def __aexit__(self, *why: Any) -> bool | None:
        return await self._opened.__aexit__(*why)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        item = await self._wire.through(lambda: anext(self._items, None))
        if item is None:
            raise StopAsyncIteration
        self._heard(item)
        return item
