"""Long computations as steps: generators that yield between two steps, and return the result.

A program that waits for nothing else takes all steps at once. A server takes some of them in each turn of its loop.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from headway.base._trio import give_way

T = TypeVar("T")

Steps = Generator[Any, None, T]
"""A computation that returns a T. A step takes some microseconds. After one of milliseconds it yields True."""

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
    while True:
        try:
            for _ in range(AT_ONCE):
                if next(steps):
                    break
        except StopIteration as stop:
            made: T = stop.value
            return made
        await give_way()
