"""The limits of a server or a channel on its peers, and token buckets for rates. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20


class Flooded(Exception):
    """A peer has sent frames of some kind more often than a legitimate peer would."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of a token bucket: ``burst`` at once, and then ``per_second`` in the long run."""

    burst: int
    per_second: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one end of a connection on its peers. If HTTP/2 has a setting for a limit, it is announced.

    Each number is a maximum. Sizes are in bytes, times in seconds.

    Attributes:
        message_size: the size of one received message. A larger one is rejected as soon as its length has been read.
        requests_size: the size of incomplete requests on one connection. Above it, the largest is rejected. At least
            twice the ``message_size`` is used.
        server_requests_size: the memory for incomplete requests, frames and header blocks on all connections of a
            server. An eighth of it is reserved for Python's overhead.
        replies_size: the size of replies on one connection that the peer has not read yet. Above it, the largest is
            dropped. It must be at least the size of the largest reply of a list, which is 64 MiB.
        server_replies_size: the size of such replies on all connections of a server.
        streams: the number of calls open at once on one connection.
        requests: the number of calls on all connections of a server whose requests have not arrived yet. Above it, a
            connection with a hundred of them gets no more calls.
        connections: the number of connections to one server, as far as the process may open descriptors.
        peer_connections: the number of connections from one host, or from one /64 network of IPv6. At most three
            quarters of all connections. It doesn't apply to Unix sockets.
        handshakes: the number of connections that have not finished their TLS and HTTP/2 handshakes.
        peer_handshakes: the number of such connections from one host or network.
        handshake_size: the bytes that a peer may send before its handshake is finished.
        stream_window: the bytes that a peer may send on one stream before they are read.
        header_size: the size of one request's metadata.
        frame_size: the size of one DATA frame.
        unsent: the bytes that may wait for a peer that doesn't read. Above it, the connection is aborted.
        handshake_timeout: the time for the TLS and HTTP/2 handshakes.
        request_timeout: the time from the start of a call until its request has arrived.
        stall_timeout: a stream is ended if the peer reads nothing of what is sent on it for this time.
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

    message_size: int = 4 * MIB
    requests_size: int = 32 * MIB
    server_requests_size: int = 256 * MIB
    replies_size: int = 96 * MIB
    server_replies_size: int = 256 * MIB
    streams: int = 2048
    requests: int = 2000
    connections: int = 10_000
    peer_connections: int = 1000
    handshakes: int = 1000
    peer_handshakes: int = 100
    handshake_size: int = 64 * KIB
    stream_window: int = 256 * KIB
    header_size: int = 16 * KIB
    frame_size: int = 16 * KIB
    unsent: int = 4 * MIB
    handshake_timeout: float = 10.0
    request_timeout: float = 60.0
    stall_timeout: float = 120.0
    keepalive_interval: float = 60.0
    keepalive_timeout: float = 20.0
    resets: Rate = field(default=Rate(1000, 100))
    pings: Rate = field(default=Rate(50, 5))
    settings: Rate = field(default=Rate(50, 1))
    others: Rate = field(default=Rate(5000, 200))

    @property
    def connection_window(self) -> int:
        """The bytes that a peer may send on the whole connection. An unread stream can't use up the others' share."""
        return min(self.streams * self.stream_window, (1 << 31) - 1)


class Allowance:
    """A token bucket."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._left = float(rate.burst)
        self._at = now

    def left(self, now: float) -> float:
        """Return the number of tokens left."""
        return min(self._rate.burst, self._left + (now - self._at) * self._rate.per_second)

    def spend(self, now: float, what: str, cost: float = 1.0) -> None:
        """Spend one token, or ``cost`` tokens.

        Raises:
            Flooded: fewer tokens are left. The message is "too many" and ``what``.
        """
        left = self.left(now)
        self._at = now
        if left < cost:
            raise Flooded(f"too many {what}")
        self._left = left - cost

    def charge(self, now: float, cost: float) -> None:
        """Spend ``cost`` tokens, even if that makes the balance negative."""
        self._left = self.left(now) - cost
        self._at = now

    def earn(self, amount: float) -> None:
        """Return ``amount`` tokens to the bucket, up to the burst."""
        self._left = min(self._rate.burst, self._left + amount)

    def renew(self) -> None:
        """Refill the bucket."""
        self._left = float(self._rate.burst)
