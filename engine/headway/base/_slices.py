"""Slices of several computations of one task."""

from __future__ import annotations

from typing import TypeVar

from headway.base._steps import AT_ONCE, Steps
from headway.base._trio import give_way

T = TypeVar("T")


class Slices:
    """The slices of several computations of one task, which together take as many steps between two turns as one."""

    def __init__(self) -> None:
        self._left = AT_ONCE

    async def of(self, steps: Steps[T]) -> T:
        """Take all steps of a computation, and return its result. This is a checkpoint only if it gives a turn."""
        try:
            while True:
                while self._left > 0:
                    self._left = 0 if next(steps) else self._left - 1
                self._left = AT_ONCE
                await give_way()
        except StopIteration as stop:
            made: T = stop.value
            return made
