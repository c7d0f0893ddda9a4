"""A line for each resource that a command waits for. Imported only where it is shown."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from rich.console import RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headway.base import plain
from headway.cli._awaited import Awaited

_MOST = 12
"""The number of lines shown at once: they must fit a small terminal."""


class WaitLines:
    """The lines. Resources that are still waited for come first."""

    def __init__(self, awaited: Sequence[Awaited]) -> None:
        self._awaited = awaited
        self._begun = trio.current_time()
        self._spinner = Spinner("dots", style="cyan")

    def shown(self) -> RenderableType:
        """Return the lines at this moment."""
        lines = Table.grid(padding=(0, 1))
        for _ in range(4):
            lines.add_column(no_wrap=True, overflow="ellipsis")
        seconds = int(trio.current_time() - self._begun)
        waiting = [each for each in self._awaited if not each.done]
        for each in waiting[:_MOST]:
            state = Text(plain(each.now) or "connecting", style="yellow")
            lines.add_row(self._spinner, Text(plain(str(each.id))), Text(plain(each.wanted.text), style="bold"), state)
        more = len(waiting) - _MOST
        done = len(self._awaited) - len(waiting)
        parts = [f"{seconds // 60}:{seconds % 60:02}"]
        parts += [f"{done} of {len(self._awaited)} done"] if len(self._awaited) > 1 else []
        parts += [f"{more} more"] if more > 0 else []
        lines.add_row("", Text(", ".join(parts), style="dim"))
        return lines
