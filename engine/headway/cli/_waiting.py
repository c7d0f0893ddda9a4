"""Wait until conditions of resources hold. On a terminal, a line for each shows its present state."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import click
import trio

from headway.base import leaves
from headway.cli._awaited import Awaited
from headway.cli._progress import is_terminal
from headway.cli._running import Exit, fail
from headway.client import Client, until
from headway.errors import HeadwayError

_AT_ONCE = 64
"""The number of watches that are open at once. A server limits the calls of a connection."""


async def wait_for(client: Client, awaited: Sequence[Awaited], within: float | None, *, silent: bool = False) -> None:
    """Wait for all of these. Print a line for each, or fail after `within` seconds with what is missing.

    ``silent`` prints no line, for output that programs read.
    """
    async with _shown(awaited):
        with trio.move_on_after(float("inf") if within is None else within):
            await _all(client, awaited)
    missing = [each for each in awaited if not each.done]
    for each in awaited:
        if each.done and not silent:
            click.echo(f"{each.id}: {each.wanted.text}")
    if missing:
        assert within is not None
        fail(Exit.WAITED, "\n".join(f"Error: {each.missing_after(within)}" for each in missing))


async def _all(client: Client, awaited: Sequence[Awaited]) -> None:
    limiter = trio.CapacityLimiter(_AT_ONCE)

    async def wait_for_one(each: Awaited) -> None:
        async with limiter:
            await until(client, each.type, each.id, each.holds)

    try:
        async with trio.open_nursery() as nursery:
            for each in awaited:
                nursery.start_soon(wait_for_one, each)
    except* HeadwayError as group:
        # The same for all of them: the server went away, or denies the type. One sentence is enough.
        first = next(leaves(group))
        raise first from first.__cause__


@asynccontextmanager
async def _shown(awaited: Sequence[Awaited]) -> AsyncIterator[None]:
    if not is_terminal(sys.stderr):
        yield
        return
    from headway.cli._live import open_live
    from headway.cli._wait_lines import WaitLines

    async with open_live(WaitLines(awaited).shown, transient=True):
        yield
