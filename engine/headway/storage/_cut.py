"""Cuts of a table. A cut holds the resources of one moment and can be read in parts while the table changes. Pure.

Opening a cut copies nothing. It costs one reference for each list of keys, that is one for about 512 resources. Before
the table changes a list of keys, or a resource under one of them, the part that belongs to the list copies its
resources. It does so once for all cuts that share the part, and only while one of them still holds it.
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
        # Invariant: while `_kept` is None, the list and the resources under its keys have not changed.
        self._keys = keys
        self._table = table
        self._kept: list[pb.Resource] | None = None

    def keep(self) -> None:
        """Copy the resources as they are now. Call this before the keys or their resources change."""
        if self._kept is None:
            self._kept = self.read()

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

    def __init__(self, parts: Sequence[Part[K]], skip: int, stop: int) -> None:
        # The next part is the last in the list. Parts are dropped as soon as they are taken.
        self._parts = list(reversed(parts))
        self._skip = skip
        self._stop = stop

    def __bool__(self) -> bool:
        """Return True while resources may be left to take."""
        return bool(self._parts)

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
