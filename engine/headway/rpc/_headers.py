"""Validation of the headers that a peer sends (RFC 9113, section 8). No I/O.

h2 can validate headers too, but it takes several times as long, and an error ends the whole connection. Here a
malformed request ends only its own stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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
        "x-consul-token",
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
