"""Pages over HTTP for monitoring a process: ``/metrics``, ``/healthz`` and ``/readyz``.

The pages of several processes of one server are one. Each process hands out its own, and their supervisor joins them:
it asks by calls of a service of their own, on sockets that nothing else can reach.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

from headway.api import Api, Call, method
from headway.base import check_plain, check_trio
from headway.errors import DeclarationError, InvalidArgument
from headway.http import Bounds, check_hypercorn, host_and_port, names_loopback
from headway.observe._metrics import Metrics, Status
from headway.protobuf import field, message
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


PAGE = "/headway.processes.Pages/Page"
_PATHS = ("/metrics", "/healthz", "/readyz")


@message(name="headway.processes.PageRequest")
class PageRequest:
    """A request for a page of one process."""

    path: str = field(1)


@message(name="headway.processes.PageResponse")
class PageResponse:
    """A page of one process."""

    code: int = field(1)
    body: bytes = field(2)


class PagesService(Api, service="headway.processes.Pages"):
    """Serves the pages of one process to its supervisor."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    @method("Page", PageRequest, PageResponse)
    async def page(self, _call: Call, request: PageRequest) -> PageResponse:
        """Return a page."""
        code, _, body = self._pages.page(request.path)
        return PageResponse(code=code, body=body)


class ProcessState(NamedTuple):
    """A process of the server, as its supervisor knows it.

    Attributes:
        serves: True if it serves clients; otherwise it starts, or waits to be started again.
        restarts: how often it was started again.
        ask: returns one of its pages, or None if it does not answer.
    """

    name: str
    serves: bool
    restarts: int
    ask: Callable[[str], Awaitable[PageResponse | None]]


class AllPages:
    """An ASGI application with the pages of several processes as one.

    Args:
        processes: returns the states of the processes.
    """

    def __init__(self, processes: Callable[[], Sequence[ProcessState]]) -> None:
        self._processes = processes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's form
        """Answer a request, as an ASGI application."""
        if scope["type"] == "http":
            await send_page(scope, send, await self._page(scope["path"]))

    async def _page(self, path: str) -> Page:
        if path not in _PATHS:
            return NOT_FOUND
        processes = self._processes()
        answers: dict[str, PageResponse | None] = {}

        async def ask(process: ProcessState) -> None:
            answers[process.name] = await process.ask(path)

        async with trio.open_nursery() as nursery:
            for each in processes:
                if each.serves:
                    nursery.start_soon(ask, each)
        # A process that has begun to end meanwhile need not have answered.
        processes = self._processes()
        if path == "/metrics":
            pages = {name: answer.body.decode() for name, answer in answers.items() if answer is not None}
            return 200, METRICS, (joined_metrics(pages) + _own_metrics(processes, pages)).encode()
        failed = path == "/readyz" and not answers
        lines = []
        for each in processes:
            answer = answers.get(each.name)
            if answer is not None:
                failed |= answer.code != 200
                lines += [f"{each.name}: {line}" for line in answer.body.decode().splitlines()]
            elif each.serves:
                failed = True
                lines.append(f"{each.name}: does not answer")
            else:
                lines.append(f"{each.name}: is being started")
        return 503 if failed else 200, PLAIN, "".join(f"{each}\n" for each in lines).encode()


def joined_metrics(pages: Mapping[str, str]) -> str:
    """Return the metrics of several processes in Prometheus' text format, with the label ``process``.

    Args:
        pages: the page of each process by its name, as prometheus-client writes it.
    """
    # The format wants all samples of a metric together, after its comments.
    families: dict[str, list[str]] = {}
    heads: dict[str, list[str]] = {}
    for process, page in sorted(pages.items()):
        family = ""
        for line in page.splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                if family not in families:
                    families[family], heads[family] = [], []
                if line not in heads[family]:
                    heads[family].append(line)
            elif line:
                families[family].append(_labeled(line, process))
    return "".join(f"{line}\n" for name, samples in families.items() for line in (*heads[name], *samples))


def _labeled(sample: str, process: str) -> str:
    end = sample.find("{")
    if end < 0:
        name, _, value = sample.partition(" ")
        return f'{name}{{process="{process}"}} {value}'
    # No name of a process has a character that would need an escape.
    return f'{sample[:end]}{{process="{process}",{sample[end + 1 :]}'


def _own_metrics(processes: Iterable[ProcessState], answered: Collection[str]) -> str:
    lines = ["# HELP headway_process_up 1 if the process serves, and has answered.", "# TYPE headway_process_up gauge"]
    lines += [f'headway_process_up{{process="{each.name}"}} {int(each.name in answered)}' for each in processes]
    lines += [
        "# HELP headway_process_restarts_total Times that the process was started again.",
        "# TYPE headway_process_restarts_total counter",
    ]
    lines += [f'headway_process_restarts_total{{process="{each.name}"}} {each.restarts}' for each in processes]
    return "".join(f"{line}\n" for line in lines)
