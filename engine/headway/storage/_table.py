"""A table: resources by their keys, in order of key. Cuts of it can be opened at any time. Pure."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from headway.resource import pb
from headway.storage._cut import Cut, Part
from headway.storage._sorted_keys import SortedKeys

K = TypeVar("K", bound=tuple[Any, ...])


class Table(Generic[K]):
    """Resources by their keys.

    Attributes:
        resources: the stored resources. Read them; only the table writes here.
    """

    __slots__ = ("_cuts", "_keys", "resources")

    def __init__(self) -> None:
        self.resources: dict[K, pb.Resource] = {}
        # Invariant: exactly the keys of `resources`.
        self._keys: SortedKeys[K] = SortedKeys()
        # The cuts that may still be read. While none is open, an update need not look up the position of its key.
        self._cuts: set[weakref.ref[Cut]] = set()

    def put(self, key: K, resource: pb.Resource) -> pb.Resource | None:
        """Store a resource and return the one that it replaces."""
        old = self.resources.get(key)
        if old is None:
            self._keys.add(key)
        elif self._cuts:
            self._keys.changes(key)
        self.resources[key] = resource
        return old

    def remove(self, key: K) -> pb.Resource | None:
        """Remove the resource under a key and return it."""
        if key not in self.resources:
            return None
        self._keys.remove(key)
        return self.resources.pop(key)

    def since(self, key: K, *, inclusive: bool) -> Iterator[K]:
        """Iterate over the keys from ``key`` on. The table need not have it. Don't continue after a change."""
        return self._keys.since(key, inclusive=inclusive)

    def cut(self, first: K, is_behind: Callable[[K], bool], *, inclusive: bool = True) -> Cut:
        """Open a cut of the resources from the key ``first`` on. It ends where ``is_behind`` becomes true."""
        runs, skip, stop = self._keys.between(first, is_behind, inclusive=inclusive)
        parts: list[Part[K]] = []
        for run in runs:
            part = None if run.part is None else run.part()
            if part is None:
                part = Part(run.keys, self.resources)
                run.part = weakref.ref(part)
            parts.append(part)
        cut = Cut(parts, skip, stop)
        self._cuts.add(weakref.ref(cut, self._cuts.discard))
        return cut
