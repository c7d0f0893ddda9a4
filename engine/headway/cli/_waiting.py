"""Wait until conditions of resources hold. On a terminal, a line for each shows its present state."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import click
import trio

from headway.base import leaves
from headway.cli._awaited import Awaited
from headway.cli._exits import Exit, fail
from headway.cli._progress import is_terminal
from headway.client import Client, until
from headway.errors import HeadwayError

_AT_ONCE = 64
"""The number of watches that are open at once. A server limits the calls of a connection."""
_TURN = 1.0
"""The seconds after which one of more resources than that gives its place to the next, and looks again later."""


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
        while not each.done:
            async with limiter:
                await _take_turn(client, each, limiter)

    try:
        async with trio.open_nursery() as nursery:
            for each in awaited:
                nursery.start_soon(wait_for_one, each)
    except* HeadwayError as group:
        # The same for all of them: the server went away, or denies the type. One sentence is enough.
        first = next(leaves(group))
        raise first from first.__cause__


async def _take_turn(client: Client, each: Awaited, limiter: trio.CapacityLimiter) -> None:
    """Watch a resource until its state is reached, or until others have waited for a second after its first state."""
    looks = each.looks

    async def end_turn() -> None:
        while True:
            await trio.sleep(_TURN)
            if each.looks > looks and limiter.statistics().tasks_waiting:
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_turn)
        await until(client, each.type, each.id, each.holds)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _shown(awaited: Sequence[Awaited]) -> AsyncIterator[None]:
    if not is_terminal(sys.stderr):
        yield
        return
    from headway.cli._live import open_live
    from headway.cli._wait_lines import WaitLines

    async with open_live(WaitLines(awaited).shown, transient=True):
        yield
