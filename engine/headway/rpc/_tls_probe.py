"""A probe that finds out if a server expects TLS, after it has closed a plain connection without an answer."""

from __future__ import annotations

import contextlib
import ssl

import trio

from headway.rpc._addresses import Address
from headway.rpc._foreign import TLS_RECORDS


async def expects_tls(where: Address) -> bool:
    """Return True if the server answers the first message of a TLS handshake with TLS."""
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
            return (await stream.receive_some(2)).startswith(TLS_RECORDS)
    except (OSError, trio.BrokenResourceError):
        return False
