"""What answers at an address that is not a gRPC server's, as far as its first bytes tell. Pure."""

from __future__ import annotations

import ssl

FIRST_BYTES = 16
"""How many of a server's first bytes are looked at."""

EXPECTS_TLS = "it expects TLS: give tls=headway.rpc.client_tls(...)"

_FRAME_HEAD = 9
_SETTINGS, _GOAWAY = 4, 7
TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
# A proxy says so of a server behind it that is starting, busy or failing. 501 and 505 are about HTTP itself.
_PASSING = (b"408", b"429", b"500", b"502", b"503", b"504")
_NOT_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_NOT_FOR_HTTP2 = ("TLSV1_ALERT_NO_APPLICATION_PROTOCOL", "NO_APPLICATION_PROTOCOL")


def foreign_answer(first: bytes) -> str | None:
    """Say what speaks there instead of HTTP/2; None for HTTP/2, and for what may pass."""
    if first.startswith(b"HTTP/"):
        if first[9:12] in _PASSING or len(first) < 12:
            return None
        return "it answers in HTTP/1, as a web server does, or a proxy that doesn't pass HTTP/2 on"
    if first.startswith(TLS_RECORDS):
        return EXPECTS_TLS
    if len(first) < _FRAME_HEAD or (first[3] in (_SETTINGS, _GOAWAY) and not any(first[5:9])):
        return None
    return f"it answers with what is not HTTP/2 ({first!r})"


def foreign_handshake(error: BaseException) -> str | None:
    """Say what a failed TLS handshake tells of the server; None where another one may succeed."""
    if not isinstance(error, ssl.SSLError):
        return None
    if error.reason in _NOT_TLS:
        return "it does not speak TLS: leave tls out"
    return "it speaks TLS, and no HTTP/2 beneath" if error.reason in _NOT_FOR_HTTP2 else None
