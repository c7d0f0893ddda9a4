"""Recognition of servers that don't speak HTTP/2, by their first bytes or a failed TLS handshake. No I/O."""

from __future__ import annotations

import ssl

FIRST_BYTES = 16
"""The number of bytes to check at the beginning of a server's output."""

EXPECTS_TLS = "it expects TLS: give tls=headway.rpc.client_tls(...)"

ASKS_FOR_A_CERTIFICATE = (
    "it closes the connection after the handshake: if it asks for a client's certificate, give one by "
    "tls=headway.rpc.client_tls(certificate='client.pem'), or --tls-certificate"
)

_FRAME_HEAD = 9
_SETTINGS, _GOAWAY = 4, 7
TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
# A proxy answers with these if the server behind it is starting, busy or failing. 501 and 505 are about HTTP itself.
_PASSING = (b"408", b"429", b"500", b"502", b"503", b"504")
_NOT_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_NOT_FOR_HTTP2 = ("TLSV1_ALERT_NO_APPLICATION_PROTOCOL", "NO_APPLICATION_PROTOCOL")


def foreign_answer(first: bytes) -> str | None:
    """Return a description of the protocol that is spoken instead of HTTP/2, or None.

    None means HTTP/2, an unknown protocol so far, or a temporary failure.
    """
    if first.startswith(b"HTTP/"):
        if first[9:12] in _PASSING or len(first) < 12:
            return None
        return "it answers in HTTP/1, as a web server does, or a proxy that doesn't forward HTTP/2"
    if first.startswith(TLS_RECORDS):
        return EXPECTS_TLS
    if len(first) < _FRAME_HEAD or (first[3] in (_SETTINGS, _GOAWAY) and not any(first[5:9])):
        return None
    return f"its answer is not HTTP/2 ({first!r})"


def foreign_handshake(error: BaseException) -> str | None:
    """Return why the server of a failed TLS handshake can't be used, or None if another attempt may succeed."""
    if not isinstance(error, ssl.SSLError):
        return None
    if error.reason in _NOT_TLS:
        return "it does not speak TLS: leave tls out"
    return "it speaks TLS, but not HTTP/2" if error.reason in _NOT_FOR_HTTP2 else None


def certificate_refused(error: BaseException) -> str | None:
    """Return why the server's certificate was rejected and what to do, or None if the error is about something else."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    why = error.verify_message.rstrip(".")
    if error.verify_code == _EXPIRED:
        return "its certificate has expired: renew the server's certificate"
    if error.verify_code == _NOT_YET_VALID:
        return "its certificate is not valid yet: compare the clocks of both machines"
    if error.verify_code in _OTHER_NAME:
        return f"its certificate is for another name ({why}): use a name that it has in the address, or by server_name="
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            f"its certificate is signed by an authority that is not trusted here ({why}): "
            "give the authority's file by tls=headway.rpc.client_tls('ca.pem'), or --tls-authority"
        )
    return f"its certificate is not valid here ({why}): replace the server's certificate"


# OpenSSL's codes for the reasons why a certificate is rejected (X509_V_ERR_…).
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
_OTHER_NAME = (62, 64)
