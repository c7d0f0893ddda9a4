"""What answers at an address that is not a gRPC server's, as far as its first bytes tell. Pure."""

from __future__ import annotations

import ssl

FIRST_BYTES = 16
"""How many of a server's first bytes are looked at."""

EXPECTS_TLS = "it expects TLS: give tls=headway.rpc.client_tls(...)"

ASKS_FOR_A_CERTIFICATE = (
    "it closes the connection after the handshake: if it asks for a client's certificate, give one by "
    "tls=headway.rpc.client_tls(certificate='client.pem'), or --tls-certificate"
)

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


def certificate_refused(error: BaseException) -> str | None:
    """Say why the server's certificate was refused, and what to do; None if the error is not about one."""
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


# OpenSSL's numbers of why a certificate is refused (X509_V_ERR_…).
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
_OTHER_NAME = (62, 64)
