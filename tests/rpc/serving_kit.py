"""A `headway serve` in a process of its own: its address, its memory, and its output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.rpc.hostile_kit import resident

_ROOT = Path(__file__).parents[2]


class Serving:
    """A running server."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.where = ""
        self.lines: list[str] = []
        self._more = trio.Event()

    @property
    def resident(self) -> int:
        """The bytes of memory that the server occupies now."""
        return resident(self.process.pid)

    async def read(self) -> None:
        """Record the lines that the server writes."""
        assert self.process.stdout is not None
        rest = ""
        async for data in self.process.stdout:
            *lines, rest = (rest + data.decode()).split("\n")
            self.lines += lines
            self._more.set()
            self._more = trio.Event()

    async def line(self, text: str) -> str:
        """Wait for the first line that contains the text, and return it."""
        while True:
            for line in self.lines:
                if text in line:
                    return line
            await self._more.wait()


@asynccontextmanager
async def serving(*options: str, descriptors: int | None = None, patience: float = 50.0) -> AsyncIterator[Serving]:
    """Serve the app of the command line's tests until the block ends. ``descriptors`` is its `ulimit -n`."""
    command = [sys.executable, "-m", "headway.cli", "serve", "tests.cli.served:app", "--listen", "127.0.0.1:0"]
    command += options
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
    process = await trio.lowlevel.open_process(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"},
    )
    serving = Serving(process)
    try:
        with trio.fail_after(patience):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serving.read)
                serving.where = (await serving.line("listening on ")).split()[-1]
                yield serving
                nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
