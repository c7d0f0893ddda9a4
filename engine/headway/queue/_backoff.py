"""How long a key rests after it has failed.

The rule: after `n` earlier failures a key rests `base * 2**n` seconds, and never more than `maximum`. However
often it has failed, the answer is a finite number of seconds above zero: where the power overflows, it is
`maximum`.

There is no jitter here: keys of one controller share one process, so there is no herd to break up, and
without randomness a failing run can be replayed to the second.
"""

import math
from dataclasses import dataclass

from headway._keywords import check_keywords
from headway.errors import InvalidArgument


@check_keywords
@dataclass(frozen=True, slots=True)
class Backoff:
    """An exponential back-off, in seconds.

    Args:
        base: seconds of rest after the first failure.
        maximum: seconds that no rest exceeds.

    Raises:
        InvalidArgument: `base` isn't a finite number above 0, or `maximum` isn't a finite number of at least
        `base`.
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
        """Return the seconds to rest after a failure that `failures` others came before.

        Raises:
            ValueError: `failures` is negative.
        """
        if failures < 0:
            raise ValueError(f"failures is {failures!r}: it must be a count, 0 or more")
        try:
            return min(math.ldexp(self.base, failures), self.maximum)
        except OverflowError:
            return self.maximum


def _is_finite(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)
