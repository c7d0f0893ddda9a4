"""The TLS handshake of a connection, within a time and a number of bytes."""

from __future__ import annotations

import math
import ssl

import trio
from typing_extensions import override

from headway.http._bounds import Bounds


async def handshaken(stream: trio.SocketStream, context: ssl.SSLContext, bounds: Bounds) -> trio.SSLStream[Counted]:
    """Return the encrypted stream of a connection whose handshake is finished.

    Raises:
        trio.TooSlowError: it took too long.
        trio.BrokenResourceError: the peer sent too much, or nothing of TLS.
    """
    counted = Counted(stream, bounds.handshake_size)
    encrypted = trio.SSLStream(counted, context, server_side=True, https_compatible=True)
    with trio.fail_after(bounds.handshake):
        await encrypted.do_handshake()
    counted.left = math.inf
    return encrypted


class Counted(trio.abc.HalfCloseableStream):
    """A connection that breaks when more than ``left`` bytes have been received."""

    def __init__(self, stream: trio.SocketStream, left: float) -> None:
        self.left = left
        self.socket = stream.socket
        self._stream = stream

    @override
    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._stream.receive_some(max_bytes)
        self.left -= len(data)
        if self.left < 0:
            raise trio.BrokenResourceError("the handshake has too many bytes")
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
