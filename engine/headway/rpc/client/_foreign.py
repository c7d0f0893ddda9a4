"""Reasons why a server cannot be used: it does not speak HTTP/2, it expects TLS, or its certificate is rejected."""

from __future__ import annotations

import contextlib
import ssl

import trio

from headway.rpc._addresses import Address
from headway.rpc._channel import Obstacle, Remedy

FIRST_BYTES = 16
"""The number of bytes to check at the beginning of a server's output."""

EXPECTS_TLS = Obstacle("it expects TLS", Remedy.USE_TLS)
ENDS_AFTER_HANDSHAKE = Obstacle("it closes the connection after the handshake", Remedy.GIVE_CERTIFICATE)

_FRAME_HEAD = 9
_SETTINGS, _GOAWAY = 4, 7
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
# A proxy answers with these if the server behind it is starting, busy or failing. 501 and 505 are about HTTP itself.
_PASSING = (b"408", b"429", b"500", b"502", b"503", b"504")
_NOT_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_NOT_FOR_HTTP2 = ("TLSV1_ALERT_NO_APPLICATION_PROTOCOL", "NO_APPLICATION_PROTOCOL")
# OpenSSL's codes for the reasons why a certificate is rejected (X509_V_ERR_…).
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
_OTHER_NAME = (62, 64)


def foreign_answer(first: bytes) -> Obstacle | None:
    """Return a description of the protocol that is spoken instead of HTTP/2, or None.

    None means HTTP/2, an unknown protocol so far, or a temporary failure.
    """
    if first.startswith(b"HTTP/"):
        if first[9:12] in _PASSING or len(first) < 12:
            return None
        return Obstacle("it answers in HTTP/1, as a web server does, or a proxy that doesn't forward HTTP/2")
    if first.startswith(_TLS_RECORDS):
        return EXPECTS_TLS
    if len(first) < _FRAME_HEAD or (first[3] in (_SETTINGS, _GOAWAY) and not any(first[5:9])):
        return None
    return Obstacle(f"its answer is not HTTP/2 ({first!r})")


def foreign_handshake(error: BaseException) -> Obstacle | None:
    """Return why the server of a failed TLS handshake can't be used, or None if another attempt may succeed."""
    if not isinstance(error, ssl.SSLError):
        return None
    if error.reason in _NOT_TLS:
        return Obstacle("it does not speak TLS", Remedy.LEAVE_OUT_TLS)
    return Obstacle("it speaks TLS, but not HTTP/2") if error.reason in _NOT_FOR_HTTP2 else None


def certificate_refused(error: BaseException) -> Obstacle | None:
    """Return why the server's certificate was rejected and what to do, or None if the error is about something else."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    why = error.verify_message.rstrip(".")
    if error.verify_code == _EXPIRED:
        return Obstacle("its certificate has expired: renew the server's certificate")
    if error.verify_code == _NOT_YET_VALID:
        return Obstacle("its certificate is not valid yet: compare the clocks of both machines")
    if error.verify_code in _OTHER_NAME:
        use = "use one of its names in the address, or give one with server_name="
        return Obstacle(f"its certificate is for another name ({why}): {use}")
    if error.verify_code in _UNKNOWN_AUTHORITY:
        reason = f"its certificate is signed by an authority that is not trusted here ({why})"
        return Obstacle(reason, Remedy.NAME_AUTHORITY)
    return Obstacle(f"its certificate is not valid here ({why}): replace the server's certificate")


async def expects_tls(where: Address) -> bool:
    """Return True if the server answers the first message of a TLS handshake with TLS.

    It is called after the server has closed a plain connection without an answer.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # No verification is needed: only the first message is sent, and the answer is not trusted.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
    try:
        stream = await trio.open_tcp_stream(where.host, where.port)
        async with stream:
            await stream.send_all(hello.read())
            return (await stream.receive_some(2)).startswith(_TLS_RECORDS)
    except (OSError, trio.BrokenResourceError):
        return False
