"""Bars for the steps of a long operation. Imported only where they are shown."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import RenderableType
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from headway import storage
from headway.base import plain

_MOST = 8
"""The number of bars shown at once: they must fit a small terminal. The oldest that are done are hidden."""


class Bars:
    """A bar for each step, with what is done, the rate, and the time left."""

    def __init__(self, get_time: Callable[[], float] = time.monotonic) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            _Amount(),
            _Time(),
            auto_refresh=False,
            get_time=get_time,
        )
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: storage.Progress) -> None:
        """Note progress, from any thread. The next refresh shows it."""
        if progress.step not in self._tasks:
            self._end_uncounted()
            self._tasks[progress.step] = self._progress.add_task(plain(progress.step), total=None, unit=progress.unit)
            self._hide_oldest()
        # A step without anything to do would be shown as a bar that never ends.
        empty = progress.total == 0
        self._progress.update(
            self._tasks[progress.step], total=1 if empty else progress.total, completed=1 if empty else progress.done
        )

    def shown(self) -> RenderableType:
        """Return the bars."""
        return self._progress.get_renderable()

    def end(self) -> None:
        """Note that the whole operation has succeeded."""
        self._end_uncounted()

    def _end_uncounted(self) -> None:
        """End the steps that count nothing: they are over when the next one begins."""
        for task in self._progress.tasks:
            if task.total is None:
                self._progress.update(task.id, total=1, completed=1)

    def _hide_oldest(self) -> None:
        visible = [task for task in self._progress.tasks if task.visible]
        for task in visible[: max(len(visible) - _MOST, 0)]:
            if task.finished:
                self._progress.update(task.id, visible=False)


class _Amount(ProgressColumn):
    """The amount done, the whole amount, and the rate."""

    def render(self, task: Task) -> Text:
        """Return the text of a bar."""
        count = decimal if task.fields["unit"] == "bytes" else _grouped
        if task.total is None or (task.finished and task.total == 1 and task.completed == 1):
            return Text("")
        rate = task.finished_speed or task.speed
        parts = (
            [count(int(task.completed))]
            if task.finished
            else [f"{count(int(task.completed))}/{count(int(task.total))}"]
        )
        if rate:
            parts.append(f"{count(int(rate))}/s")
        return Text("  ".join(parts), style="cyan")


class _Time(ProgressColumn):
    """The time left, or the time taken."""

    max_refresh = 0.5

    def __init__(self) -> None:
        super().__init__()
        self._left, self._taken = TimeRemainingColumn(compact=True), TimeElapsedColumn()

    def render(self, task: Task) -> Text:
        """Return the text of a bar."""
        if task.finished or task.total is None:
            return self._taken.render(task)
        return Text.assemble(self._left.render(task), " left")


def _grouped(count: int) -> str:
    return f"{count:,}"
