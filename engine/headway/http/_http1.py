"""Hypercorn's connection without HTTP/2, whose streams and headers no limit of the server would bound.

It is also stricter about the ends of lines, so that no proxy finds the end of a head at another place.

Hypercorn has no option for this: it changes to HTTP/2 whenever a client offers that, or begins with it. Only its parser
knows where a request begins, so no wrapper of the byte stream can refuse it. The connection therefore replaces the
protocol of Hypercorn before the first byte is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer
from hypercorn.events import Closed, Event
from hypercorn.protocol.events import Body
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import H11SendableEvent
from typing_extensions import override

Turn = Callable[[], Awaitable[None]]

_LINES = 256
"""The number of lines of a head or a trailer. h11 reads them in one step, which takes 15 µs for each."""

_CONTINUE = 100
_TOO_LARGE = 431
_VERSION_NOT_SUPPORTED = 505


class NotHttp1(Exception):
    """The client speaks HTTP/2. Its connection is closed."""


class _Gone(Exception):
    """The client has closed its connection. What it has sent before is not answered any more."""


class Http1Server(TCPServer):
    """A connection that serves HTTP/1.1 alone.

    A client that offers to upgrade to HTTP/2 is answered over HTTP/1.1, as if it had not (RFC 9110, section 7.8). One
    that begins with HTTP/2 gets 505 (HTTP Version Not Supported).

    Args:
        turn: waits for the turn of the connection. It is called for each request, and for each chunk of a body, that
            arrived together with the one before; the stream does so for each piece of its input.
    """

    def __init__(self, *of: Any, turn: Turn) -> None:
        super().__init__(*of)
        self._turn = turn

    async def ask_for_content(self) -> None:
        """Tell a client that waits for that (``Expect: 100-continue``) to send the content of its request."""
        if isinstance(self.protocol.protocol, _Http1):
            await self.protocol.protocol.ask_for_content()

    @override
    async def _read_data(self) -> None:
        made = self.protocol
        if not isinstance(made.protocol, H11Protocol):
            # The TLS context has agreed on HTTP/2.
            raise NotHttp1
        of = (made.app, made.config, made.context, made.task_group, made.state)
        made.protocol = _Http1(*of, made.ssl, made.client, made.server, made.send, turn=self._turn)
        await super()._read_data()


class _Lines(ReceiveBuffer):
    """h11's buffer, which refuses a head or a trailer that is too large, or has a line feed without a carriage return.

    h11 itself bounds only what has arrived of an incomplete one.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    @override
    def maybe_extract_lines(self) -> list[bytearray] | None:
        self._extracted = bytearray()
        lines = super().maybe_extract_lines()
        if len(self._extracted) > self._size or (lines is not None and len(lines) > _LINES):
            raise h11.RemoteProtocolError("a head or a trailer is too large", error_status_hint=_TOO_LARGE)
        if self._extracted.count(b"\n") != self._extracted.count(b"\r\n"):
            raise h11.RemoteProtocolError("a line ends without a carriage return", error_status_hint=400)
        return lines

    @override
    def _extract(self, count: int) -> bytearray:
        self._extracted = super()._extract(count)
        return self._extracted


class _Http1(H11Protocol):
    def __init__(self, *of: Any, turn: Turn) -> None:
        super().__init__(*of)
        lines = _Lines(self.config.h11_max_incomplete_size)
        self.connection._receive_buffer = lines  # type: ignore[union-attr]  # not a WebSocket yet
        self._gone = False
        self._turn = turn
        # True if the connection has just had a turn, for the input that has the next request or chunk.
        self._has_turn = False
        self._asks = False

    async def ask_for_content(self) -> None:
        if self.connection.they_are_waiting_for_100_continue:
            self._asks = True
            await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))
            self._asks = False

    @override
    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        # Hypercorn asks for the content as soon as it has the head. The application may refuse the request.
        if not isinstance(event, h11.InformationalResponse) or event.status_code != _CONTINUE or self._asks:
            await super()._send_h11_event(event)

    @override
    async def handle(self, event: Event) -> None:
        if isinstance(event, Closed):
            # An answer could not be sent.
            self._gone = True
        self._has_turn = True
        await super().handle(event)

    async def take_turn(self) -> None:
        """Wait for the turn of the connection, unless its input has just had one."""
        if not self._has_turn:
            await self._turn()
        self._has_turn = False

    @override
    async def _create_stream(self, request: h11.Request) -> None:
        await super()._create_stream(request)
        if self.stream is not None:
            self.stream = _Chunks(self.stream, self.take_turn)  # type: ignore[assignment]  # it is only called

    @override
    async def _check_protocol(self, event: h11.Request) -> None:
        await self.take_turn()
        if self._gone:
            # Megabytes of requests may still wait in the socket, and Hypercorn would answer each.
            raise _Gone
        if event.http_version == b"2.0":
            await self._send_error_response(_VERSION_NOT_SUPPORTED)
            raise NotHttp1


class _Chunks:
    """The stream of a request, which takes a turn for each chunk of its body but the first.

    A piece of input has thousands of chunks if they are small, and only these turns divide the work: what is sent after
    an answer waits for nothing else.
    """

    def __init__(self, stream: Any, take_turn: Turn) -> None:
        self._stream = stream
        self._take_turn = take_turn
        # The first one has the turn of the request, or of its piece of input.
        self._first = True

    async def handle(self, event: Any) -> None:
        if isinstance(event, Body):
            if not self._first:
                await self._take_turn()
            self._first = False
        await self._stream.handle(event)
