"""The limit on how often a controller may write. `run/_governor.py` keeps it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.errors import InvalidArgument

_MOST = 1_000_000
_LEAST = 0.0001


@dataclass(frozen=True, slots=True)
class WriteLimit:
    """The rate of a controller's writes in one process: ``write_limit=headway.WriteLimit(10, burst=50)``.

    A write above the rate waits for its turn. It does not fail, and the wait does not count towards the deadline of a
    reconcile. Writes, status writes and deletions through ``rt.client`` count, whatever they change.

    Args:
        per_second: the number of writes a second in the long run, from 0.0001 to 1,000,000.
        burst: the number of writes at once after a pause, from 1 to 1,000,000.

    Raises:
        InvalidArgument: a number is invalid. The message names it, and says what is valid.
    """

    per_second: float
    burst: int = 10

    def __post_init__(self) -> None:
        for name, kinds, least, right in (
            ("per_second", int | float, _LEAST, f"a number of writes from {_LEAST} to {_MOST}, such as 10 or 0.5"),
            ("burst", int, 1, f"a whole number of writes from 1 to {_MOST}, such as 50"),
        ):
            given: object = getattr(self, name)
            valid = isinstance(given, kinds) and not isinstance(given, bool) and math.isfinite(given)
            if not valid or not least <= given <= _MOST:  # type: ignore[operator]  # a number by now
                raise InvalidArgument(f"WriteLimit.{name} is {given!r}: it must be {right}")

    def __str__(self) -> str:
        return f"{self.per_second:g} a second with a burst of {self.burst}"
