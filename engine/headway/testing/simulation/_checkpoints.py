"""Counts the Trio checkpoints of each process, so that a process can be killed between two of its calls."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from headway.testing.simulation._process import Process
    from headway.testing.simulation._world import World

PROCESS: ContextVar[Process | None] = ContextVar("headway.simulation.process", default=None)
"""The process that the current task belongs to. A process sets it; the tasks that it starts inherit it."""


class Checkpoints(trio.abc.Instrument):
    """An instrument that reports to the world each time a process's task resumes from a checkpoint."""

    def __init__(self, world: World) -> None:
        self._world = world

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        process = task.context.get(PROCESS)
        if process is not None and process.life:
            self._world.pass_checkpoint(process, task.name)
