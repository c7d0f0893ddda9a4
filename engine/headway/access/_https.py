"""One GET over HTTPS on Trio, with a bound on the size of the answer. The caller bounds the time.

It follows no redirect, asks no proxy and accepts no encoding. h11 parses HTTP, and is imported for the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import trio

if TYPE_CHECKING:
    import ssl

    import h11

_PORT = 443
_PIECE = 65_536
# A longer one would fill the log, because each failure names its URL.
_LONGEST = 2_000
_OK = 200


class GetFailed(Exception):
    """A GET gave no answer that can be used. The message says why, and begins with the URL."""


class HttpsUrl(NamedTuple):
    """The parts of an ``https://`` URL that a request needs. An address of IPv6 has no brackets in ``host``."""

    host: str
    port: int
    authority: str
    target: str


def https_url(text: object) -> HttpsUrl | None:
    """Return the parts of a URL, or None if it is not one for HTTPS, is too long, or has a user, a fragment or odd
    characters.
    """
    if not isinstance(text, str) or len(text) > _LONGEST or not text.isascii() or not text.isprintable() or " " in text:
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc or "#" in text or "\\" in text:
        return None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HttpsUrl(parts.hostname, _PORT if port is None else port, parts.netloc, target)


async def get(url: str, context: ssl.SSLContext, most_bytes: int) -> bytes:
    """Return the body of the answer to a GET. Raises GetFailed."""
    import h11

    parts = https_url(url)
    if parts is None:
        raise GetFailed(f"{url[:200]}: it must be an https:// URL without a user or a fragment")
    try:
        # Closing one of these never waits, so a peer cannot hold the task after the answer.
        stream = await trio.open_ssl_over_tcp_stream(parts.host, parts.port, ssl_context=context, https_compatible=True)
        async with stream:
            return await _body(stream, h11.Connection(h11.CLIENT), parts, url, most_bytes)
    except trio.BrokenResourceError as error:
        raise GetFailed(f"{url}: {error.__cause__ or 'the connection was lost'!s:.300}") from error
    except OSError as error:
        raise GetFailed(f"{url}: {error.strerror or error!s:.300}") from error
    except h11.RemoteProtocolError as error:
        raise GetFailed(f"{url}: the answer is not HTTP: {error!s:.200}") from error


async def _body(
    stream: trio.SSLStream[trio.SocketStream], connection: h11.Connection, url: HttpsUrl, shown: str, most_bytes: int
) -> bytes:
    import h11

    headers = [
        ("host", url.authority),
        # Firewalls for web applications often refuse a request without one.
        ("user-agent", "headway"),
        ("connection", "close"),
        ("accept", "application/json"),
        # An encoded body could be small and expand without a bound.
        ("accept-encoding", "identity"),
    ]
    request = h11.Request(method="GET", target=url.target, headers=headers)
    await stream.send_all((connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_PIECE)))
        elif isinstance(event, h11.Response):
            if event.status_code != _OK:
                raise GetFailed(f"{shown}: the answer has status {event.status_code}, and 200 is expected")
            if any(name == b"content-encoding" and value != b"identity" for name, value in event.headers):
                raise GetFailed(f"{shown}: the answer is compressed, although that was not offered")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > most_bytes:
                raise GetFailed(f"{shown}: the answer has more than {most_bytes} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            raise GetFailed(f"{shown}: the connection was closed within the answer")
