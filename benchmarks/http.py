"""`http_get`, `http_put`: a request over HTTP, on loopback TCP, with both ends in one process.

Measured: the wall time of a GET of one resource, and of a PUT that changes it, from an engine with a memory store. One
client sends one request after the other on a kept connection, and reads the whole answer. After 500 requests it takes
a new connection, because Hypercorn ends a connection after 1,000. The time includes Hypercorn, the routing, the rights
of a server without access control, the JSON of the payload in both directions, the service and the commit. It excludes
opening the engine and connecting.

Against: a Starlette application on Hypercorn's Trio worker that reads the same request and answers with the same bytes.
The same client sends it the same requests.

The payload has one text of 118 characters.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note

PATH = "/api/bench/v1/managed/core"
ON_ONE = 500
"""The number of timed requests on one connection."""
_JSON = "application/json"


class _Connection:
    """A kept connection of a client that does nothing but send bytes and find the end of an answer."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._left = b""

    async def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of its answer, which must be a success."""
        await self._stream.send_all(request)
        received = self._left
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += await self._more()
        head = received[:end].lower()
        assert head.startswith(b"http/1.1 200"), received
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        whole = end + 4 + length
        while len(received) < whole:
            received += await self._more()
        self._left = received[whole:]
        return received[end + 4 : whole]

    async def _more(self) -> bytes:
        data = await self._stream.receive_some(65536)
        assert data, "the server has closed the connection"
        return bytes(data)


def _request(method: str, body: bytes = b"") -> bytes:
    head = f"{method} {PATH} HTTP/1.1\r\nHost: localhost\r\nAccept: {_JSON}\r\n"
    if body:
        head += f"Content-Type: {_JSON}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


def _bodies(size: int) -> list[bytes]:
    """Return bodies of one length, each of which changes the resource."""
    return [json.dumps({"data": {"text": f"{number:08d}{TEXT[8:]}"}}).encode() for number in range(size)]


@asynccontextmanager
async def _engine() -> AsyncIterator[str]:
    app = headway.App("bench")
    app.type("bench", "v1", "Managed", Note)
    async with headway.open_engine(
        "memory:", app, network=headway.Network(http="127.0.0.1:0", insecure=True)
    ) as engine:
        assert engine.http is not None
        yield engine.http


@asynccontextmanager
async def _echo(answer: bytes) -> AsyncIterator[str]:
    async def get(_: Request) -> Response:
        return Response(answer, media_type=_JSON)

    async def put(request: Request) -> Response:
        await request.body()
        return Response(answer, media_type=_JSON)

    app = Starlette(routes=[Route(PATH, get, methods=["GET"]), Route(PATH, put, methods=["PUT"])])
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    # As patient as ours: a machine may stop for longer than the 5 s of the default.
    config.keep_alive_timeout = 60
    ending = trio.Event()
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(serve, app, config, shutdown_trigger=ending.wait))  # type: ignore[arg-type]  # Starlette's own types of ASGI
        yield bound[0].removeprefix("http://")
        ending.set()


async def _seconds(address: str, requests: list[bytes]) -> float:
    """Return the seconds of the requests, one after the other."""
    host, _, port = address.rpartition(":")
    seconds = 0.0
    for first in range(0, len(requests), ON_ONE):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            connection = _Connection(stream)
            await connection.ask(requests[first])
            begin = time.perf_counter()
            for each in requests[first : first + ON_ONE]:
                await connection.ask(each)
            seconds += time.perf_counter() - begin
    return seconds


async def _ours(method: str, size: int) -> float:
    async with _engine() as address:
        await _seconds(address, [_request("PUT", each) for each in _bodies(1)])
        return await _seconds(address, _requests(method, size))


async def _against(method: str, size: int, answer: bytes) -> float:
    async with _echo(answer) as address:
        return await _seconds(address, _requests(method, size))


def _requests(method: str, size: int) -> list[bytes]:
    if method == "GET":
        return [_request("GET")] * size
    return [_request("PUT", each) for each in _bodies(size)]


async def _answer() -> bytes:
    """Return the body with which the engine answers, for the other side to send."""
    async with _engine() as address:
        host, _, port = address.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            return await _Connection(stream).ask(_request("PUT", _bodies(1)[0]))


def _scenario(name: str, method: str, bound: float) -> Scenario:
    def measure(size: int, rounds: int) -> Row:
        answer = trio.run(_answer)
        one: Callable[[Callable[..., Awaitable[float]], *tuple[object, ...]], float] = trio.run
        ours, against = interleaved(
            lambda: one(_ours, method, size), lambda: one(_against, method, size, answer), rounds
        )
        return Row(name, ours / size * 1e6, against / size * 1e6, "us", bound)

    return Scenario(name, bound, measure, size=5_000, rounds=5, quick=500)


ROWS = (_scenario("http_get", "GET", 1.8), _scenario("http_put", "PUT", 2.6))
