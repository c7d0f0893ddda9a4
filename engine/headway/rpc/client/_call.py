"""A client call, from its request to its status."""

from __future__ import annotations

import math
from collections import deque

import trio
from grpclib import GRPCError
from grpclib.const import Status
from grpclib.exceptions import StreamTerminatedError
from grpclib.metadata import USER_AGENT, decode_grpc_message, encode_metadata, encode_timeout
from h2.exceptions import ProtocolError

from headway.api import Metadata
from headway.rpc._channel import MESSAGE_LIMIT, NOT_BEGUN, NotBegun, NotGrpc, NotServed, TooLarge
from headway.rpc._details import TRAILER, details_in
from headway.rpc._limited import limited_in
from headway.rpc._wire import MessageParser, framed
from headway.rpc.http2 import Http2Protocol, Http2Stream

# The gRPC status for an HTTP response that isn't gRPC, for example from a proxy. From gRPC's documentation.
_HTTP_STATUSES = {
    "400": Status.INTERNAL,
    "401": Status.UNAUTHENTICATED,
    "403": Status.PERMISSION_DENIED,
    "404": Status.UNIMPLEMENTED,
    "429": Status.UNAVAILABLE,
    "502": Status.UNAVAILABLE,
    "503": Status.UNAVAILABLE,
    "504": Status.UNAVAILABLE,
}

# HTTP statuses of a web server that has not passed the call on. A proxy that has passed it on answers with others.
_PAGES = ("301", "302", "307", "308", "404", "405", "415", "505")

_MOST_MILLISECONDS = 99_999
# In digits.
_LONGEST_LIMIT = 19
ATTEMPTS = 3
"""How often a call is sent in all, if each time the server certainly has not begun to handle it."""


class Unsent(Exception):
    """The server certainly has not begun to handle this call."""


def _timeout(left: float) -> str:
    """Return the value of the ``grpc-timeout`` header, which has at most eight digits.

    It is rounded up, so that the client's own deadline passes first.
    """
    if left < _MOST_MILLISECONDS:
        return f"{math.ceil(max(left, 0.001) * 1000)}m"
    return encode_timeout(min(left, 99_999_999))


def _list_size(headers: list[tuple[str, str]]) -> int:
    """Return the size of the header list as HTTP/2 counts it."""
    return sum(len(name.encode()) + len(value.encode()) + 32 for name, value in headers)


class RemoteCall:
    """A call on a connection. Call `begin`, then read its messages, and always call `release` at the end.

    Attributes:
        stream: the underlying HTTP/2 stream.
    """

    def __init__(self, protocol: Http2Protocol, host: str, scheme: str, message_size: int) -> None:
        self._protocol = protocol
        self._host = host
        self._scheme = scheme
        self.stream: Http2Stream = protocol.connection.create_stream()
        self._parser = MessageParser(message_size)
        self._bodies: deque[bytes] = deque()
        self._size = 0

    async def begin(
        self, path: str, body: bytes, metadata: Metadata | None, deadline: float | None, *, end: bool = True
    ) -> None:
        """Send the request.

        Args:
            deadline: the deadline in Trio's time, which is sent to the server.
            end: False if more requests may follow, by `send`.

        Raises:
            TooLarge: the request is larger than the limit that the server has announced.
        """
        limit = self._protocol.connection.h2.message_limit
        if limit is not None and len(body) > limit:
            raise TooLarge(len(body), limit)
        self._size = len(body)
        headers = [("content-type", "application/grpc"), ("user-agent", USER_AGENT)]
        if metadata:
            try:
                headers.extend(encode_metadata(metadata))
            except (TypeError, ValueError) as error:
                raise NotBegun(Status.INVALID_ARGUMENT, f"metadata: {error}") from error
        await self.begin_raw(path, headers, framed(body), deadline, end=end)

    async def send(self, body: bytes) -> None:
        """Send one more request, on a call that was begun with ``end=False``."""
        try:
            await self.stream.send_data(framed(body))
        except (StreamTerminatedError, ProtocolError) as error:
            # If the call has a status, the reader of its replies raises it.
            if not self._has_status():
                raise self._lost(error) from error

    async def begin_raw(
        self, path: str, headers: list[tuple[str, str]], data: bytes, deadline: float | None, *, end: bool = True
    ) -> None:
        """Send a request, or the beginning of one, that is already encoded.

        Raises:
            Unsent: nothing was sent.
            NotBegun: the metadata exceeds the limit that the server has announced. Sending it would end the connection.
        """
        ours = [
            (":method", "POST"),
            (":scheme", self._scheme),
            (":path", path),
            (":authority", self._host),
            ("te", "trailers"),
        ]
        if deadline is not None:
            ours.append(("grpc-timeout", _timeout(deadline - trio.current_time())))
        headers = [*ours, *headers]
        size, limit = _list_size(headers), self._protocol.connection.h2.metadata_limit
        if limit is not None and size > limit:
            raise NotBegun(
                Status.RESOURCE_EXHAUSTED,
                f"the metadata is {size} bytes; the server at {self._host} accepts at most {limit}",
            )
        try:
            await self.stream.begin(headers, data, self._protocol.processor, end=end)
        except (StreamTerminatedError, ProtocolError) as error:
            if self.stream.id is None:
                raise Unsent(f"the connection to {self._host} ended: {error}") from error
            # The server may have answered before it read everything. Its status is then more useful than this error.
            if not self._has_status():
                raise self._lost(error) from error

    async def one_message(self) -> bytes:
        """Wait for the reply of a unary call and return it."""
        bodies: list[bytes] = []
        while True:
            more = await self.messages()
            if not more:
                break
            bodies += more
        if len(bodies) != 1:
            raise GRPCError(Status.INTERNAL, f"the server sent {len(bodies)} replies to one request")
        return bodies[0]

    async def messages(self) -> list[bytes]:
        """Wait for messages and return the bodies of those that have arrived, or an empty list if the call succeeded.

        Raises:
            GRPCError: the call ended with another status than OK.
        """
        while True:
            data = await self.data()
            if not data:
                await self._check_status()
                return []
            bodies = self._parser.feed(data)
            if bodies:
                return bodies

    async def data(self) -> bytes:
        """Wait for raw data of the response and return it, or ``b""`` at the end of the stream."""
        await trio.lowlevel.checkpoint()
        try:
            return await self.stream.buffer.take()
        except StreamTerminatedError as error:
            if not self._has_status():
                raise self._lost(error) from error
            return b""

    async def head(self) -> list[tuple[str, str]]:
        """Wait for the headers of the response and return them.

        Raises:
            GRPCError: the response is not gRPC.
        """
        try:
            headers = await self.stream.recv_headers()
        except StreamTerminatedError as error:
            # The headers may have arrived together with the end of the stream.
            if self.stream.headers is None:
                raise self._lost(error) from error
            headers = self.stream.headers
        given = dict(headers)
        if given.get(":status") != "200" or not given.get("content-type", "").startswith("application/grpc"):
            raise self._not_grpc(given)
        return headers

    @property
    def is_solvent(self) -> bool:
        """True if the server should accept more frames with little content on this connection."""
        return self._protocol.is_solvent

    def trailers(self) -> list[tuple[str, str]]:
        """Return the trailers of a response that has ended.

        Raises:
            GRPCError: it had no trailers.
        """
        trailers = self.stream.trailers
        if trailers is None:
            raise GRPCError(Status.UNKNOWN, f"the server at {self._host} ended the call without a status")
        return trailers

    def release(self) -> bool:
        """End the call if necessary and release its stream. Return True if a reset had to be sent to the server."""
        was_open = self.stream.abandon()
        if self.stream.release is not None:
            release, self.stream.release = self.stream.release, None
            release()
        return was_open

    def _has_status(self) -> bool:
        return self.stream.trailers is not None or "grpc-status" in dict(self.stream.headers or ())

    def _lost(self, error: Exception) -> Exception:
        # Once headers have arrived, the call counts as begun. A refusal after that doesn't change it.
        if self.stream.refused and self.stream.headers is None:
            return Unsent(f"the server at {self._host} refused the call")
        return GRPCError(Status.UNAVAILABLE, f"the connection to {self._host} ended: {error}")

    def _not_grpc(self, headers: dict[str, str]) -> GRPCError:
        http = headers.get(":status", "")
        status = _HTTP_STATUSES.get(http, Status.UNKNOWN)
        text = f"the server at {self._host} does not speak gRPC (HTTP status {http or 'none'})"
        is_grpc = headers.get("content-type", "").startswith("application/grpc")
        return NotGrpc(status, text) if http in _PAGES and not is_grpc else GRPCError(status, text)

    def _failure(self, status: Status, trailers: dict[str, str]) -> GRPCError:
        given = trailers.get("grpc-message")
        message = None if given is None else decode_grpc_message(given)
        if status is Status.UNIMPLEMENTED:
            return NotServed(message, self._host)
        details = details_in(status, message, trailers.get(TRAILER))
        if NOT_BEGUN not in trailers:
            return GRPCError(status, message, details)
        limit = trailers.get(MESSAGE_LIMIT, "")
        if limit.isascii() and limit.isdigit() and len(limit) <= _LONGEST_LIMIT:
            return TooLarge(self._size, int(limit))
        return limited_in(status, message, trailers, details) or NotBegun(status, message, details)

    async def _check_status(self) -> None:
        """Raise the stream's final status as an error, unless it is OK."""
        headers = dict(self.stream.headers or ())
        trailers = dict(self.stream.trailers or headers)
        given = trailers.get("grpc-status")
        if given is None:
            raise self._not_grpc(headers)
        try:
            status = Status(int(given))
        except ValueError:
            status = Status.UNKNOWN
        if status is not Status.OK:
            raise self._failure(status, trailers)
        if self._parser.held:
            raise GRPCError(Status.INTERNAL, "the stream ended in the middle of a message")
