"""The limit on how often a controller may write. `run/_governor.py` keeps it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from headway.base import Range, checked
from headway.errors import InvalidArgument

_MOST = 1_000_000


@checked(InvalidArgument, per_second="10 or 0.5")
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

    per_second: Annotated[float, Range(0.0001, _MOST, unit="writes")]
    burst: Annotated[int, Range(1, _MOST, unit="writes")] = 10

    def __str__(self) -> str:
        return f"{self.per_second:g} a second with a burst of {self.burst}"
