"""The input of a connection, which waits for its turn, and a TLS handshake within a time and a number of bytes."""

from __future__ import annotations

import math
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Hashable

import trio
from typing_extensions import override

from headway.http._bounds import Bounds


async def handshaken(stream: Input, context: ssl.SSLContext, bounds: Bounds) -> trio.SSLStream[Input]:
    """Return the encrypted stream of a connection whose handshake is finished.

    Raises:
        trio.TooSlowError: it took too long.
        trio.BrokenResourceError: the peer sent too much, or nothing of TLS.
    """
    stream.left = bounds.handshake_size
    encrypted = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
    with trio.fail_after(bounds.handshake):
        await encrypted.do_handshake()
    stream.left = math.inf
    return encrypted


class Input(trio.abc.HalfCloseableStream):
    """A connection whose input waits for its turn, and which breaks when it needs more than ``left`` bytes.

    Args:
        turn: waits for the turn of the connection, for everything after its first input.
    """

    def __init__(self, stream: trio.SocketStream, turn: Callable[[], Awaitable[None]]) -> None:
        self.left = math.inf
        self.socket = stream.socket
        self._stream = stream
        self._turn = turn
        self._first = True

    @override
    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self.left != math.inf:
            if not self.left:
                raise trio.BrokenResourceError("the handshake has too many bytes")
            # With its last part of a handshake, a client sends its first request, which may be large.
            max_bytes = min(max_bytes or int(self.left), int(self.left))
        data = await self._stream.receive_some(max_bytes)
        self.left -= len(data)
        if data and not self._first:
            await self._turn()
        self._first = False
        return data

    @override
    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    @override
    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    @override
    async def send_eof(self) -> None:
        await self._stream.send_eof()

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()


# The turns of the loop between two that go on: a request takes some twelve turns, and others would otherwise work in
# each of them.
_APART = 4


class InputTurns:
    """The turns of the connections whose input waits to be handled.

    One goes on at a time, and groups of connections take turns.
    """

    def __init__(self) -> None:
        # The next one of each group is the first, and the next group is the first.
        self._waiting: dict[Hashable, deque[trio.Event]] = {}
        self._taken = False

    async def take(self, group: Hashable, *, first: bool = False) -> None:
        """Wait for the turn of a connection: as the last one of its group, or as the first one."""
        if not self._taken:
            self._taken = True
            try:
                await trio.lowlevel.checkpoint()
            finally:
                self._pass_on()
            return
        waiting, turn = self._waiting.setdefault(group, deque()), trio.Event()
        (waiting.appendleft if first else waiting.append)(turn)
        try:
            await turn.wait()
            for _ in range(_APART):
                await trio.lowlevel.checkpoint()
        finally:
            if turn.is_set():
                self._pass_on()
            else:
                waiting.remove(turn)
                if not waiting:
                    del self._waiting[group]

    def _pass_on(self) -> None:
        self._taken = bool(self._waiting)
        if self._taken:
            group = next(iter(self._waiting))
            waiting = self._waiting.pop(group)
            waiting.popleft().set()
            if waiting:
                self._waiting[group] = waiting
