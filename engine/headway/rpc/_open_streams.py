"""Limits on the streams of services that can be called without a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from grpclib import GRPCError
from grpclib.const import Status

REQUEST_SIZE = 4096
"""The maximum size of one request, in bytes."""


class OpenStreams:
    """A counter of open streams that refuses streams beyond a limit.

    Args:
        per_connection: the limit for one connection.
        in_all: the limit for all connections. When it is reached, a new stream of a connection with few streams ends
            one of the connection with the most.
    """

    def __init__(self, per_connection: int = 100, in_all: int = 1000) -> None:
        self._per_connection = per_connection
        self._in_all = in_all
        # By connection. The newest stream is last.
        self._streams: dict[int, list[Any]] = {}

    @property
    def open(self) -> int:
        """The number of open streams."""
        return sum(map(len, self._streams.values()))

    @contextmanager
    def one(self, stream: Any) -> Iterator[None]:
        """Count a stream while the block runs.

        Raises:
            GRPCError: a limit is reached. The status is RESOURCE_EXHAUSTED.
        """
        bound_request(stream)
        # A stream within the process has no connection. It is not limited, because only its caller pays for it.
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
        """End the newest stream of the connection with the most, for a connection that would still have fewer."""
        connection, most = max(self._streams.items(), key=lambda each: len(each[1]))
        refused = _refused(self._in_all, "this server")
        if mine + 1 >= len(most):
            raise refused
        newest = most[-1]
        self._remove(connection, newest)
        newest.end_after(0, refused)

    def _remove(self, connection: int, stream: Any) -> None:
        streams = self._streams.get(connection, [])
        # A stream that was ended to make room has been removed already.
        streams[:] = [each for each in streams if each is not stream]
        if not streams:
            self._streams.pop(connection, None)


def bound_request(stream: Any) -> None:
    """Reject requests over REQUEST_SIZE before they are read."""
    if hasattr(stream, "limit_message"):
        stream.limit_message(REQUEST_SIZE)


def _refused(bound: int, where: str) -> GRPCError:
    return GRPCError(
        Status.RESOURCE_EXHAUSTED,
        f"{where} has {bound} open streams of health and reflection: end one, or use unary calls",
    )
