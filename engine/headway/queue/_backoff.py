"""The back-off of a key that keeps failing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.base import check_keywords
from headway.errors import InvalidArgument


@check_keywords
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

    base: float = 0.005
    maximum: float = 1000.0

    def __post_init__(self) -> None:
        if not (_is_finite(self.base) and self.base > 0):
            raise InvalidArgument(f"Backoff.base is {self.base!r}: it must be a finite number of seconds above 0")
        if not (_is_finite(self.maximum) and self.maximum >= self.base):
            raise InvalidArgument(
                f"Backoff.maximum is {self.maximum!r}: "
                f"it must be a finite number of seconds, at least base ({self.base!r})"
            )

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


def _is_finite(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)
