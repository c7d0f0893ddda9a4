"""The application behind an HTTP server, and a block that serves it: the paths, the methods of each, and the answers to
failed requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.api import Code
from headway.base import block_nursery, check_trio
from headway.http._address import check_http_address, names_loopback
from headway.http._answer import refused
from headway.http._bounds import Bounds, Shares
from headway.http._collection import get_collection
from headway.http._offered import Exchange, Offered
from headway.http._openapi import get_document
from headway.http._refusal import HttpRefusal
from headway.http._server import CLOSE, HttpServer, Tls, listener, listening_at
from headway.http._verbs import delete, get, patch, put, put_status
from headway.resource import quoted

Verb = Callable[[Exchange], Awaitable[Response]]

COLLECTION = "/api/{group}/{version}/{kind}"
ITEM = COLLECTION + "/{name}"
STATUS = ITEM + "/status/{key}"
DOCUMENT = "/api/openapi.json"

PATHS: Mapping[str, Mapping[str, Verb]] = {
    DOCUMENT: {"GET": get_document},
    COLLECTION: {"GET": get_collection},
    ITEM: {"GET": get, "PUT": put, "PATCH": patch, "DELETE": delete},
    STATUS: {"PUT": put_status},
}
"""The methods of each path, and their verbs."""


Further = Callable[[Shares], Mapping[str, ASGIApp]]
"""A function that returns the applications of further paths, which share the bodies and watches."""


class HttpApp:
    """An ASGI application that serves resources.

    Args:
        offered: what it serves.
        further: further paths. They get only requests that the limits and the check of the host allow.
        json_api: False to serve the further paths alone.

    Attributes:
        shares: the bodies and watches of its requests.
    """

    def __init__(self, offered: Offered, further: Further | None = None, *, json_api: bool = True) -> None:
        self.shares = Shares(offered.limits, offered.replies)
        self._offered = offered
        new = partial(Exchange, offered, self.shares)
        routes = [Route(path, Endpoint(new, methods)) for path, methods in PATHS.items() if json_api]
        if further is not None:
            routes += [Route(path, app) for path, app in further(self.shares).items()]
        self._router = Router(routes, redirect_slashes=False, default=_not_found if json_api else _no_page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif scope["type"] == "http":
            request = Request(scope, receive)
            refusal = self._refusal(request)
            if refusal is None:
                await self._router(scope, receive, send)
            else:
                await Exchange(self._offered, self.shares, request).drain()
                await refused(refusal)(scope, receive, send)

    def _refusal(self, request: Request) -> HttpRefusal | None:
        """Return the refusal of a request that no path may answer, or None."""
        if request.scope["http_version"] not in ("1.0", "1.1"):
            # The connections speak HTTP/1 alone. If one ever did not, these limits would not hold for it.
            return HttpRefusal(505, "UNIMPLEMENTED", "use HTTP/1.1")
        most = self._offered.limits.head_size
        if _head_size(request.scope) > most:
            # Hypercorn bounds only what has arrived of an incomplete head.
            return HttpRefusal(431, Code.RESOURCE_EXHAUSTED.name, f"the head may have {most} bytes at most")
        if "transfer-encoding" in request.headers and "content-length" in request.headers:
            # A proxy and this server could take different bytes for the next request.
            why = "a request must not have both transfer-encoding and content-length: remove one"
            return HttpRefusal(400, Code.INVALID_ARGUMENT.name, why, headers={"connection": "close"})
        hosts = request.headers.getlist("host")
        if self._offered.access is None and not (len(hosts) == 1 and names_loopback(hosts[0])):
            shown = quoted(hosts[0]) if hosts else "missing"
            why = f"Host {shown}: a server without access control answers only to localhost, 127.0.0.1 and [::1]"
            return HttpRefusal(403, Code.PERMISSION_DENIED.name, why)
        return None


def _head_size(scope: Scope) -> int:
    lines = sum(len(name) + len(value) for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + lines


class Endpoint:
    """The verbs of a path, as an ASGI application.

    Args:
        new: returns the exchange of a request.
        methods: the methods and their verbs.
    """

    def __init__(self, new: Callable[[Request], Exchange], methods: Mapping[str, Verb]) -> None:
        self._new = new
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        exchange = self._new(request)
        reply = exchange.reply
        reply.end = scope.get("extensions", {}).get(CLOSE)
        try:
            response = await self._response(exchange, request.method)
            if response.status_code >= 400:
                await exchange.drain()
            elif body := getattr(response, "body", b""):
                reply.hold(len(body))
            if request.method == "HEAD":
                await _head(response, scope, receive, send)
            else:
                await response(scope, receive, send)
        finally:
            reply.hold(0)

    async def _response(self, exchange: Exchange, method: str) -> Response:
        verb = self._methods.get("GET" if method == "HEAD" else method)
        try:
            if verb is None:
                allowed = ", ".join([*self._methods, "HEAD"] if "GET" in self._methods else self._methods)
                raise HttpRefusal(
                    405, "UNIMPLEMENTED", f"{method} is not allowed here: use {allowed}", headers={"allow": allowed}
                )
            await exchange.wait_for_keys()
            return await verb(exchange)
        except Exception as error:  # noqa: BLE001  # one request must not end the others of the server
            return refused(exchange.offered.refusal(exchange.request.url.path, error))


async def _head(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the head of a response. Its content is not made, or, of a watch, ends before it begins."""
    with trio.CancelScope() as whole:

        async def begin(message: Message) -> None:
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            whole.cancel()
            await trio.lowlevel.checkpoint()

        await response(scope, receive, begin)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    why = f"{quoted(scope['path'])} not found: the paths are {COLLECTION}[/{{name}}], and {DOCUMENT}"
    await refused(HttpRefusal(404, Code.NOT_FOUND.name, why))(scope, receive, send)


async def _no_page(scope: Scope, receive: Receive, send: Send) -> None:
    await refused(HttpRefusal(404, Code.NOT_FOUND.name, f"{quoted(scope['path'])} not found"))(scope, receive, send)


_GRACE = 5.0
"""The time limit, in seconds, for the requests in progress when the server stops."""


@asynccontextmanager
async def open_http(
    address: str,
    offered: Offered,
    bounds: Bounds,
    tls: Tls | None = None,
    further: Further | None = None,
    *,
    json_api: bool = True,
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
        json_api: False to serve these alone.

    Raises:
        InvalidArgument: the address is invalid, or others could reach it and do everything.
        OSError: the address cannot be bound.
    """
    check_trio("headway.http.open_http")
    check_http_address(address, controlled=offered.access is not None)
    app = HttpApp(offered, further, json_api=json_api)
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
