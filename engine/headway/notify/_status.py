"""The status of a program's cache. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import HeadwayError
from headway.resource import Position
from headway.run import TypeStatus


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """The status of a program's cache at one moment.

    Attributes:
        position: the position up to which every type is complete.
        lag: the largest number of revisions that a type is behind the newest of them.
        cut_off: the reason that a type has no stream now; empty if each has one.
        cut_off_seconds: the longest time, in seconds, that a type has been without a stream, or that the cache has not
            been able to follow the store because of ``problem``.
        problem: why the cache cannot be brought up to date; None if it can.
        types: the status of each type's stream. While the cache reads a replaced store, this is the status of the new
            streams.
    """

    position: Position
    lag: int
    cut_off: str
    cut_off_seconds: float
    problem: HeadwayError | None
    types: tuple[TypeStatus, ...]
