"""The progress of long operations on a store: bars on a terminal, otherwise a line for each step that is done."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from headway.base import plain

if TYPE_CHECKING:
    from headway.storage import Progress


@asynccontextmanager
async def open_progress(*, silent: bool = False) -> AsyncIterator[Callable[[Progress], None]]:
    """Yield a function that shows progress on stderr. It may be called from any thread.

    ``silent`` shows nothing, for output that programs read.
    """
    if silent:
        yield lambda _: None
    elif not is_terminal(sys.stderr):
        yield _print_line
    else:
        from headway.cli._bars import Bars
        from headway.cli._live import open_live

        bars = Bars()
        async with open_live(bars.shown):
            yield bars
            bars.end()


def is_terminal(stream: object) -> bool:
    """Return True if a stream is a terminal that can show live displays."""
    isatty: Callable[[], bool] | None = getattr(stream, "isatty", None)
    return isatty is not None and isatty() and os.environ.get("TERM") not in ("dumb", None)


def _print_line(progress: Progress) -> None:
    if progress.total is None:
        if not progress.done:
            click.echo(plain(progress.step), err=True)
    elif progress.done == progress.total:
        click.echo(f"{plain(progress.step)}: {progress.done}", err=True)
