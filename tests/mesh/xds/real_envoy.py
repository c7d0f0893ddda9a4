"""A real Envoy on loopback, the server that configures it, and backends that answer with their port."""

from __future__ import annotations

import json
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import trio

import headway
from headway.engine import Extension
from mesh.demo.envoy import find_envoy as find_envoy
from mesh.xds import AdsService, Snapshots, bootstrap

NO_ENVOY = "no Envoy: run `make test-envoy`, or set HEADWAY_ENVOY to its binary"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def nobody(_: object, __: object) -> None:
    """Let every caller be every node."""


@asynccontextmanager
async def served(source: Snapshots, port: int = 0) -> AsyncIterator[str]:
    """Serve xDS. Yield the address."""
    ads = AdsService(source, nobody)
    extension = Extension(open_services=[lambda _: ads])
    network = headway.Network([f"127.0.0.1:{port}"], insecure=True)
    app = headway.App("xds")
    async with headway.open_engine("memory:", app, network=network, extensions=[extension]) as engine:
        yield engine.addresses[0]


@asynccontextmanager
async def running(folder: Path, control: str, node: str = "web", **options: Any) -> AsyncIterator[str]:
    """Run an Envoy, with further options of `bootstrap`. Yield the URL of its admin interface once it answers."""
    binary = find_envoy()
    assert binary is not None, NO_ENVOY
    admin = f"127.0.0.1:{free_port()}"
    config = folder / "bootstrap.json"
    config.write_text(json.dumps(bootstrap(node, control, admin=admin, **options)))
    command = [str(binary), "-c", str(config), "--concurrency", "1", "--disable-hot-restart", "--drain-time-s", "1"]
    with (folder / "envoy.log").open("wb") as log:
        start = partial(
            trio.run_process, [*command, "-l", "warning"], stdout=log, stderr=subprocess.STDOUT, check=False
        )
        async with trio.open_nursery() as nursery:
            process = await nursery.start(start)
            try:
                yield f"http://{admin}"
            finally:
                process.terminate()


@asynccontextmanager
async def backend() -> AsyncIterator[int]:
    """Answer each request with the number of this backend's port, which is yielded."""

    async def answer(stream: trio.SocketStream) -> None:
        held = b""
        async for data in stream:
            held += data
            while b"\r\n\r\n" in held:
                held = held.partition(b"\r\n\r\n")[2]
                body = str(port).encode()
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    async def guarded(stream: trio.SocketStream) -> None:
        try:
            await answer(stream)
        except trio.BrokenResourceError:
            return

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, guarded, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        yield port
        nursery.cancel_scope.cancel()


async def until(url: str, expected: Callable[[httpx.Response], bool], seconds: float = 20) -> None:
    """Ask until an answer is as expected. Envoy offers nothing else to wait for."""
    with trio.fail_after(seconds):
        async with httpx.AsyncClient() as client:
            while True:
                try:
                    if expected(await client.get(url)):
                        return
                except httpx.TransportError:
                    pass
                await trio.sleep(0.01)


async def until_true(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for what a real process does, which sets no event."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.005)


class Load:
    """Requests one after another, until the end of the block.

    Attributes:
        answers: how often each answer came.
        failures: the other answers.
    """

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []

    @classmethod
    @asynccontextmanager
    async def on(cls, url: str) -> AsyncIterator[Load]:
        """Begin to send requests."""
        load = cls()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run, url)
            yield load
            nursery.cancel_scope.cancel()

    async def run(self, url: str) -> None:
        async with httpx.AsyncClient() as client:
            while True:
                try:
                    got = await client.get(url)
                except httpx.TransportError as error:
                    self.failures.append(repr(error))
                    continue
                if got.status_code == 200:
                    self.answers[got.text] += 1
                else:
                    self.failures.append(f"{got.status_code} {got.text}")

    async def more(self, count: int, answer: str | None = None) -> None:
        """Wait for more answers, of any backend or of one."""
        counted = self.answers.total if answer is None else lambda: self.answers[answer]
        end = counted() + count
        await until_true(lambda: counted() >= end)
