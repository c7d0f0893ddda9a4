"""The choice of connections that a server keeps, within limits in total, per peer, and for handshakes. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TypeVar

from headway.rpc._limits import Limits

T = TypeVar("T")

LOCAL = ""
"""The peer of every Unix socket. There is no limit per peer: the permissions of the socket's file decide."""

# The largest share of all connections that one peer may have, so that others are admitted too.
_SHARE = 3 / 4


def peer_of(address: object) -> str:
    """Return the peer for the address of an accepted socket: an IPv4 host, or the /64 network of an IPv6 host."""
    if not isinstance(address, tuple):
        return LOCAL
    host = str(address[0]).partition("%")[0]
    try:
        given = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(given, ipaddress.IPv6Address):
        if given.ipv4_mapped is not None:
            return str(given.ipv4_mapped)
        # A host in a /64 network can use all of its addresses.
        return str(ipaddress.IPv6Network((int(given) >> 64 << 64, 64)))
    return str(given)


class Visitor:
    """A connection, from its acceptance to its loss.

    Attributes:
        peer: the peer, as returned by `peer_of`.
        since: the time when it was accepted.
        end: called with the reason to close the connection at once. The server sets it.
        established: True if the handshake is finished.
        has_called: True if the visitor has begun a call before.
        calls: the number of open calls.
    """

    __slots__ = ("calls", "end", "established", "has_called", "peer", "since")

    def __init__(self, peer: str, since: float, end: Callable[[str], None]) -> None:
        self.peer = peer
        self.since = since
        self.end = end
        self.established = False
        self.has_called = False
        self.calls = 0


class Ranked:
    """Visitors in order of their addition, in total and by peer, and peers by their number of visitors."""

    def __init__(self) -> None:
        self._all: dict[Visitor, None] = {}
        self._of_peer: dict[str, dict[Visitor, None]] = {}
        # Invariant: a peer with n visitors is in class n. There are few classes, because n classes need n²/2 visitors.
        self._by_count: dict[int, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def count(self, peer: str) -> int:
        """Return the number of visitors of the peer."""
        return len(self._of_peer.get(peer, ()))

    def add(self, visitor: Visitor) -> None:
        """Add a visitor as the latest one. Adding it again changes nothing."""
        if visitor in self._all:
            return
        self._all[visitor] = None
        of_peer = self._of_peer.setdefault(visitor.peer, {})
        of_peer[visitor] = None
        self._moved(visitor.peer, len(of_peer) - 1, len(of_peer))

    def remove(self, visitor: Visitor) -> None:
        """Remove a visitor. Removing it again changes nothing."""
        if visitor not in self._all:
            return
        del self._all[visitor]
        of_peer = self._of_peer[visitor.peer]
        del of_peer[visitor]
        self._moved(visitor.peer, len(of_peer) + 1, len(of_peer))
        if not of_peer:
            del self._of_peer[visitor.peer]

    def oldest(self, peer: str | None = None) -> Visitor | None:
        """Return the visitor that was added first, in total or of one peer."""
        return _first(self._all if peer is None else self._of_peer.get(peer, {}))

    def oldest_of_largest(self) -> Visitor | None:
        """Return the first visitor of the peer with the most visitors."""
        if not self._by_count:
            return None
        peer = _first(self._by_count[max(self._by_count)])
        return None if peer is None else self.oldest(peer)

    def _moved(self, peer: str, before: int, now: int) -> None:
        if before:
            del self._by_count[before][peer]
            if not self._by_count[before]:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, {})[peer] = None


def _first(ordered: dict[T, None]) -> T | None:
    return next(iter(ordered), None)


class Admission:
    """The rules that admit a new connection, and that close another one in its favor.

    A connection with an open call is never closed. The others are closed in this order: first connections without any
    call so far, the oldest first; then idle ones, the longest idle first. The peer with the most connections loses one.

    Attributes:
        connections: the maximum number of connections.
        of_peer: the maximum number of connections of one peer.
    """

    def __init__(self, limits: Limits, descriptors: int | None = None) -> None:
        self.connections = limits.connections if descriptors is None else min(limits.connections, descriptors)
        self.of_peer = max(1, min(limits.peer_connections, int(self.connections * _SHARE)))
        self._limits = limits
        self._open: dict[str, int] = {}
        self._count = 0
        self._handshaking, self._unproven, self._idle = Ranked(), Ranked(), Ranked()

    def __len__(self) -> int:
        return self._count

    def enter(self, visitor: Visitor, *, scarce: bool = False) -> str:
        """Admit a visitor and return an empty string, or return the reason why it is refused.

        With ``scarce``, another connection must be closed for it. The ``end`` of each closed visitor is called.
        """
        peer = visitor.peer
        if peer != LOCAL:
            if self._handshaking.count(peer) >= self._limits.peer_handshakes:
                why = f"{self._limits.peer_handshakes} connections of this peer are in their handshake"
                self._dismiss(self._handshaking.oldest(peer), why)
            if self._open.get(peer, 0) >= self.of_peer:
                why = f"this peer has {self.of_peer} connections open, the limit of one peer"
                if not self._dismiss(self._unproven.oldest(peer) or self._idle.oldest(peer), why):
                    return why
        if len(self._handshaking) >= self._limits.handshakes:
            why = f"{self._limits.handshakes} connections are in their handshake"
            self._dismiss(self._handshaking.oldest_of_largest(), why)
        if (scarce or self._count >= self.connections) and not self.make_room():
            return f"{self._count} connections are open, the limit of this server"
        self._open[peer] = self._open.get(peer, 0) + 1
        self._count += 1
        self._handshaking.add(visitor)
        self._unproven.add(visitor)
        return ""

    def make_room(self) -> bool:
        """Close a connection without an open call. Return False if every connection has one."""
        why = f"a new connection takes its place: {self._count} are open"
        return self._dismiss(self._unproven.oldest_of_largest() or self._idle.oldest_of_largest(), why)

    def establish(self, visitor: Visitor) -> None:
        """Record that the visitor has finished its handshake."""
        visitor.established = True
        self._handshaking.remove(visitor)

    def begin_call(self, visitor: Visitor) -> None:
        """Record that the visitor has begun a call."""
        visitor.calls += 1
        if visitor.calls == 1:
            (self._idle if visitor.has_called else self._unproven).remove(visitor)
            visitor.has_called = True

    def end_call(self, visitor: Visitor) -> None:
        """Record that a call of the visitor has ended."""
        visitor.calls -= 1
        # The number is negative if the visitor has left, because its calls end later.
        if visitor.calls == 0:
            self._idle.add(visitor)

    def leave(self, visitor: Visitor) -> None:
        """Record that the visitor has left. A second call has no effect."""
        if visitor.calls < 0:
            return
        visitor.calls = -1 << 62
        for ranked in (self._handshaking, self._unproven, self._idle):
            ranked.remove(visitor)
        self._count -= 1
        self._open[visitor.peer] -= 1
        if not self._open[visitor.peer]:
            del self._open[visitor.peer]

    @property
    def next_late(self) -> Visitor | None:
        """The visitor that has been in its handshake for the longest time, or None."""
        return self._handshaking.oldest()

    def end_late(self, before: float, why: str) -> None:
        """Close the connections that were accepted at ``before`` or earlier and are still in their handshake."""
        while (late := self._handshaking.oldest()) is not None and late.since <= before:
            self._dismiss(late, why)

    def _dismiss(self, visitor: Visitor | None, why: str) -> bool:
        if visitor is None:
            return False
        self.leave(visitor)
        visitor.end(why)
        return True
