"""How much one peer may ask of a server or a channel, and when it asks too often. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20


class Flooded(Exception):
    """A peer has sent more frames of a kind than any honest one would."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many at once, and so many a second for ever."""

    burst: int
    per_second: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What one end of a connection accepts. Every peer is held to it, and told of it where HTTP/2 has a setting.

    Attributes:
        message_size: bytes of one message that is received; refused when its length is read, before its body is.
        requests_size: bytes of requests on one connection that have come in part; over it the largest is refused.
            At least two messages' size.
        server_requests_size: bytes of memory that such requests, and frames and header blocks that have come in part,
            may take on all connections of a server: an eighth of it is for what Python needs beside them.
        replies_size: bytes of replies on one connection that wait for the peer to read; over it the largest is given
            up. At least the largest reply of a list, which is 64 MiB.
        server_replies_size: bytes of such replies on all connections of a server.
        streams: calls open at once on one connection.
        requests: calls at once on all connections of a server whose requests have not come yet. Above it a connection
            with a hundred of them gets no further call.
        connections: connections open at once to one server, as far as the process may open descriptors.
        peer_connections: connections open at once from one host, or from one /64 network of IPv6: at most three
            quarters of all. Unix sockets are not bound by it.
        handshakes: connections at once that have not finished their handshake, of TLS and of HTTP/2.
        peer_handshakes: likewise from one host or network.
        handshake_size: bytes that a peer may send before its handshake is finished.
        stream_window: bytes that a peer may send on one stream ahead of who reads it.
        header_size: bytes of one request's metadata.
        frame_size: bytes of one DATA frame that is accepted.
        unsent: bytes that wait to be sent to a peer that doesn't read, before the connection is given up.
        handshake_timeout: seconds for the handshake, of TLS and of HTTP/2.
        request_timeout: seconds from the beginning of a call until its request is there.
        stall_timeout: seconds without the peer taking any of what is being sent, before its stream is ended.
        keepalive_interval: seconds of silence after which the peer is asked whether it is there.
        keepalive_timeout: seconds that it may take to answer.
        resets, settings: how often a peer may reset a stream, or make this end reset one, and change its settings.
            Each answer that this end begins pays a reset back, so that watches may be opened and canceled freely.
        pings: how often a peer may ping while this end sends nothing. Whenever it sends headers or data, the allowance
            is full again: clients written with Go's gRPC ping for nearly every reply.
        others: how often a peer may send frames that carry nothing, of whatever other kind, and TLS records. Calls and
            their bytes pay back, so that a connection that is used never runs out.
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
        """Bytes that a peer may send on a whole connection: enough that a stream nobody reads starves no other."""
        return min(self.streams * self.stream_window, (1 << 31) - 1)


class Allowance:
    """A token bucket: what is left of a rate at a time."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._left = float(rate.burst)
        self._at = now

    def left(self, now: float) -> float:
        """How many may be used up at once."""
        return min(self._rate.burst, self._left + (now - self._at) * self._rate.per_second)

    def spend(self, now: float, what: str, cost: float = 1.0) -> None:
        """Use up one, or ``cost``. Raises Flooded when less is left."""
        left = self.left(now)
        self._at = now
        if left < cost:
            raise Flooded(f"too many {what}")
        self._left = left - cost

    def charge(self, now: float, cost: float) -> None:
        """Use up ``cost``, and owe what is not left."""
        self._left = self.left(now) - cost
        self._at = now

    def earn(self, amount: float) -> None:
        """Give back so much of what has been used up."""
        self._left = min(self._rate.burst, self._left + amount)

    def renew(self) -> None:
        """Give back everything that has been used up."""
        self._left = float(self._rate.burst)
