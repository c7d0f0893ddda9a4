"""Live displays on a terminal, refreshed by a task of their own. Imported only where something is shown live.

`rich` would refresh them from a thread. A task can be seen, and ends with the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from rich.console import Console, RenderableType
from rich.live import Live

_REFRESH = 0.1
"""The seconds between two refreshes."""


@asynccontextmanager
async def open_live(
    shown: Callable[[], RenderableType], *, stderr: bool = True, transient: bool = False, screen: bool = False
) -> AsyncIterator[Console]:
    """Show the result of ``shown``, and refresh it, while the block runs. The last state stays.

    Lines that are printed during the block appear above it.

    Args:
        shown: called for each refresh.
        stderr: on standard error; otherwise on standard output.
        transient: remove it at the end.
        screen: use the whole terminal, and restore what was there at the end.
    """
    console = Console(stderr=stderr, highlight=False)
    live = Live(get_renderable=shown, console=console, auto_refresh=False, transient=transient, screen=screen)

    async def refresh() -> None:
        while True:
            live.refresh()
            await trio.sleep(_REFRESH)

    with live:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refresh)
            yield console
            nursery.cancel_scope.cancel()
        live.refresh()
