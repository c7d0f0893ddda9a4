"""Long computations as steps: generators that yield between two steps, and return the result.

Code without I/O is written so. A program that waits for nothing else takes all steps at once. A server takes some of
them in each turn of the loop, so that a long computation for one caller delays no other.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from headway.base._trio import give_way

T = TypeVar("T")

Steps = Generator[Any, None, T]
"""A computation that returns a T. A step takes some microseconds. After one that may take milliseconds, it yields True.
It yields None after others.
"""

AT_ONCE = 200
"""The number of steps between two turns: some two milliseconds."""


def finished(steps: Steps[T]) -> T:
    """Take all steps at once, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made: T = stop.value
            return made


async def in_slices(steps: Steps[T]) -> T:
    """Take all steps, with turns for other tasks between, and return the result."""
    return await Slices().of(steps)


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
