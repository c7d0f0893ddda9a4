"""An API server seen through a connection that a test delays, cuts, or lets lose answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from headway.api import Code, Interrupted
from headway.errors import HeadwayError
from headway.kubernetes._http import ApiServer


class GatedServer:
    """The API server behind a connection of the test.

    Attributes:
        calls: the methods and paths of all calls and watches so far.
        gate: the lines after the snapshot, of a watch that was opened while it was set, pass only when it is open.
        loses: the number of writes whose answers are lost from now on. Their calls are kept in ``late``.
        late: the writes that have not arrived yet: call `arrive`.
        refuses: the errors of the next calls, by method, each with their number.
        before_patches: called before each patch, as another program that is faster.
        refuses_reads_after_a_write: the error of each read that follows a write.
        written: True if the last call was a write.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.calls: list[tuple[str, str]] = []
        self.gate: trio.Event | None = None
        self.loses = 0
        self.arrives_at_once = True
        self.refuses_reads_after_a_write: HeadwayError | None = None
        self.written = False
        self.before_patches: Callable[[], Awaitable[object]] | None = None
        self.refuses: dict[str, tuple[int, HeadwayError]] = {}
        self.late: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """Make a call. Its answer may be lost."""
        self.calls.append((method, path))
        if method == "GET" and self.written and self.refuses_reads_after_a_write is not None:
            raise self.refuses_reads_after_a_write
        self.written = method != "GET"
        times, error = self.refuses.get(method, (0, None))
        if times and error is not None:
            self.refuses[method] = times - 1, error
            raise error
        if method == "PATCH" and self.before_patches is not None:
            await self.before_patches()
        if method == "GET" or not self.loses:
            return await self._server.call(method, path, **options)
        self.loses -= 1
        if self.arrives_at_once:
            await self._server.call(method, path, **options)
        else:
            self.late.append(((method, path), options))
        raise Interrupted(Code.UNAVAILABLE, "the test has lost the answer")

    async def arrive(self) -> list[BaseException | None]:
        """Let the late writes arrive, and return how each has ended."""
        ends: list[BaseException | None] = []
        for arguments, options in self.late:
            try:
                await self._server.call(*arguments, **options)
            except Exception as error:  # noqa: BLE001  # the test looks at it
                ends.append(error)
            else:
                ends.append(None)
        self.late.clear()
        return ends

    @asynccontextmanager
    async def watch(self, path: str, params: Any = None, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch behind the gate."""
        self.calls.append(("WATCH", path))
        gate = self.gate
        async with self._server.watch(path, params, **options) as lines:
            yield _Gated(lines, gate)


class _Gated:
    def __init__(self, lines: AsyncIterator[bytes], gate: trio.Event | None) -> None:
        self._lines = lines
        self._gate = gate
        self._live = False

    def __aiter__(self) -> _Gated:
        return self

    async def __anext__(self) -> bytes:
        line = await anext(self._lines)
        if self._gate is not None and self._live:
            await self._gate.wait()
        self._live = self._live or b"initial-events-end" in line
        return line
