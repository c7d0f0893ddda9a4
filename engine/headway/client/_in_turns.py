"""Long lists of results, made without holding up the rest of the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

T = TypeVar("T")
R = TypeVar("R")

TURN = 1000
"""Results that are made between two checkpoints: a millisecond or two."""


async def in_turns(make: Callable[[T], R], of: Sequence[T]) -> list[R]:
    """Return what ``make`` returns for each, with a checkpoint now and then."""
    made: list[R] = []
    for begin in range(0, len(of), TURN):
        if begin:
            await trio.lowlevel.checkpoint()
        made += map(make, of[begin : begin + TURN])
    return made
