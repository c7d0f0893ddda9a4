"""A call of a service: what travels beside its request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from headway.errors import HeadwayError


class Peer(Protocol):
    """The other end of a connection."""

    def addr(self) -> Any:
        """Return its address: the host and the port, or the path of a Unix socket; None if it is not known."""
        ...


class Call:
    """What travels beside a request. This class is a call within the process; adapters to a network extend it.

    Attributes:
        metadata: what the caller sends with the request, such as a token, by lower-case name.
        peer: the caller's end of the connection; None within the process.
        encrypted: True if the call came over TLS.
        called: how the caller has named the method, for reports; empty for its path.
        encodes: True if replies leave this process, so that a list may be returned as `Encoded`.
        encode: encodes an item of a stream at once, to be sent later; None if items are sent as they are.
        announced: a message with what is known of the request before it is received, such as the id in a path.
        before_decoding: called with the class and the bytes of a large request before it is decoded. It may refuse it.
        admitted: what a guard has found out about the caller before the request was received.
        apart: the seconds by which a stream ends later than it is due, because thousands may be due at once.
        asks: True if the reader of a watch within the process asks how far it is. Then few bookmarks are sent.
        ask: how the reader asks, as `headway.storage.Asked` says; None before the first item, or if it is sent
            bookmarks all the same. The bookmark that it returns takes its place among the items of the stream.
        wrapped: True if the stream of a wrapper is around the service's own. It may hold items back, and an answer of
            the service would pass them. So its reader does not ask.
    """

    peer: Peer | None = None
    encrypted = False
    called = ""
    encodes = False
    encode: Callable[[Any], Awaitable[Any]] | None = None
    announced: Any = None
    before_decoding: Callable[[type[Any], bytes], None] | None = None
    admitted: Any = None
    apart = 0.0
    asks = False
    ask: Callable[[int], Any] | None = None
    wrapped = False

    def __init__(self, metadata: Mapping[str, str] | None = None) -> None:
        self.metadata: Mapping[str, str] = {} if metadata is None else metadata

    def hold(self, size: int) -> None:
        """Count the bytes of the reply that are held before it is sent. That may end this call or another one."""

    def end_after(self, seconds: float, error: HeadwayError) -> None:
        """End the call with this error after ``seconds``, whatever the service is doing then.

        Within the process a call does not end by itself. A guard checks it before each item instead.
        """
