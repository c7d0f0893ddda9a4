"""The pages of several processes of one server as one: each process hands out its own, and their supervisor joins them.

The supervisor asks by calls of a service of their own, on sockets that nothing else can reach.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import trio

from headway.api import Api, Call, method
from headway.observe._pages import METRICS, NOT_FOUND, PLAIN, Page, Pages, Receive, Scope, Send, send_page
from headway.protobuf import field, message

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
