"""An instrument that counts how often tasks run."""

from __future__ import annotations

from collections import Counter

import trio


class Steps(trio.abc.Instrument):
    """Counts the steps of each task, by its name."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step."""
        self.count[task.name] += 1
