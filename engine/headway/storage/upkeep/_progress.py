"""The progress of a long operation on a whole store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple


class Progress(NamedTuple):
    """The progress of one step. A step begins with ``done=0``, and ends with ``done == total`` if it counts.

    Attributes:
        step: a description of the step, such as ``copying staff.Team``.
        done: how much of it is done.
        total: how much there is; None if that is not known.
        unit: what is counted.
    """

    step: str
    done: int = 0
    total: int | None = None
    unit: Literal["resources", "owners", "bytes"] = "resources"


OnProgress = Callable[[Progress], object]
"""A function that is called often, must not block, and must not raise."""
