"""The random numbers of the engine's delays: those of `random`, unless a simulation gives it numbers of its own.

Outside of simulations, whatever seeds `random`, such as Hypothesis or a fork, has its effect on the engine as well.
"""

from __future__ import annotations

import random
from typing import Protocol


class _Numbers(Protocol):
    def random(self) -> float: ...

    def uniform(self, a: float, b: float) -> float: ...


class Chance:
    """Random numbers from a source.

    Attributes:
        source: where they come from. A simulation replaces it for a run, so that what the program draws does not move
            the engine's timers.
    """

    def __init__(self) -> None:
        self.source: _Numbers = random

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        return self.source.random()

    def uniform(self, low: float, high: float) -> float:
        """Return a number between two others."""
        return self.source.uniform(low, high)


chance = Chance()
