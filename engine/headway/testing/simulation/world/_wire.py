"""A connection between a process and a server that can be cut or paused. A cut breaks everything under way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from headway.api import Code, Interrupted

Opened = AbstractAsyncContextManager[AsyncIterator[Any]]


class WireBroken(Interrupted):
    """A call did not get through, or got no reply. It may have taken effect."""


class Wire:
    """A wire that a channel's calls and streams go through.

    Attributes:
        up: True if calls come through.
    """

    def __init__(self) -> None:
        self.up = True
        self._open: set[trio.CancelScope] = set()
        # The number of pauses in force, and the event that the end of the last one sets.
        self._pauses = 0
        self._going_on = trio.Event()

    def break_all(self) -> None:
        """Break all calls and streams under way."""
        for scope in list(self._open):
            scope.cancel()

    def cut(self) -> None:
        """Let nothing through anymore, and break everything under way."""
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
        """Hold everything back until a matching call of `go_on`; nothing breaks."""
        self._pauses += 1

    def go_on(self) -> None:
        """End one pause."""
        self._pauses -= 1
        if not self._pauses:
            self._going_on.set()
            self._going_on = trio.Event()

    async def _paused(self) -> None:
        # Shielded, because a paused process does not run and so cannot be canceled.
        while self._pauses:
            with trio.CancelScope(shield=True):
                await self._going_on.wait()

    async def through(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call that waits while the wire is paused and fails if the wire breaks."""
        await self._paused()
        if not self.up:
            await trio.lowlevel.checkpoint()
            raise WireBroken(Code.UNAVAILABLE, "the process is cut off")
        with trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                answer = await call()
                await self._paused()
                return answer
            finally:
                self._open.discard(scope)
        raise WireBroken(Code.UNAVAILABLE, "the connection broke")


class WireStream:
    """A stream whose items come through a wire. ``note`` is called with each item."""

    def __init__(self, wire: Wire, opened: Opened, note: Callable[[Any], None] = lambda _: None) -> None:
        self._wire = wire
        self._opened = opened
        self._note = note

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
        self._note(item)
        return item


class ListCall:
    """A stream whose items are read at once when it is opened, by a call that returns them all."""

    def __init__(self, read: Callable[[], Awaitable[list[Any]]]) -> None:
        self._read = read
        self._items: Iterator[Any] = iter(())

    async def __aenter__(self) -> AsyncIterator[Any]:
        self._items = iter(await self._read())
        return self

    async def __aexit__(self, *why: Any) -> bool | None:
        return None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        for item in self._items:
            return item
        raise StopAsyncIteration
