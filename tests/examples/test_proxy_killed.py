"""The proxy as a process, asked all the time, while the Headway server is killed and its streams are cut."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

import headway
from tests.examples.fleet_kit import ROOT
from tests.examples.proxy_kit import EXAMPLE, HOST, Backend, ask, backends

LISTENING = b"listening on "
PATIENCE = 200.0
_PAUSE = 0.005


class Process:
    """A process that says where it listens, and can be killed."""

    def __init__(self, *command: str) -> None:
        self._command = (sys.executable, *command)
        self._process: trio.Process | None = None

    async def start(self) -> str:
        """Start it, and return where it listens."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "engine")))}
        self._process = await trio.lowlevel.open_process(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT
        )
        assert self._process.stdout is not None
        said = b""
        while LISTENING not in said or not said.endswith(b"\n"):
            piece = await self._process.stdout.receive_some()
            assert piece, f"{self._command} has ended: {said!r}"
            said += piece
        return said.partition(LISTENING)[2].decode().split()[-1]

    async def kill(self) -> None:
        """Kill it with -9, if it runs."""
        process, self._process = self._process, None
        if process is not None and process.stdout is not None:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                await process.stdout.aclose()


class Wire:
    """A way to the server that can be cut. It closes each connection while it has no target."""

    def __init__(self) -> None:
        self.port = 0
        self.target: int | None = None
        self._open: set[trio.CancelScope] = set()

    def cut(self) -> None:
        """Cut every connection."""
        for scope in self._open:
            scope.cancel()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen on a free port."""
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, self._connection, 0)
            self.port = listeners[0].socket.getsockname()[1]
            task_status.started()

    async def _connection(self, stream: trio.SocketStream) -> None:
        scope = trio.CancelScope()
        self._open.add(scope)
        try:
            with scope:
                async with stream:
                    if self.target is not None:
                        async with await trio.open_tcp_stream(HOST, self.target) as inner, trio.open_nursery() as both:
                            both.start_soon(_pump, stream, inner, both.cancel_scope)
                            both.start_soon(_pump, inner, stream, both.cancel_scope)
        except* (OSError, trio.BrokenResourceError):
            pass
        finally:
            self._open.discard(scope)


async def _pump(source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
    async for piece in source:
        await sink.send_all(piece)
    both.cancel()


class Asked:
    """Requests all the time, and what came of them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: Counter[tuple[int, str]] = Counter()
        self._answered = trio.Condition()

    async def run(self) -> None:
        """Ask until canceled."""
        while True:
            answer = await ask(self.port, "/users")
            await trio.sleep(_PAUSE)  # leaves the processors to the processes that are to start
            async with self._answered:
                self.answers[answer] += 1
                self._answered.notify_all()

    async def more(self, number: int, body: str | None = None) -> None:
        """Wait for more answers, or more with a body. Every answer so far must be good."""
        async with self._answered:
            begun = self._count(body)
            while self._count(body) < begun + number:
                await self._answered.wait()
        assert {status for status, _ in self.answers} == {200}, self.answers

    def _count(self, body: str | None) -> int:
        return sum(number for (_, said), number in self.answers.items() if body in (None, said))


@asynccontextmanager
async def killed_at_end(process: Process) -> AsyncIterator[Process]:
    """Kill a process when the block ends."""
    try:
        yield process
    finally:
        await process.kill()


async def declare(client: headway.Client, backend: Backend) -> None:
    """Declare a backend of the users' service."""
    data = EXAMPLE.Backend(service="users", address=backend.address)
    await client.apply(EXAMPLE.BACKEND.new(backend.name, data))


@pytest.mark.wide
@pytest.mark.timeout(240)
async def test_proxy_answers_while_server_and_streams_are_killed(tmp_path: Path) -> None:
    """No answer is 502, 503 or 404. After each restart the proxy follows the server again."""
    serving = ("-m", "headway.cli", "serve", "examples.04_proxy:app", "--store", f"sqlite:{tmp_path}/proxy.db")
    wire = Wire()
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        one, two, three = await stack.enter_async_context(backends("one", "two", "three"))
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        await nursery.start(wire.serve)
        server = await stack.enter_async_context(killed_at_end(Process(*serving, "--listen", f"{HOST}:0")))
        address = await server.start()
        wire.target = int(address.rpartition(":")[2])
        client = await stack.enter_async_context(headway.connect(address, EXAMPLE.app))
        await client.apply(EXAMPLE.ROUTE.new("users", EXAMPLE.Route(prefix="/users", service="users")))
        await declare(client, one)

        program = Process(str(ROOT / "examples" / "04_proxy.py"), f"{HOST}:{wire.port}", f"{HOST}:0")
        program = await stack.enter_async_context(killed_at_end(program))
        asked = Asked(int(await program.start()))
        nursery.start_soon(asked.run)
        await asked.more(1, "one")

        for number, (new, old) in enumerate(((two, one), (three, two))):
            await server.kill()
            await asked.more(40, old.name)
            server = Process(*serving, "--listen", address)
            await stack.enter_async_context(killed_at_end(server))
            await server.start()
            await declare(client, new)
            # The proxy follows again. A stream that is cut then is resumed.
            await asked.more(1, new.name)
            for _ in range(5):
                wire.cut()
                await asked.more(20)
            wire.target = None
            wire.cut()
            await client.delete(EXAMPLE.BACKEND.id(old.name))
            await asked.more(40, old.name)
            wire.target = int(address.rpartition(":")[2])
            await asked.more(40, new.name)
            while old.name in {(await ask(asked.port, "/users"))[1] for _ in range(2)}:
                pass
            old.stop()
            await asked.more(20, new.name)
            assert number == 0 or set(asked.answers) == {(200, each) for each in ("one", "two", "three")}
        nursery.cancel_scope.cancel()
