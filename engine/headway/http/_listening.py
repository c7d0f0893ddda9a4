"""A block that serves resources over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from headway.base import block_nursery, check_trio
from headway.http._address import check_http_address
from headway.http._app import Further, HttpApp
from headway.http._bounds import Bounds
from headway.http._offered import Offered
from headway.http._server import HttpServer, Tls, listener, listening_at

_GRACE = 5.0
"""The time limit, in seconds, for the requests in progress when the server stops."""


@asynccontextmanager
async def open_http(
    address: str, offered: Offered, bounds: Bounds, tls: Tls | None = None, further: Further | None = None
) -> AsyncIterator[str]:
    """Serve resources at ``HOST:PORT`` while the block runs. Yield the address, with the actual port.

    At the end of the block, also when it is canceled, watches end with UNAVAILABLE, and other requests get five seconds
    to finish.

    Args:
        address: the address. Without ``offered.access``, it must be a loopback address.
        offered: what is served.
        bounds: the limits on connections.
        tls: returns the TLS context for a new connection; None for plain text.
        further: further paths that are served, such as those of the live page.

    Raises:
        InvalidArgument: the address is invalid, or others could reach it and do everything.
        OSError: the address cannot be bound.
    """
    check_trio("headway.http.open_http")
    check_http_address(address, controlled=offered.access is not None)
    app = HttpApp(offered, further)
    bound = listener(address)
    accepting = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
    ending = trio.Event()
    ended = trio.Event()

    def end() -> None:
        app.shares.stop()
        ending.set()

    async def serve() -> None:
        try:
            # SIGTERM cancels the block, which must not cut off the answers to what has been written. `end` ends this.
            with trio.CancelScope(shield=True):
                await HttpServer(app, bounds, tls).serve(accepting, ending, _GRACE)
        finally:
            ended.set()

    async def end_when_canceled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            # At once, and not only when what the block holds has ended: a gRPC server takes as long again.
            end()

    async with block_nursery() as nursery:
        nursery.start_soon(serve, name=f"HTTP at {address}")
        nursery.start_soon(end_when_canceled, name=f"the end of HTTP at {address}")
        try:
            yield listening_at(bound)
        finally:
            end()
            await ended.wait()
