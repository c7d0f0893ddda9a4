"""Hypercorn's connection without HTTP/2, whose streams and headers no limit of the server would bound.

Hypercorn has no option for this: it changes to HTTP/2 whenever a client offers that, or begins with it. Only its parser
knows where a request begins, so no wrapper of the byte stream can refuse it. The connection therefore replaces the
protocol of Hypercorn before the first byte is read.
"""

from __future__ import annotations

import h11
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
    async def _read_data(self) -> None:
        made = self.protocol
        if not isinstance(made.protocol, H11Protocol):
            # The TLS context has agreed on HTTP/2.
            raise NotHttp1
        of = (made.app, made.config, made.context, made.task_group, made.state)
        made.protocol = _Http1(*of, made.ssl, made.client, made.server, made.send)
        await super()._read_data()


class _Http1(H11Protocol):
    @override
    async def _check_protocol(self, event: h11.Request) -> None:
        if event.http_version == b"2.0":
            await self._send_error_response(_VERSION_NOT_SUPPORTED)
            raise NotHttp1
