"""One GET over HTTP/1.1 on Trio, with a bound on the size of the answer. The caller bounds the time.

It follows no redirect, asks no proxy and accepts no encoding. h11 parses HTTP, and is imported for the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    import ssl

_PIECE = 65_536
_OK = 200


class GetFailed(Exception):
    """A GET gave no answer that can be used. The message says why."""


async def http_get(
    address: tuple[str, int],
    target: str,
    *,
    authority: str,
    accept: str,
    most_bytes: int,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Return the body of the answer to a GET, over TLS if a context is given. Raises GetFailed."""
    import h11

    headers = [
        ("host", authority),
        # Firewalls for web applications often refuse a request without one.
        ("user-agent", "headway"),
        ("connection", "close"),
        ("accept", accept),
        # An encoded body could be small and expand without a bound.
        ("accept-encoding", "identity"),
    ]
    connection = h11.Connection(h11.CLIENT)
    request = connection.send(h11.Request(method="GET", target=target, headers=headers)) or b""
    request += connection.send(h11.EndOfMessage()) or b""
    try:
        async with await _open(address, context) as stream:
            await stream.send_all(request)
            return await _body(stream, connection, most_bytes)
    except (OSError, UnicodeError, trio.BrokenResourceError) as error:
        cause = error.__cause__ or "the connection was lost" if isinstance(error, trio.BrokenResourceError) else error
        raise GetFailed(f"{getattr(cause, 'strerror', None) or cause!s:.300}") from error
    except h11.RemoteProtocolError as error:
        raise GetFailed(f"the answer is not HTTP: {error!s:.200}") from error


async def _open(address: tuple[str, int], context: ssl.SSLContext | None) -> trio.abc.Stream:
    if context is None:
        return await trio.open_tcp_stream(*address)
    # Closing one of these never waits, so a peer cannot hold the task after the answer.
    return await trio.open_ssl_over_tcp_stream(*address, ssl_context=context, https_compatible=True)


async def _body(stream: trio.abc.Stream, connection: Any, most_bytes: int) -> bytes:
    import h11

    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_PIECE)))
        elif isinstance(event, h11.Response):
            if event.status_code != _OK:
                raise GetFailed(f"the answer has status {event.status_code}, not {_OK}")
            if any(name == b"content-encoding" and value != b"identity" for name, value in event.headers):
                raise GetFailed("the answer is compressed, although that was not offered")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > most_bytes:
                raise GetFailed(f"the answer has more than {most_bytes} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            raise GetFailed("the connection was closed within the answer")
