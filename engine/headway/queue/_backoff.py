"""The back-off of a key that keeps failing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.base import Delay, checked
from headway.errors import InvalidArgument


@checked(InvalidArgument)
@dataclass(frozen=True, slots=True)
class Backoff:
    """An exponential back-off, in seconds: `base * 2**n` after `n` earlier failures, but never more than `maximum`.

    Delays have no jitter. The keys of a controller share one process, so no herd needs to be broken up, and without
    randomness a failing run can be replayed to the second.

    Args:
        base: the delay after the first failure.
        maximum: the longest delay.

    Raises:
        InvalidArgument: if `base` is not a finite number above 0, or `maximum` is not a finite number >= `base`.
    """

    base: Delay = 0.005
    maximum: Delay = 1000.0

    def __post_init__(self) -> None:
        if self.maximum < self.base:
            raise InvalidArgument(f"Backoff(): maximum must be at least base ({self.base!r}), not {self.maximum!r}")

    def delay(self, failures: int) -> float:
        """Return the delay, in seconds, after a failure that followed `failures` earlier ones.

        Raises:
            ValueError: if `failures` is negative.
        """
        if failures < 0:
            raise ValueError(f"failures is {failures!r}: it must be a count, 0 or more")
        try:
            return min(math.ldexp(self.base, failures), self.maximum)
        except OverflowError:
            return self.maximum
