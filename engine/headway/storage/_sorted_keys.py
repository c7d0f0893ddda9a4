"""Keys in order, in short lists, so that a page of a million is found without looking at the rest. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from headway.resource import Key

LOAD = 512
"""Half of the keys that one list holds at most."""


class SortedKeys:
    """A set of keys in order."""

    __slots__ = ("_lists", "_maxima")

    def __init__(self) -> None:
        # Invariant: no list is empty, and `_maxima` has the last key of each.
        self._lists: list[list[Key]] = []
        self._maxima: list[Key] = []

    def add(self, key: Key) -> None:
        """Add a key that is not there."""
        lists, maxima = self._lists, self._maxima
        if not maxima:
            lists.append([key])
            maxima.append(key)
            return
        at = bisect_left(maxima, key)
        if at == len(maxima):
            at -= 1
            lists[at].append(key)
            maxima[at] = key
        else:
            insort(lists[at], key)
        held = lists[at]
        if len(held) > 2 * LOAD:
            lists.insert(at, held[:LOAD])
            maxima.insert(at, held[LOAD - 1])
            del held[:LOAD]

    def remove(self, key: Key) -> None:
        """Remove a key that is there."""
        at = bisect_left(self._maxima, key)
        held = self._lists[at]
        del held[bisect_left(held, key)]
        if held:
            self._maxima[at] = held[-1]
        else:
            del self._lists[at]
            del self._maxima[at]

    def since(self, key: Key, *, inclusive: bool) -> Iterator[Key]:
        """The keys from this one on, which need not be there. Not to be continued after a change."""
        bisect = bisect_left if inclusive else bisect_right
        at = bisect(self._maxima, key)
        if at == len(self._lists):
            return
        yield from self._lists[at][bisect(self._lists[at], key) :]
        for place in range(at + 1, len(self._lists)):
            yield from self._lists[place]
