"""Sorted keys in short lists, to find one page of a million keys without looking at the others. Pure."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from headway.storage._cut import Part

K = TypeVar("K", bound=tuple[Any, ...])

LOAD = 512
"""Half of the maximum length of a list. Two neighboring lists together hold more keys than this."""


class Run(Generic[K]):
    """A list of keys and the part that cuts share.

    Attributes:
        keys: the keys, in order. There is always at least one.
        part: the part shared by the cuts that were opened since the last change, while one of them holds it.
    """

    __slots__ = ("keys", "part")

    def __init__(self, keys: list[K]) -> None:
        self.keys = keys
        self.part: weakref.ref[Part[K]] | None = None

    def changes(self) -> None:
        """Copy the resources for open cuts. Call this before the keys or their resources change."""
        if self.part is not None:
            part, self.part = self.part(), None
            if part is not None:
                part.keep()


class SortedKeys(Generic[K]):
    """A set of keys in order."""

    __slots__ = ("_maxima", "_runs")

    def __init__(self) -> None:
        # Invariant: `_maxima` holds the last key of each run.
        self._runs: list[Run[K]] = []
        self._maxima: list[K] = []

    def __len__(self) -> int:
        return sum(len(run.keys) for run in self._runs)

    def add(self, key: K) -> None:
        """Add a new key."""
        runs, maxima = self._runs, self._maxima
        if not maxima:
            runs.append(Run([key]))
            maxima.append(key)
            return
        at = bisect_left(maxima, key)
        if at == len(maxima):
            at -= 1
            run = runs[at]
            run.changes()
            run.keys.append(key)
            maxima[at] = key
        else:
            run = runs[at]
            run.changes()
            insort(run.keys, key)
        held = run.keys
        if len(held) > 2 * LOAD:
            runs.insert(at, Run(held[:LOAD]))
            maxima.insert(at, held[LOAD - 1])
            del held[:LOAD]

    def remove(self, key: K) -> None:
        """Remove a key. The set must have it."""
        runs = self._runs
        at = bisect_left(self._maxima, key)
        run = runs[at]
        run.changes()
        held = run.keys
        del held[bisect_left(held, key)]
        if not held:
            del runs[at]
            del self._maxima[at]
            return
        self._maxima[at] = held[-1]
        # Otherwise keys that come and go would leave ever more lists of a single key behind.
        if at + 1 < len(runs) and len(held) + len(runs[at + 1].keys) <= LOAD:
            self._join(at)
        if at and len(runs[at - 1].keys) + len(held) <= LOAD:
            self._join(at - 1)

    def _join(self, at: int) -> None:
        first, second = self._runs[at], self._runs[at + 1]
        first.changes()
        second.changes()
        first.keys += second.keys
        del self._runs[at + 1]
        del self._maxima[at]

    def changes(self, key: K) -> None:
        """Copy the resource under this key for open cuts. Call this before the resource changes."""
        self._runs[bisect_left(self._maxima, key)].changes()

    def since(self, key: K, *, inclusive: bool) -> Iterator[K]:
        """Iterate over the keys from ``key`` on. The set need not have it. Don't continue after a change."""
        bisect = bisect_left if inclusive else bisect_right
        at = bisect(self._maxima, key)
        if at == len(self._runs):
            return
        held = self._runs[at].keys
        yield from held[bisect(held, key) :]
        for place in range(at + 1, len(self._runs)):
            yield from self._runs[place].keys

    def between(self, first: K, is_behind: Callable[[K], bool], *, inclusive: bool) -> tuple[list[Run[K]], int, int]:
        """Return the lists that have keys in a range, and two numbers.

        The range begins at ``first`` and ends where ``is_behind`` becomes true. The first number counts the keys of
        the first list that are before the range. The second one counts the keys of the last list, from its beginning,
        that are not behind the range.
        """
        bisect = bisect_left if inclusive else bisect_right
        at = bisect(self._maxima, first)
        end = bisect_left(self._runs, True, lo=at, key=lambda run: is_behind(run.keys[0]))
        runs = self._runs[at:end]
        if not runs:
            return runs, 0, 0
        return runs, bisect(runs[0].keys, first), bisect_left(runs[-1].keys, True, key=is_behind)
