"""Bounds for the streams of services that can be called without a token."""

from __future__ import annotations

from collections import Counter
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
        in_all: how many all connections may have.
    """

    def __init__(self, per_connection: int = 100, in_all: int = 1000) -> None:
        self._per_connection = per_connection
        self._in_all = in_all
        self._open: Counter[int] = Counter()

    @property
    def open(self) -> int:
        """How many are open."""
        return self._open.total()

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
        if self._open[connection] >= self._per_connection:
            raise _refused(self._per_connection, "this connection")
        if self.open >= self._in_all:
            raise _refused(self._in_all, "this server")
        self._open[connection] += 1
        try:
            yield
        finally:
            self._open[connection] -= 1
            if not self._open[connection]:
                del self._open[connection]


def bound_request(stream: Any) -> None:
    """Refuse requests over REQUEST_SIZE by their length, before they are read."""
    if hasattr(stream, "limit_message"):
        stream.limit_message(REQUEST_SIZE)


def _refused(bound: int, where: str) -> GRPCError:
    return GRPCError(
        Status.RESOURCE_EXHAUSTED,
        f"{where} has {bound} open streams of health and reflection: end one, or ask by unary calls",
    )
