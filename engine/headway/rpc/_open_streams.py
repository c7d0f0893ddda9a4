"""Bounds for the streams of services that can be called without a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from grpclib import GRPCError
from grpclib.const import Status

REQUEST_SIZE = 4096
"""Bytes of one request."""


class OpenStreams:
    """The open streams, counted. Those beyond a bound are refused.

    Args:
        per_connection: how many one connection may have.
        in_all: how many all connections may have. Then a connection with few takes one from the connection with most.
    """

    def __init__(self, per_connection: int = 100, in_all: int = 1000) -> None:
        self._per_connection = per_connection
        self._in_all = in_all
        # By connection, the newest last.
        self._streams: dict[int, list[Any]] = {}

    @property
    def open(self) -> int:
        """How many are open."""
        return sum(map(len, self._streams.values()))

    @contextmanager
    def one(self, stream: Any) -> Iterator[None]:
        """Count a stream while the block runs. Raises RESOURCE_EXHAUSTED beyond a bound."""
        bound_request(stream)
        # A stream in the process has no connection, and costs its caller alone.
        http2 = getattr(stream, "http2", None)
        if http2 is None:
            yield
            return
        connection = id(http2.connection)
        mine = self._streams.get(connection, [])
        if len(mine) >= self._per_connection:
            raise _refused(self._per_connection, "this connection")
        if self.open >= self._in_all:
            self._make_room(len(mine))
        self._streams.setdefault(connection, []).append(stream)
        try:
            yield
        finally:
            self._remove(connection, stream)

    def _make_room(self, mine: int) -> None:
        """End the newest stream of the connection with most, for a connection that would still have fewer."""
        connection, most = max(self._streams.items(), key=lambda each: len(each[1]))
        refused = _refused(self._in_all, "this server")
        if mine + 1 >= len(most):
            raise refused
        newest = most[-1]
        self._remove(connection, newest)
        newest.end_after(0, refused)

    def _remove(self, connection: int, stream: Any) -> None:
        streams = self._streams.get(connection, [])
        # One that made room was removed before.
        streams[:] = [each for each in streams if each is not stream]
        if not streams:
            self._streams.pop(connection, None)


def bound_request(stream: Any) -> None:
    """Refuse requests over REQUEST_SIZE by their length, before they are read."""
    if hasattr(stream, "limit_message"):
        stream.limit_message(REQUEST_SIZE)


def _refused(bound: int, where: str) -> GRPCError:
    return GRPCError(
        Status.RESOURCE_EXHAUSTED,
        f"{where} has {bound} open streams of health and reflection: end one, or ask by unary calls",
    )
