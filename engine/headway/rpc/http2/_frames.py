"""Checks of what a peer sends: the frames, an account that limits frames without content, and the headers. No I/O.

h2 can validate headers too (RFC 9113, section 8), but it takes several times as long, and an error ends the whole
connection. Here a malformed request ends only its own stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headway.api import TOKEN_HEADER
from headway.rpc._limits import Flooded, Rate, WireLimits

_HEADER = 9
_PREFACE = 24
_DATA, _HEADERS, _SETTINGS, _PING, _CONTINUATION = 0, 1, 4, 6, 9
_ACK, _END_HEADERS = 0x1, 0x4
# Type and flags of a DATA frame that ends its stream.
_LAST = b"\0\1"
# Every this many bytes of a header block cost as much as one more frame. Decoding a block of full size takes
# milliseconds.
_DECODED = 256
# The cost of a TLS record that changes the keys, in frames. It takes longer than most frames.
_NEW_KEYS = 8
# The refund for traffic, in frames: one for every `_WORTH` bytes of content, and at most `_MOST` for each frame.
# Headers are refunded with `_MOST`.
_MOST, _WORTH = 4.0, 16
LITTLE = _WORTH
"""The bytes of content whose refund covers the cost of their frame."""
# The debt for frames without content that a client allows itself on one connection. It is half of what a server accepts
# before it ends the connection, and with it all other calls on it.
_OWN = Rate(2500, 100)

Headers = Iterable[tuple[str, str]]

_REQUEST = frozenset((":method", ":scheme", ":path", ":authority"))
_RESPONSE = frozenset((":status",))
_NONE: frozenset[str] = frozenset()
# HTTP/2 forbids these headers. They describe a connection, and HTTP/2 uses frames for that.
_OF_CONNECTION = frozenset(("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"))
# The names that most requests have. A lookup here is faster than a match of the pattern.
_USUAL = frozenset(
    (
        "content-type",
        "user-agent",
        "grpc-timeout",
        "grpc-encoding",
        "grpc-accept-encoding",
        "accept-encoding",
        "authorization",
        TOKEN_HEADER,
        "x-headway-hops",
        "date",
        "server",
        "grpc-status",
        "grpc-message",
        "grpc-status-details-bin",
    )
)
_NAME = re.compile(r"[!-9;-@\[-~]+")
_NOT_IN_VALUES = re.compile("[\0\r\n]")
_DIGITS = re.compile("[0-9]{1,19}")


class FrameTooLarge(Exception):
    """A frame's header announces a larger frame than this end accepts."""


class FrameCutter:
    """A buffer that returns what has arrived one complete frame at a time, so that a long read can be handled in parts.

    Args:
        most: the size in bytes of the largest accepted frame. A larger one is rejected when its header arrives; h2
            would first hold all of it.
        preface: True if the peer begins with HTTP/2's preface, as clients do.
    """

    __slots__ = ("_at", "_data", "_most", "_preface")

    def __init__(self, most: int, *, preface: bool) -> None:
        self._most = most
        self._preface = _PREFACE if preface else 0
        self._data = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Add what has arrived."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    @property
    def left(self) -> int:
        """The number of bytes that have not been returned yet."""
        return len(self._data) - self._at

    @property
    def begins_call(self) -> bool:
        """True if the next frame has headers, as far as it has arrived."""
        at = self._at + 3
        return at < len(self._data) and self._data[at] == _HEADERS

    def end_of(self, stream_id: int, most: int) -> bytes | None:
        """Return the next frame, without taking it, if it has arrived and is the whole rest of this stream: content
        of at most this many bytes, with the end.
        """
        data, at = self._data, self._at
        size = _HEADER + int.from_bytes(data[at : at + 3], "big")
        if (
            size > _HEADER + most
            or at + size > len(data)
            or data[at + 3 : at + _HEADER] != _LAST + stream_id.to_bytes(4, "big")
        ):
            return None
        return data[at : at + size]

    def clear(self) -> None:
        """Discard everything that has not been returned yet."""
        self._data, self._at = b"", 0

    def preface(self) -> bytes:
        """Return the part of the preface that has arrived. It may come in pieces. Call this before `next`."""
        begin = self._at
        self._at = min(begin + self._preface, len(self._data))
        self._preface -= self._at - begin
        return self._data[begin : self._at]

    def next(self) -> bytes | None:
        """Return the next complete frame, or None if it has not arrived yet.

        Raises:
            FrameTooLarge: the frame is larger than ``most``.
        """
        data, at = self._data, self._at
        left = len(data) - at
        if left < _HEADER:
            self._keep_part()
            return None
        length = int.from_bytes(data[at : at + 3], "big")
        if length > self._most:
            raise FrameTooLarge(f"frame of {length} bytes; at most {self._most} are accepted")
        size = _HEADER + length
        if left < size:
            self._keep_part()
            return None
        self._at = at + size
        if self._at == len(data):
            # Free the buffer, so that an idle connection doesn't keep all of its last read.
            self.clear()
        return data[at : at + size]

    def _keep_part(self) -> None:
        """Keep only the incomplete frame, and free the rest of the read. The frame may be its last byte alone."""
        if self._at:
            self._data, self._at = self._data[self._at :], 0


class FrameAccount:
    """The account of what one peer may still send. Frames are charged; calls and their bytes are refunds.

    Each kind of frame has a token bucket:

    * Pings: refilled by traffic, because stock gRPC clients ping after each received message to measure the connection.
    * Other frames: refunded by traffic, so that a connection in use never exceeds its bucket, however long it lives.
    * Resets: refunded by each response, because a stream that was answered may be canceled.

    Attributes:
        block: the bytes of the incomplete header block.
    """

    def __init__(self, limits: WireLimits, now: float, *, client_side: bool) -> None:
        self._resets = limits.resets.bucket(now)
        self._pings = limits.pings.bucket(now)
        self._settings = limits.settings.bucket(now)
        self._others = limits.others.bucket(now)
        self._client_side = client_side
        # In the worst case, Huffman coding makes a header four times as long.
        self._most_headers = 4 * limits.header_size
        self.block = 0
        # An estimate of what the other end charges this one.
        self._own = _OWN.bucket(now)

    def receive(self, frame: bytes, now: float) -> None:
        """Charge for a frame before it is handled.

        Raises:
            Flooded: the peer has sent too many frames of this kind.
        """
        kind, flags, length = frame[3], frame[4], len(frame) - _HEADER
        if kind == _DATA:
            if not (self._client_side and length):
                if not self._others.spend(now):
                    raise Flooded("too many frames without content")
            else:
                self._own.earn(min(length / _WORTH, _MOST))
        elif kind in (_HEADERS, _CONTINUATION):
            self._header_block(flags, length, now)
        elif kind == _PING and not flags & _ACK:
            if not self._pings.spend(now):
                raise Flooded("too many pings")
        elif kind == _SETTINGS and not flags & _ACK:
            if not self._settings.spend(now):
                raise Flooded("too many settings")
        else:
            if not self._others.spend(now):
                raise Flooded("too many frames without content")

    def _header_block(self, flags: int, length: int, now: float) -> None:
        self.block += length
        if self.block > self._most_headers:
            raise Flooded(f"header block of more than {self._most_headers} bytes")
        # A client charges for no length: other callers on the connection may be the cause of long responses.
        if not self._others.spend(now, 1 if self._client_side else 1 + length / _DECODED):
            raise Flooded("too many frames without content")
        if flags & _END_HEADERS:
            self.block = 0
            self._own.earn(_MOST)

    def receive_empty_records(self, count: int, now: float) -> None:
        """Charge for TLS records without content, such as those that change the keys.

        Raises:
            Flooded: there were too many.
        """
        if not self._others.spend(now, count * _NEW_KEYS):
            raise Flooded("too many TLS records without content")

    def reset(self, now: float) -> None:
        """Charge for a stream that the peer has reset, or that this end had to reset because of the peer.

        Another RST_STREAM for the same stream is charged like any other frame. Some clients send one for each frame
        that was in flight when they canceled the stream.
        """
        if not self._resets.spend(now):
            raise Flooded("too many resets")

    def received_data(self, size: int) -> None:
        """Refund for content that a call has received."""
        self._others.earn(min(size / _WORTH, _MOST))

    def is_solvent(self, now: float) -> bool:
        """Return True if the server should accept more frames without content from this client."""
        return self._own.left(now) > 0

    def charge_self(self, now: float, size: int = 0) -> None:
        """Record the server's charge for a frame without content from this client, with ``size`` bytes of headers."""
        self._own.charge(now, 1 + size / _DECODED)

    def sent_headers(self) -> None:
        """Refund for headers that this end has sent: a response, or a call of its own."""
        self._pings.renew()
        self._resets.earn(1)
        self._others.earn(_MOST)

    def sent_reply(self, size: int) -> None:
        """Refund for a reply of one message, as for its headers, its content and its trailers."""
        self._pings.renew()
        self._resets.earn(2)
        self._others.earn(2 * _MOST + min(size / _WORTH, _MOST))

    def sent_data(self, size: int) -> None:
        """Refund for content that this end has sent. Small pieces earn little: the peer's windows may be small."""
        self._pings.renew()
        self._others.earn(min(size / _WORTH, _MOST))


def content_length(headers: Headers) -> int | None:
    """Return the content-length of well-formed headers, or None if they have none."""
    for name, value in headers:
        if name == "content-length":
            return int(value)
    return None


def malformed_request(headers: Headers) -> str | None:
    """Return the error in a request's headers, or None if they are well-formed."""
    found, wrong = _checked(headers, _REQUEST)
    if wrong is not None:
        return wrong
    if found.get(":method") == "CONNECT":
        return ":scheme or :path in a CONNECT request" if ":scheme" in found or ":path" in found else None
    for name in (":method", ":scheme", ":path"):
        if not found.get(name):
            return f"{name} is missing or empty"
    return None


def malformed_response(headers: Headers) -> str | None:
    """Return the error in a response's headers, or None if they are well-formed."""
    found, wrong = _checked(headers, _RESPONSE)
    return wrong or (None if found.get(":status") else ":status is missing or empty")


def malformed_trailers(headers: Headers) -> str | None:
    """Return the error in the trailers, or None if they are well-formed."""
    return _checked(headers, _NONE)[1]


def _checked(headers: Headers, pseudo: frozenset[str]) -> tuple[dict[str, str], str | None]:
    """Return the pseudo-headers, and the error in the headers or None."""
    found: dict[str, str] = {}
    values = []
    regular = False
    for name, value in headers:
        values.append(value)
        if name in _USUAL:
            regular = True
        elif name in pseudo:
            if regular or name in found:
                return found, f"{name} is given twice, or after other headers"
            found[name] = value
        else:
            regular = True
            if not _NAME.fullmatch(name):
                return found, f"{name[:64]!r} is not a header name in lower case, or not a known pseudo-header"
            if name == "content-length" and (not _DIGITS.fullmatch(value) or found.setdefault(name, value) != value):
                return found, f"content-length {value[:64]!r} is not a number, or there are different ones"
            if name in _OF_CONNECTION or (name == "te" and value != "trailers"):
                return found, f"{name} is not allowed in HTTP/2"
    if _NOT_IN_VALUES.search("".join(values)):
        return found, "a header value contains NUL, CR or LF"
    return found, None
