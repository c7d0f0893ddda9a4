"""A set of keys in order, and cuts of the resources under them. Pure.

The keys are in short lists, so that a page of a million keys is found without looking at the others. A cut holds the
resources of one moment and can be read in parts while the resources change. Opening a cut copies nothing. It costs one
reference for each list of keys, that is one for about 512 resources. Before a list of keys changes, or a
resource under one of them, the part that belongs to the list copies its resources. It does so once for all cuts that
share the part, and only while one of them still holds it.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from headway.resource import Key, Within, pb, resource_key

K = TypeVar("K", bound=tuple[Any, ...])


class Part(Generic[K]):
    """The resources under one list of keys. Cuts of the same state share it."""

    __slots__ = ("__weakref__", "_kept", "_keys", "_table")

    def __init__(self, keys: list[K], table: dict[K, pb.Resource]) -> None:
        # Invariant: while `_kept` is None, the list and the resources under its keys have not changed.
        self._keys = keys
        self._table = table
        self._kept: list[pb.Resource] | None = None

    def keep(self) -> None:
        """Copy the resources as they are now. Call this before the keys or their resources change."""
        if self._kept is None:
            self._kept = self.read()

    def ends(self) -> tuple[Key, Key]:
        """Return the first and the last key of the resources."""
        if self._kept is None:
            return self._keys[0], self._keys[-1]
        return resource_key(self._kept[0]), resource_key(self._kept[-1])

    def keys(self) -> list[Key]:
        """Return the keys of the resources in order. The list belongs to the caller."""
        if self._kept is None:
            # The keys of the table by owner end with them.
            return [*self._keys] if len(self._keys[0]) == 3 else [key[-1] for key in self._keys]
        return list(map(resource_key, self._kept))

    def read(self) -> list[pb.Resource]:
        """Return the resources in order of key. The list belongs to the caller."""
        return list(map(self._table.__getitem__, self._keys)) if self._kept is None else self._kept.copy()


class Cut:
    """The resources within a range of keys at the moment when the cut was opened.

    Args:
        parts: the parts that the range touches, in order.
        skip: the number of resources of the first part that are before the range.
        stop: the number of resources of the last part, from its beginning, that are not behind the range.
    """

    __slots__ = ("__weakref__", "_parts", "_skip", "_stop")

    def __init__(self, parts: Sequence[Part[Any]], skip: int, stop: int) -> None:
        # The next part is the last in the list. Parts are dropped as soon as they are taken.
        self._parts: list[Part[Any]] = list(reversed(parts))
        self._skip = skip
        self._stop = stop

    def __bool__(self) -> bool:
        """Return True while resources may be left to take."""
        return bool(self._parts)

    def skip(self, within: Within) -> None:
        """Skip the next resources, a few hundred at a time, as long as none of them can match. They are not read."""
        while self._parts and not within.may_hold(*self._parts[-1].ends()):
            self._parts.pop()
            self._skip = 0

    def next_keys(self) -> list[Key]:
        """Return the keys of the resources that `take` returns next."""
        if not self._parts:
            return []
        return self._parts[-1].keys()[self._skip : self._stop if len(self._parts) == 1 else None]

    def take(self) -> list[pb.Resource]:
        """Return the next resources in order of key: a few hundred, or none at the end."""
        if not self._parts:
            return []
        taken = self._parts.pop().read()
        if not self._parts:
            del taken[self._stop :]
        if self._skip:
            del taken[: self._skip]
            self._skip = 0
        return taken


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

    def copy_for_cuts(self) -> None:
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
            run.copy_for_cuts()
            run.keys.append(key)
            maxima[at] = key
        else:
            run = runs[at]
            run.copy_for_cuts()
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
        run.copy_for_cuts()
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
        first.copy_for_cuts()
        second.copy_for_cuts()
        first.keys += second.keys
        del self._runs[at + 1]
        del self._maxima[at]

    def copy_for_cuts(self, key: K) -> None:
        """Copy the resource under this key for open cuts. Call this before the resource changes."""
        self._runs[bisect_left(self._maxima, key)].copy_for_cuts()

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
