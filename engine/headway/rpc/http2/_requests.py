"""The headers of requests, checked and read once for each different set of a connection. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from grpclib import GRPCError
from grpclib.const import Status
from grpclib.metadata import Deadline, decode_metadata

from headway.rpc.http2._frames import content_length, malformed_request

_CONTENT_TYPES = ("application/grpc", "application/grpc+proto")
_TIMEOUT = "grpc-timeout"
# The value of a timeout that needs no further check. Others are read as headers like any other.
_PLAIN = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
# The sets of headers that a connection keeps, and the header blocks, and the bytes of one. They take at most 32 KiB.
_MOST, _SHORT = 8, 512

Raw = Sequence[tuple[bytes, bytes]]


class Head:
    """The headers of a request, usually without its timeout.

    Attributes:
        headers: all of them.
        malformed: why they are not allowed in HTTP/2, or None.
        length: the content-length, or None.
        path: the path of the called method.
        refused: the HTTP status that refuses them, because they are not gRPC's, or None.
        is_short: True if they are kept for later requests.
        is_limited: True if they have a timeout after all.
        unreadable: why the metadata can't be read, or None.
    """

    __slots__ = (
        "_metadata",
        "headers",
        "is_limited",
        "is_short",
        "length",
        "malformed",
        "path",
        "refused",
        "unreadable",
    )

    def __init__(self, headers: list[tuple[str, str]]) -> None:
        self.headers = headers
        self.is_short = False
        self.malformed = malformed_request(headers)
        self.length = content_length(headers) if self.malformed is None else None
        given = dict(headers)
        self.path = given.get(":path", "")
        self.refused = _wrong_request(given)
        self.is_limited = _TIMEOUT in given
        self.unreadable: str | None = None
        try:
            self._metadata = decode_metadata(headers)
        except (ValueError, OverflowError) as error:
            self.unreadable = str(error)

    def metadata(self) -> Any:
        """Return a copy of the metadata. Do not call it if they are unreadable."""
        return self._metadata.copy()


class Request:
    """The headers of one request.

    Attributes:
        head: what it has in common with others of the connection.
        timeout: the value of its timeout, if it is apart from the head.
    """

    __slots__ = ("head", "timeout")

    def __init__(self, head: Head, timeout: tuple[bytes, float] | None = None) -> None:
        self.head = head
        self.timeout = timeout

    @property
    def headers(self) -> list[tuple[str, str]]:
        """All headers, in a list of their own."""
        timeout = [] if self.timeout is None else [(_TIMEOUT, self.timeout[0].decode())]
        return self.head.headers + timeout

    def deadline(self) -> Deadline | None:
        """Return the deadline of a call that begins now.

        Raises:
            GRPCError: a header is invalid.
        """
        if self.head.unreadable is not None:
            raise _malformed(self.head.unreadable)
        if self.timeout is not None:
            return Deadline.from_timeout(self.timeout[1])
        if not self.head.is_limited:
            return None
        try:
            return Deadline.from_headers(self.head.headers)
        except (ValueError, OverflowError) as error:
            raise _malformed(error) from error


class Requests:
    """The sets of headers that the requests of one connection have had, and their header blocks."""

    __slots__ = ("_at", "_blocks", "_heads")

    def __init__(self) -> None:
        self._heads: dict[tuple[tuple[bytes, bytes], ...], Head] = {}
        # The blocks mean the same as long as the decoder's table is what it was after this number of changes.
        self._blocks: dict[bytes, Request] = {}
        self._at = 0

    def known(self, block: bytes, changes: int) -> Request | None:
        """Return the request of a header block that was kept, if the table has not changed since."""
        if changes != self._at:
            self._blocks.clear()
            self._at = changes
        return self._blocks.get(block)

    def keep(self, block: bytes, request: Request) -> None:
        """Keep the request of a header block that `known` has not known."""
        if request.head.is_short and len(block) <= _SHORT:
            if len(self._blocks) >= _MOST:
                self._blocks.clear()
            self._blocks[block] = request

    def read(self, raw: Raw) -> Request:
        """Return the request with these headers, as decoded from its header block.

        Raises:
            UnicodeDecodeError: a header is not UTF-8.
        """
        timeout, common = _split(raw)
        head = self._heads.get(common)
        if head is None:
            head = Head([(name.decode(), value.decode()) for name, value in common])
            head.is_short = sum([len(name) + len(value) for name, value in common]) <= _SHORT
            if head.is_short:
                if len(self._heads) >= _MOST:
                    self._heads.clear()
                self._heads[common] = head
        return Request(head, timeout)


def _split(raw: Raw) -> tuple[tuple[bytes, float] | None, tuple[tuple[bytes, bytes], ...]]:
    """Return the timeout, which is another one in each request, and the other headers.

    A timeout stays among the headers if it is given twice or not in the usual form, for the checks of `Head`.
    """
    names = [name for name, _ in raw]
    if names.count(b"grpc-timeout") == 1:
        at = names.index(b"grpc-timeout")
        if match := _PLAIN.fullmatch(raw[at][1]):
            return (match[0], int(match[1]) * _SECONDS[match[2]]), (*raw[:at], *raw[at + 1 :])
    return None, tuple(raw)


def _malformed(error: object) -> GRPCError:
    return GRPCError(Status.INTERNAL, f"malformed metadata: {error}")


def _wrong_request(headers: dict[str, str]) -> str | None:
    """Return the HTTP status for rejecting a request that is not gRPC, or None if it is gRPC."""
    if headers.get(":method") != "POST":
        return "405"
    if headers.get("content-type") not in _CONTENT_TYPES:
        return "415"
    return None if headers.get("te") == "trailers" else "400"
