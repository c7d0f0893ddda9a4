"""Limits on peers: the numbers, budgets for memory, and limits on open streams. No I/O."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from headway.api import Exhausted
from headway.base import Bucket, Count, Endless, checked

KIB, MIB = 1 << 10, 1 << 20
REQUEST_SIZE = 4 * KIB
"""The maximum size in bytes of a request to a service that can be called without a token."""


class Flooded(Exception):
    """A peer has sent frames of some kind more often than a legitimate peer would."""


@checked(burst="burst=50", per_second="per_second=5")
@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of a token bucket: ``burst`` at once, and then ``per_second`` in the long run."""

    burst: Count
    per_second: Endless

    def bucket(self, now: float) -> Bucket:
        """Return a full bucket."""
        return Bucket(self.burst, self.per_second, now)


@checked()
@dataclass(frozen=True, slots=True)
class WireLimits:
    """The limits of one end of a connection on HTTP/2 itself, which fit every program. Tests set them.

    If HTTP/2 has a setting for a limit, it is announced. Each number is a maximum. Sizes are in bytes, times in
    seconds.

    Attributes:
        requests_size: the size of incomplete requests on one connection. Above it, the largest is rejected. At least
            twice the ``message_size`` is used.
        replies_size: the size of replies on one connection that the peer has not read yet. Above it, the largest is
            dropped. It must be at least the size of the largest reply of a list, which is 64 MiB.
        streams: the number of calls open at once on one connection.
        requests: the number of calls on all connections of a server whose requests have not arrived yet. Above it, a
            connection with a hundred of them gets no more calls.
        handshake_size: the bytes that a peer may send before its handshake is finished.
        stream_window: the bytes that a peer may send on one stream before they are read.
        header_size: the size of one request's metadata.
        frame_size: the size of one DATA frame.
        unsent: the bytes that may wait for a peer that doesn't read. Above it, the connection is aborted.
        stall_timeout: a stream is ended if the peer reads none of its data for this time.
        keepalive_interval: the peer is pinged after this time without data from it.
        keepalive_timeout: the time to answer a ping.
        resets: the rate at which a peer may reset a stream or make this end reset one. Each response that this end
            begins refunds one reset, so that watches may be opened and canceled freely.
        settings: the rate at which a peer may change its settings.
        pings: the rate at which a peer may ping while this end sends nothing. The bucket is refilled whenever this end
            sends headers or data, because clients with Go's gRPC ping for nearly every reply.
        others: the rate at which a peer may send empty TLS records and empty frames of other kinds. Calls and their
            bytes refund it, so that a connection in use never exceeds it.
    """

    requests_size: Count = 32 * MIB
    replies_size: Count = 96 * MIB
    streams: Count = 2048
    requests: Count = 2000
    handshake_size: Count = 64 * KIB
    stream_window: Count = 256 * KIB
    header_size: Count = 16 * KIB
    frame_size: Count = 16 * KIB
    unsent: Count = 4 * MIB
    stall_timeout: Endless = 120.0
    keepalive_interval: Endless = 60.0
    keepalive_timeout: Endless = 20.0
    resets: Rate = field(default=Rate(1000, 100))
    pings: Rate = field(default=Rate(50, 5))
    settings: Rate = field(default=Rate(50, 1))
    others: Rate = field(default=Rate(5000, 200))

    @property
    def connection_window(self) -> int:
        """The bytes that a peer may send on the whole connection. An unread stream can't use up the others' share."""
        return min(self.streams * self.stream_window, (1 << 31) - 1)


@checked()
@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one end of a connection on its peers: ``limits=headway.rpc.Limits(connections=500)``

    Each number is a maximum. Sizes are in bytes, times in seconds.

    Attributes:
        message_size: the size of one received message. A larger one is rejected as soon as its length has been read.
        server_requests_size: the memory for incomplete requests, frames and header blocks on all connections of a
            server. An eighth of it is reserved for Python's overhead.
        server_replies_size: the size of replies on all connections of a server that their peers have not read yet.
        connections: the number of connections to one server, as far as the process may open descriptors.
        peer_connections: the number of connections from one host, or from one /64 network of IPv6. At most three
            quarters of all connections. It doesn't apply to Unix sockets.
        handshakes: the number of connections that have not finished their TLS and HTTP/2 handshakes.
        peer_handshakes: the number of such connections from one host or network.
        handshake_timeout: the time for the TLS and HTTP/2 handshakes.
        request_timeout: the time from the start of a call until its request has arrived.
        wire: the limits on HTTP/2 itself, which only tests and Headway's own channels set.
    """

    message_size: Count = 4 * MIB
    server_requests_size: Count = 256 * MIB
    server_replies_size: Count = 256 * MIB
    connections: Count = 10_000
    peer_connections: Count = 1000
    handshakes: Count = 1000
    peer_handshakes: Count = 100
    handshake_timeout: Endless = 10.0
    request_timeout: Endless = 60.0
    wire: WireLimits = field(default=WireLimits())


class Holder(Protocol):
    """An object that holds bytes and is charged to a `Budget`."""

    def refuse(self) -> None:
        """Free the bytes, and report that to `Budget.held`."""
        ...


class Budget:
    """A limit on the bytes held by all holders together.

    A budget may be part of another one: a connection's budget is part of its server's. ``freed`` is called with each
    number of bytes that a holder no longer holds.

    Over the limit, the largest holder is refused, and among holders of similar size the oldest. Small requests
    therefore succeed even among any number of large requests that never end.

    Attributes:
        taken: the number of bytes held.
        holders: the number of holders with at least one byte.
    """

    __slots__ = ("_by_size", "_freed", "_limit", "_within", "holders", "taken")

    def __init__(self, limit: int, within: Budget | None = None, freed: Callable[[int], None] | None = None) -> None:
        self._freed = freed
        self.taken = 0
        self.holders = 0
        self._limit = limit
        self._within = within
        # Invariant: a holder of n > 0 bytes is in class n.bit_length(). So the largest is found without a search.
        self._by_size: dict[int, dict[Holder, None]] = {}

    def is_crowded(self, here: int, in_all: int) -> bool:
        """Return True if this budget has at least ``here`` holders, and the enclosing budget at least ``in_all``."""
        return self.holders >= here and self._within is not None and self._within.holders >= in_all

    def held(self, holder: Holder, before: int, now: int) -> None:
        """Record that ``holder`` held ``before`` bytes and now holds ``now``. It or others may be refused for it."""
        self.taken += now - before
        self.holders += (now > 0) - (before > 0)
        if now < before and self._freed is not None:
            self._freed(before - now)
        left, joined = before.bit_length(), now.bit_length()
        if left != joined:
            if left:
                del self._by_size[left][holder]
            if joined:
                self._by_size.setdefault(joined, {})[holder] = None
        if self._within is not None:
            self._within.held(holder, before, now)
        while self.taken > self._limit:
            largest = self._by_size[max(size for size, holders in self._by_size.items() if holders)]
            next(iter(largest)).refuse()


class OpenStreams:
    """A limit on the open streams of services that can be called without a token.

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
            Exhausted: a limit is reached.
        """
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


@asynccontextmanager
async def bound_call(call: Any) -> AsyncIterator[None]:
    """Reject requests over REQUEST_SIZE before they are read, as `Handler.admit`."""
    bound_request(call)
    yield


def _refused(bound: int, where: str) -> Exhausted:
    return Exhausted(f"{where} has {bound} open streams of health and reflection: end one, or use unary calls")
