"""Building long lists without blocking the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

T = TypeVar("T")
R = TypeVar("R")

TURN = 1000
"""The number of results to make between two checkpoints, which takes a millisecond or two."""


async def in_turns(make: Callable[[T], R], of: Sequence[T]) -> list[R]:
    """Return a list of ``make(each)``, with a checkpoint after every ``TURN`` results."""
    made: list[R] = []
    for begin in range(0, len(of), TURN):
        if begin:
            await trio.lowlevel.checkpoint()
        made += map(make, of[begin : begin + TURN])
    return made
