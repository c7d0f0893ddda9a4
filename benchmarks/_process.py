"""A process of a scenario: a module of this package that prints ``ready``, and then one line for each fact."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import trio

READY = "ready"


@asynccontextmanager
async def running(module: str, *arguments: str) -> AsyncIterator[AsyncIterator[str]]:
    """Run a module of this package. Yields its lines once it is ready, and kills it at the end of the block."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
    try:
        assert process.stdout is not None
        async with aclosing(_lines(process.stdout)) as lines:
            assert await anext(lines) == READY
            yield lines
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _lines(stream: trio.abc.ReceiveStream) -> AsyncGenerator[str, None]:
    rest = b""
    async with stream:
        async for piece in stream:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.decode()
