"""The input of a connection, which waits for its turn, and a TLS handshake within a time and a number of bytes."""

from __future__ import annotations

import math
import ssl
from collections.abc import Awaitable, Callable

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
    """A connection whose input waits for its turn, and which breaks when more than ``left`` bytes have been received.

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
        data = await self._stream.receive_some(max_bytes)
        self.left -= len(data)
        if self.left < 0:
            raise trio.BrokenResourceError("the handshake has too many bytes")
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
