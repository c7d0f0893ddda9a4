"""TLS of an accepted connection, on asyncio's protocol: without a buffer for each connection, and bounded."""

from __future__ import annotations

import ssl
from asyncio.sslproto import SSLProtocol, SSLProtocolState
from collections.abc import Callable
from typing import Any

READ_AT_ONCE = 64 << 10
"""Bytes that are read from one connection at once, with TLS and without. asyncio reads 256 KiB."""


class TlsProtocol(SSLProtocol):
    """The server's side of TLS on one connection.

    Args:
        loop: asyncio's loop.
        protocol: the protocol that begins when the handshake is done.
        context: the settings of the connection.
        certificate: a context with the certificate and the authorities to use; it may be ``context``.
        handshake_size: the most bytes of a handshake.
        handshake_timeout: the most seconds of a handshake.
        buffer: `READ_AT_ONCE` bytes that all connections of a loop read into. TLS takes them before the next connection
            reads. asyncio has 256 KiB for each connection from its first byte on.
        lost: called when the connection is lost. ``protocol`` hears nothing if that is during the handshake.
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
        # Bytes that wait while the protocol does not read; asyncio has 256 KiB here, too.
        self._set_read_buffer_limits(READ_AT_ONCE)  # type: ignore[attr-defined]  # it is private
        self._left = handshake_size
        self._lost = lost

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt the bytes in the buffer, and give up a peer whose handshake is too long."""
        super().buffer_updated(nbytes)
        if self._state is SSLProtocolState.DO_HANDSHAKE:
            self._left -= nbytes
            if self._left < 0:
                self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        self._lost()

    def _process_outgoing(self) -> None:
        # asyncio would log each write to a connection that was reset a moment ago.
        if self._transport is not None and self._transport.is_closing():
            self._outgoing.read()
            return
        super()._process_outgoing()  # type: ignore[misc]  # it is private
