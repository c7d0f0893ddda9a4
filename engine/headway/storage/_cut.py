"""Cuts: the resources of a table at one moment, which are read in parts while the table changes. Pure.

To open a cut costs one reference for each list of keys, about one for 512 resources. Nothing is copied then. Before
the table changes a list of keys, or a resource under one of them, the part that belongs to the list keeps the resources
as they were. It does so once, for all cuts that share the part, and only while one of them still has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from headway.resource import pb

K = TypeVar("K")


class Part(Generic[K]):
    """The resources under one list of keys. Cuts of the same state share it."""

    __slots__ = ("__weakref__", "_kept", "_keys", "_table")

    def __init__(self, keys: list[K], table: dict[K, pb.Resource]) -> None:
        # Invariant: while nothing is kept, the list and the resources under its keys have not changed.
        self._keys = keys
        self._table = table
        self._kept: list[pb.Resource] | None = None

    def keep(self) -> None:
        """Keep the resources as they are now. Call it before the keys, or their resources, change."""
        if self._kept is None:
            self._kept = self.read()

    def read(self) -> list[pb.Resource]:
        """Return the resources in order of key, in a list of the caller's own."""
        return list(map(self._table.__getitem__, self._keys)) if self._kept is None else self._kept.copy()


class Cut:
    """The resources within a range of keys at the moment when the cut was opened.

    Args:
        parts: the parts that the range touches, in order.
        skip: how many resources of the first part are before the range.
        stop: how many of the last part, from its beginning, are not behind the range.
    """

    __slots__ = ("__weakref__", "_parts", "_skip", "_stop")

    def __init__(self, parts: Sequence[Part[K]], skip: int, stop: int) -> None:
        # The next one is the last in the list. A part that has been taken is no longer held.
        self._parts = list(reversed(parts))
        self._skip = skip
        self._stop = stop

    def __bool__(self) -> bool:
        """Return True while resources may be left to take."""
        return bool(self._parts)

    def take(self) -> list[pb.Resource]:
        """Take the next resources, in order of key: some hundreds, or none at the end."""
        if not self._parts:
            return []
        taken = self._parts.pop().read()
        if not self._parts:
            del taken[self._stop :]
        if self._skip:
            del taken[: self._skip]
            self._skip = 0
        return taken
