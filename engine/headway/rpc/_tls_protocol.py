"""TLS of an accepted connection, on asyncio's protocol: without a buffer for each connection, and bounded."""

from __future__ import annotations

import ssl
from asyncio.sslproto import SSLProtocol, SSLProtocolState
from collections.abc import Callable
from typing import Any

READ_AT_ONCE = 64 << 10
"""Bytes of TLS that are read from one connection at once."""


class TlsProtocol(SSLProtocol):
    """The server's side of TLS on one connection.

    Args:
        loop: asyncio's.
        protocol: speaks through it once the handshake is done.
        context: how the connection is encrypted.
        certificate: a context whose certificate and authorities count in place of those of ``context``.
        handshake_size: bytes that the handshake may take.
        handshake_timeout: seconds that it may take.
        buffer: `READ_AT_ONCE` bytes that all connections of a loop read into. What is there is taken before the next
            connection reads. asyncio has 256 KiB for each connection from its first byte on.
        lost: called when the connection is lost, also during its handshake, of which ``protocol`` hears nothing.
    """

    max_size = READ_AT_ONCE
    _outgoing: ssl.MemoryBIO
    _sslobj: ssl.SSLObject
    _state: SSLProtocolState
    _transport: Any

    def __init__(
        self,
        loop: Any,
        protocol: Any,
        context: ssl.SSLContext,
        certificate: ssl.SSLContext,
        *,
        handshake_size: int,
        handshake_timeout: float,
        buffer: bytearray,
        lost: Callable[[], None],
    ) -> None:
        timeout: Any = handshake_timeout
        no_waiter: Any = None
        super().__init__(loop, protocol, context, no_waiter, server_side=True, ssl_handshake_timeout=timeout)
        if certificate is not context:
            self._sslobj.context = certificate
        self._ssl_buffer = buffer
        self._ssl_buffer_view = memoryview(buffer)
        self._left = handshake_size
        self._lost = lost

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has been read, and give up a peer whose handshake does not end."""
        super().buffer_updated(nbytes)
        if self._state is SSLProtocolState.DO_HANDSHAKE:
            self._left -= nbytes
            if self._left < 0:
                self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is gone, whoever ended it."""
        super().connection_lost(exc)
        self._lost()

    def _process_outgoing(self) -> None:
        # asyncio logs each write to a connection that the peer has reset and that is not noted as lost yet.
        if self._transport is not None and self._transport.is_closing():
            self._outgoing.read()
            return
        super()._process_outgoing()  # type: ignore[misc]  # it is private
