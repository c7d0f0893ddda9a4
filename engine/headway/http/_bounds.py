"""The limits of an HTTP server on its clients, and the parts of them that requests share. No I/O."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headway.api import Code, Exhausted
from headway.base import KeyTurns
from headway.errors import HeadwayError, Unavailable
from headway.http._refusal import HttpRefusal
from headway.rpc import Budget

STOPPING = "the server is stopping"
End = Callable[[float, HeadwayError], None]
"""A function that ends a call with an error after some seconds."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a server on its clients. Times are in seconds, sizes in bytes.

    Attributes:
        connections: the number of connections at once.
        peer_connections: the number of connections from one host, or from one /64 network of IPv6.
        patience: the time for a request to arrive, and for which a connection may be idle.
        answer: the time that a connection may have answers in progress without a pause. Otherwise a peer that reads no
            answer, or that has asked for another protocol, would keep its place forever. Infinity leaves it to the
            application.
        stall: the time that sending one part of an answer may take, before the peer counts as not reading.
        header_size: the size of the head of a request.
        evict_answering: True if a new connection may take the place of one that is being answered, when all are.
        handshakes: the number of connections that have not finished their TLS handshake.
        peer_handshakes: the number of such connections from one host.
        handshake: the time for the TLS handshake.
        handshake_size: the bytes that a peer may send before its handshake is finished.
    """

    connections: int
    peer_connections: int
    patience: float
    answer: float = math.inf
    stall: float = math.inf
    header_size: int = 16 << 10
    evict_answering: bool = False
    handshakes: int = 1000
    peer_handshakes: int = 100
    handshake: float = 10.0
    handshake_size: int = 64 << 10


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one request over HTTP, and of all together. Times are in seconds, sizes in bytes.

    Attributes:
        head_size: the size of the path, the query and the headers of one request. It also limits small bodies, such as
            the body of a sign-in, because a token can be in either.
        body_size: the size of the body of one request.
        bodies_size: the size of the bodies of all requests that are being received or read. One caller has a quarter
            of it, or one body.
        replies_size: the size of answers that wait for their clients to read them, if no budget of a server is given.
        values: the number of values in a body, such as the members of lists and maps.
        request_timeout: the time for a body to arrive.
        small_timeout: the time for a small body to arrive.
        answer_timeout: the time for the service to answer. Sending the answer doesn't count.
        watches: the number of watches at once.
        caller_watches: the number of watches of one caller at once: of a token, or, without one, of a host or of
            a /64 network of IPv6.
        heartbeat: the time after which a quiet watch repeats its position, so that both ends notice a lost connection.
    """

    head_size: int = 16 << 10
    body_size: int = 4 << 20
    bodies_size: int = 64 << 20
    replies_size: int = 256 << 20
    values: int = 12_000
    request_timeout: float = 60.0
    small_timeout: float = 10.0
    answer_timeout: float = 60.0
    watches: int = 256
    caller_watches: int = 32
    heartbeat: float = 15.0


UNREAD = "unread replies take too much memory, and this one is among the largest"


class HeldReply:
    """The bytes of one answer that wait for its client, charged to the budget of all replies of a server.

    Attributes:
        end: called to end the request, because the answers that wait take too much memory. The request sets it.
        dropped: True once it has been called.
    """

    __slots__ = ("_budget", "_size", "dropped", "end")

    def __init__(self, budget: Budget) -> None:
        self.end: Callable[[], None] | None = None
        self.dropped = False
        self._budget = budget
        self._size = 0

    def hold(self, size: int) -> None:
        """Set the number of bytes. That may end this request or another one."""
        if size != self._size and not self.dropped:
            before, self._size = self._size, size
            self._budget.held(self, before, size)

    def refuse(self) -> None:
        """End the request."""
        self.hold(0)
        self.dropped = True
        if self.end is not None:
            self.end()


class Shares:
    """The bodies and watches that all requests hold together, and their turns at resources.

    Attributes:
        replies: limits the bytes of answers that wait for their clients.
        turns: the turns of merges.
    """

    def __init__(self, limits: RequestLimits, replies: Budget | None = None) -> None:
        self.replies = replies or Budget(limits.replies_size)
        self.turns = KeyTurns()
        self._limits = limits
        self._bodies: Counter[str] = Counter()
        self._watches: dict[str, dict[object, End]] = {}
        self._ends: dict[object, End] = {}
        self._stopping = False

    def stop(self) -> None:
        """End all watches, and every watch that begins later, because the server stops."""
        self._stopping = True
        for end in list(self._ends.values()):
            end(0, Unavailable(STOPPING))

    @contextmanager
    def ending(self, end: End) -> Iterator[None]:
        """Let `stop` call ``end`` while the block runs."""
        if self._stopping:
            raise Unavailable(STOPPING)
        key = object()
        self._ends[key] = end
        try:
            yield
        finally:
            del self._ends[key]

    @property
    def watches(self) -> int:
        """The number of open watches."""
        return sum(map(len, self._watches.values()))

    @property
    def bodies(self) -> int:
        """The number of bytes of bodies that are being received or read."""
        return self._bodies.total()

    @contextmanager
    def body(self, caller: str) -> Iterator[Callable[[int], None]]:
        """Count the body of a caller. Yield a function to call with the size of each part that has arrived.

        It raises HttpRefusal if the caller (429), or all together (503), send too much at once. Only what has arrived
        counts, so that a caller cannot keep others out by announcing more.
        """
        limits, held = self._limits, 0

        def hold(size: int) -> None:
            nonlocal held
            if self._bodies[caller] + size > max(limits.bodies_size // 4, limits.body_size):
                raise HttpRefusal(
                    429, Code.RESOURCE_EXHAUSTED.name, "you are sending too many large requests at once: try again"
                )
            if self.bodies + size > limits.bodies_size:
                raise HttpRefusal(503, Code.UNAVAILABLE.name, "too many large requests are being received: try again")
            self._bodies[caller] += size
            held += size

        try:
            yield hold
        finally:
            self._bodies[caller] -= held
            if not self._bodies[caller]:
                del self._bodies[caller]

    @contextmanager
    def watch(self, caller: str, end: End) -> Iterator[None]:
        """Count a watch of a caller. Raises HttpRefusal (429) if the caller, or all together, have too many.

        If all together have, it takes the place of a watch of the caller that has most, as long as that one still has
        more than this one then. So a few callers cannot keep the others out.
        """
        limits, mine = self._limits, len(self._watches.get(caller, ()))
        if mine >= limits.caller_watches:
            why = f"you have {limits.caller_watches} watches open: end one first"
            raise HttpRefusal(429, Code.RESOURCE_EXHAUSTED.name, why)
        if self.watches >= limits.watches:
            why = f"this server has {limits.watches} watches open"
            most = max(self._watches.values(), key=len, default={})
            if len(most) < mine + 2:
                raise HttpRefusal(429, Code.RESOURCE_EXHAUSTED.name, f"{why}: try again")
            _, end_newest = most.popitem()
            end_newest(0, Exhausted(f"{why}, most of them by you: try again"))
        key = object()
        self._watches.setdefault(caller, {})[key] = end
        try:
            yield
        finally:
            held = self._watches.get(caller, {})
            held.pop(key, None)
            if not held:
                self._watches.pop(caller, None)
