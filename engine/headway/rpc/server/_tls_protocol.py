"""TLS for an accepted connection, based on asyncio's protocol, with a shared read buffer and with limits."""

from __future__ import annotations

import contextlib
import ssl
from asyncio.sslproto import SSLProtocol, SSLProtocolState
from collections.abc import Callable
from typing import Any

from headway.rpc.http2 import MOST_DISCARDED, Http2Protocol

READ_AT_ONCE = 64 << 10
"""The bytes to read from one connection at once, with and without TLS. asyncio reads 256 KiB."""

# The bytes to read at first, and from a peer that sends small records. They have room for 150 key changes, which take
# a few milliseconds. A full read doubles the size.
_LEAST = 4 << 10
# A record of fewer bytes is small.
_SMALL = 64
_HEADER = 5
# The cost of a record after the end, in bytes. Decrypting it takes as long as discarding this many bytes.
_RECORD = 4 << 10


class Records:
    """A counter of the TLS records in a stream of bytes. It reads only their headers, which are not encrypted."""

    __slots__ = ("_header", "_left")

    def __init__(self) -> None:
        self._header = b""
        # The bytes missing from the incomplete record.
        self._left = 0

    def count(self, data: memoryview) -> int:
        """Return the number of records that end in the data."""
        ended, at, size = 0, self._left, len(data)
        if 0 < at <= size:
            ended = 1
        while at < size:
            header = self._header + data[at : at + _HEADER - len(self._header)]
            at += len(header) - len(self._header)
            if len(header) < _HEADER:
                self._header = header
                break
            self._header = b""
            at += int.from_bytes(header[3:], "big")
            ended += at <= size
        self._left = max(at - size, 0)
        return ended


class TlsProtocol(SSLProtocol):
    """The server's side of TLS on one connection.

    Args:
        loop: asyncio's loop.
        protocol: the protocol that starts after the handshake.
        context: the settings of the connection.
        certificate: a context with the certificate and the CA certificates to use. It may be ``context``.
        handshake_size: the maximum size of a handshake in bytes.
        handshake_timeout: the maximum duration of a handshake in seconds.
        buffer: a buffer of `READ_AT_ONCE` bytes, shared by all connections of a loop. TLS consumes the bytes before the
            next connection reads. asyncio would allocate 256 KiB for each connection.
        lost: called when the connection is lost. ``protocol`` is not notified if that happens during the handshake.
    """

    max_size = READ_AT_ONCE
    # The `Http2Protocol`. asyncio forgets it when the connection is lost; a reference of our own would close a cycle.
    _app_protocol: Any
    _app_reading_paused: bool
    _call_eof_received: Callable[[], None]
    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    _ssl_buffer_view: memoryview
    _sslobj: ssl.SSLObject
    _start_shutdown: Callable[[], None]
    _state: SSLProtocolState
    _transport: Any

    def __init__(
        self,
        loop: Any,
        protocol: Http2Protocol,
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
        # The bytes that may wait while the protocol does not read. asyncio's limit is 256 KiB.
        self._set_read_buffer_limits(READ_AT_ONCE)  # type: ignore[attr-defined]  # it is private
        self._left = handshake_size
        self._lost = lost
        self._records = Records()
        # The number of records without content that have not been charged yet.
        self._empty = 0
        self._room = _LEAST
        # The cost of what has arrived after the end, in bytes.
        self._discarded = 0

    def get_buffer(self, n: int) -> memoryview:
        """Return the part of the buffer to read into."""
        return super().get_buffer(n)[: self._room]

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt the bytes in the buffer. Abort the connection if its handshake is too long."""
        state = self._state
        records = self._records.count(self._ssl_buffer_view[:nbytes])
        self._empty += records
        super().buffer_updated(nbytes)
        if self._state is SSLProtocolState.DO_HANDSHAKE:
            self._left -= nbytes
            if self._left < 0:
                self._transport.abort()
        elif state is SSLProtocolState.DO_HANDSHAKE:
            # The records of the handshake were charged by their bytes.
            self._empty = 0
        elif state is SSLProtocolState.WRAPPED:
            self._charge()
            if records * _SMALL > nbytes:
                self._room = _LEAST
            elif nbytes == self._room:
                self._room = min(2 * nbytes, READ_AT_ONCE)
        else:
            self._discarded += nbytes + records * _RECORD
            if self._discarded > MOST_DISCARDED:
                self._transport.abort()

    def _charge(self) -> None:
        """Charge the peer for records without content. They can't be recognized while reading is paused."""
        if self._empty and not self._app_reading_paused:
            empty, self._empty = self._empty, 0
            self._app_protocol.receive_empty_records(empty)

    def _do_read__copied(self) -> None:
        # Replaces asyncio's method, in order to count the records with content: each one is a separate read.
        pieces = []
        open = True
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLSyscallError):
            while piece := self._sslobj.read(READ_AT_ONCE):
                pieces.append(piece)
            open = False
        self._empty -= len(pieces)
        if pieces:
            self._app_protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if not open:
            self._call_eof_received()
            self._start_shutdown()

    def _on_shutdown_complete(self, shutdown_exc: BaseException | None) -> None:
        if not isinstance(shutdown_exc, ssl.SSLError):
            super()._on_shutdown_complete(shutdown_exc)  # type: ignore[misc]  # it is private
            return
        # The peer was still sending when it was told of the end, and OpenSSL does not go on after that. asyncio would
        # break the connection off, and with unread input a socket discards the last words that the peer has not read.
        # So only our half is closed, and what still arrives is discarded, as without TLS.
        self._process_outgoing()
        self._incoming.read()
        self._transport.write_eof()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Report the loss of the connection."""
        super().connection_lost(exc)
        self._lost()

    def _process_outgoing(self) -> None:
        # asyncio would log each write to a connection that has just been reset.
        if self._transport is not None and self._transport.is_closing():
            self._outgoing.read()
            return
        super()._process_outgoing()  # type: ignore[misc]  # it is private
