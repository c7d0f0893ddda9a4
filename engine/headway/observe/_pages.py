"""Pages over HTTP for monitoring a process: ``/metrics``, ``/healthz`` and ``/readyz``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from headway.base import check_plain, check_trio
from headway.errors import DeclarationError, InvalidArgument
from headway.http import Bounds, check_hypercorn, host_and_port, names_loopback
from headway.observe._metrics import Metrics, Status
from headway.rpc import is_loopback
from headway.storage import StoreProblem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Page = tuple[int, bytes, bytes]
Store = Callable[[], StoreProblem | None]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PLAIN = b"text/plain; charset=utf-8"
METRICS = b"text/plain; version=0.0.4; charset=utf-8"
NOT_FOUND: Page = (404, PLAIN, b"not found: the pages are /metrics, /healthz and /readyz\n")
_OTHER_HOST: Page = (
    403,
    PLAIN,
    b"these pages answer only to localhost, 127.0.0.1 and [::1], unless they are public\n",
)
_GRACE = 2.0
# 16 connections are half of the 32 or more file descriptors that the network leaves to the rest of the process. Each
# request has 5 seconds to arrive.
_BOUNDS = Bounds(connections=16, peer_connections=16, patience=5.0, answer=10.0, evict_answering=True)
_FORM = "open_pages('127.0.0.1:9090', engine.status, metrics, lambda: engine.store_problem)"


def unready(status: Status, store: Store | None = None) -> list[str]:
    """Return a line for the store if it is unusable, and one for each controller that is not reconciling.

    The list is empty if all is well. The lines contain the messages of the program's errors, so they are for logs only;
    ``/readyz`` has `ControllerStatus.cause` instead.
    """
    problem = None if store is None else store()
    # An error's message may contain line breaks.
    lines = [" ".join(f"{each.name} {each.problem}".split()) for each in status() if each.problem]
    return lines if problem is None else [problem.value, *lines]


class Pages:
    """An ASGI application with these pages, for your own server; `open_pages` includes a server.

    - ``/metrics``: for Prometheus.
    - ``/healthz``: 200, or 503 if the store must be opened again, as a restart of the process does.
    - ``/readyz``: 200 if the store can be used and every controller is reconciling. Otherwise 503, with a line for the
      store and one for each controller that is not reconciling: its name and `ControllerStatus.cause`, without the text
      of an error. Either answer also has a line for each controller that leaves out resources whose payloads do not
      decode, and for each that workers ran and that runs in no process now.

    ``store`` is a function such as ``lambda: engine.store_problem``.
    """

    def __init__(self, status: Status, metrics: Metrics | None = None, store: Store | None = None) -> None:
        check_plain("the pages' status", status, 0, "no argument", _FORM)
        if store is not None:
            check_plain("the pages' store", store, 0, "no argument", _FORM)
        self._store = store
        self._status = status
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI application."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await send_page(scope, send, self.page(scope["path"]))

    def page(self, path: str) -> Page:
        """Return the status code, the content type and the body of a page."""
        if path == "/healthz":
            problem = None if self._store is None else self._store()
            if problem is not None and problem.mended_by_reopening:
                return 503, PLAIN, f"{problem.value}\n".encode()
            return 200, PLAIN, b"ok\n"
        if path == "/readyz":
            problem = None if self._store is None else self._store()
            problems = [] if problem is None else [problem.value]
            statuses = self._status()
            absent = [each for each in statuses if each.phase == "absent"]
            problems += [f"{each.name}: {each.cause}" for each in statuses if each.cause and each not in absent]
            # One bad resource must not remove a whole service from its load balancer.
            lines = problems + [f"{each.name}: {each.brief_notice}" for each in statuses if each.brief_notice]
            # Workers come back through the load balancer, so it must keep this process while they are away.
            lines += [f"{each.name}: {each.cause}" for each in absent]
            if not problems:
                lines.insert(0, "ok")
            return 503 if problems else 200, PLAIN, "".join(f"{each}\n" for each in lines).encode()
        if path == "/metrics" and self._metrics is not None:
            return 200, METRICS, self._metrics.text()
        return NOT_FOUND


async def send_page(scope: Scope, send: Send, page: Page) -> None:
    """Answer a request for a page."""
    status, kind, body = page if scope["method"] in ("GET", "HEAD") else (405, PLAIN, b"only GET and HEAD\n")
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _local(pages: App) -> App:
    """Return the application of the pages for requests whose Host is this machine, as a browser's own would be."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # A browser names a host in each request. Other programs may leave it out, in HTTP/1.0.
        hosts = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] == "http" and not all(map(names_loopback, hosts)):
            await send_page(scope, send, _OTHER_HOST)
        else:
            await pages(scope, receive, send)

    return answer


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


@asynccontextmanager
async def open_pages(
    address: str, status: Status, metrics: Metrics | None = None, store: Store | None = None, *, public: bool = False
) -> AsyncIterator[str]:
    """Serve the pages at ``HOST:PORT`` while the block runs. Return the address, with the actual port.

    ``store`` returns the problem of the store: ``lambda: engine.store_problem``.

    At most 16 connections are open at once. One more closes the oldest that is not being answered.

    Every client that can connect can read the pages, which contain the names of controllers and types, and counts. An
    address that other hosts can reach therefore needs ``public=True``. Without it, the pages answer only requests whose
    Host is ``localhost`` or a loopback address, because a site could point its own name there (DNS rebinding).

    Raises:
        InvalidArgument: for an address that other hosts can reach, without ``public=True``.
        OSError: if the address cannot be bound.
        DeclarationError: without ``pip install 'headway[metrics]'``.
        ImportError: if the installed version of Hypercorn does not work.
    """
    check_trio("headway.observe.open_pages")
    async with serving_pages(address, Pages(status, metrics, store), public=public) as served:
        yield served


@asynccontextmanager
async def serving_pages(address: str, pages: App, *, public: bool) -> AsyncIterator[str]:
    """Serve an application as `open_pages` serves its pages, and yield the address with the actual port."""
    if not public and not is_loopback(host_and_port(address)[0]):
        raise InvalidArgument(
            f"{address}: others can reach this address and read the state of the controllers: "
            "use 127.0.0.1, or open_pages(..., public=True)"
        )
    try:
        check_hypercorn()
        from headway.http import HttpServer, listener, listening_at
    except ModuleNotFoundError as error:
        raise DeclarationError("pages over HTTP need Hypercorn: pip install 'headway[metrics]'") from error
    listening = listener(address)
    server = HttpServer(pages if public else _local(pages), _BOUNDS)
    ending = trio.Event()
    async with trio.open_nursery() as nursery:
        accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        nursery.start_soon(server.serve, accepting, ending, _GRACE, name=f"pages at {address}")
        try:
            yield listening_at(listening)
        finally:
            ending.set()
