"""Hypercorn's connection without HTTP/2, whose streams and headers no limit of the server would bound."""

from __future__ import annotations

import h11
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from typing_extensions import override

_VERSION_NOT_SUPPORTED = 505


class NotHttp1(Exception):
    """The client speaks HTTP/2. Its connection is closed."""


class Http1Server(TCPServer):
    """A connection that serves HTTP/1.1 alone.

    A client that offers to upgrade to HTTP/2 is answered over HTTP/1.1, as if it had not (RFC 9110, section 7.8). One
    that begins with HTTP/2 gets 505 (HTTP Version Not Supported).
    """

    @override
    def __setattr__(self, name: str, value: object) -> None:
        # Hypercorn makes the protocol itself, and sets it once, when the connection begins.
        if isinstance(value, ProtocolWrapper):
            # The TLS context may have agreed on HTTP/2.
            if not isinstance(value.protocol, H11Protocol):
                raise NotHttp1
            value.protocol.__class__ = _Http1
        super().__setattr__(name, value)


class _Http1(H11Protocol):
    @override
    async def _check_protocol(self, event: h11.Request) -> None:
        if event.http_version == b"2.0":
            await self._send_error_response(_VERSION_NOT_SUPPORTED)
            raise NotHttp1
