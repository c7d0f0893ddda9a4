"""Backends and a client for the tests of the proxy: each backend answers with its name."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

EXAMPLE: Any = importlib.import_module("examples.04_proxy")
HOST = "127.0.0.1"


@dataclass
class Backend:
    """A server that answers every request with its name, and keeps what it has been sent."""

    name: str
    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    # The number of requests that it breaks off without an answer.
    broken: int = 0

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{HOST}:{self.port}"

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve on a free port until `stop`."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                listeners = await nursery.start(partial(trio.serve_tcp, self._answer, 0, host=HOST))
                self.port = listeners[0].socket.getsockname()[1]
                task_status.started()

    def stop(self) -> None:
        """Close its port, so that connections are refused."""
        self.scope.cancel()

    async def _answer(self, stream: trio.SocketStream) -> None:
        async with stream:
            request = b""
            while not complete(request):
                piece = await stream.receive_some()
                if not piece:
                    return
                request += piece
            self.requests.append(request)
            if self.broken:
                self.broken -= 1
                return
            body = b"" if request.startswith(b"HEAD") else self.name.encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.name)}\r\nX-Backend: {self.name}\r\n"
            await stream.send_all(head.encode() + b"Keep-Alive: timeout=5\r\n\r\n" + body)


def complete(request: bytes) -> bool:
    """Return True if a message has its end, by its Content-Length."""
    head, blank, body = request.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(blank) and (not lengths or len(body) >= int(lengths[0].partition(b":")[2]))


@asynccontextmanager
async def backends(*names: str) -> AsyncIterator[list[Backend]]:
    """Serve backends of these names until the block ends."""
    async with trio.open_nursery() as nursery:
        found = [Backend(name) for name in names]
        for each in found:
            await nursery.start(each.serve)
        yield found
        nursery.cancel_scope.cancel()


async def ask(port: int, path: str, *, method: str = "GET", body: bytes = b"") -> tuple[int, str]:
    """Send a request on a connection of its own, and return the status and the body of the answer."""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: proxy\r\n{length}Connection: close, X-Hop\r\nX-Hop: 1\r\n\r\n"
    async with await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(head.encode() + body)
        answer = b"".join([piece async for piece in stream])
    said, _, body = answer.partition(b"\r\n\r\n")
    return int(said.split()[1]) if said else 0, body.decode()
