"""An index of the resources of a kind by the value of one metadata entry. Pure.

Rules:
1. For each value, an index lists at least the keys of the resources with that value. The list may have other keys, and
   some twice, because a snapshot compares each resource anyway. A list is cleaned only when most of it is wrong, so a
   change takes only a few steps.
2. A value that more than `MOST_AT_ONCE` resources have is not indexed. A snapshot of them is read in parts.
3. An index is complete if it was created before any resource had the metadata key. Otherwise it is complete once its
   builder has offered every resource of its cut. Until then, every change enters it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headway.resource import Key, Kind, pb

MOST_VALUES = 2000
"""The number of values that an index may have if fewer than four resources share a value on average."""

MOST_AT_ONCE = 20_000
"""The number of matching resources that a snapshot reads from an index at once: about ten milliseconds of work."""

_SLACK = MOST_AT_ONCE
"""A list is cleaned once it has more than twice the right keys and this many more. Less would cost writes more."""

Get = Callable[[Kind, Key], pb.Resource | None]


class _Value:
    """The resources with one value.

    Attributes:
        count: the number of resources that have the value. During a build, those that have been offered or changed.
        keys: at least their keys; None if there are too many.
    """

    __slots__ = ("count", "keys")

    def __init__(self) -> None:
        self.count = 0
        self.keys: list[Key] | None = []


class Found(NamedTuple):
    """The keys that an index lists for a metadata entry of a scope.

    Attributes:
        keys: the keys of all resources with the entry, and possibly others, some of them twice.
        exact: True if ``keys`` has no others, and none twice.
    """

    keys: list[Key]
    exact: bool


class MetadataIndex:
    """The resources of a kind by the value of one metadata entry.

    Attributes:
        ready: True if the index is complete.
        is_sparse: True if it has many values that few resources share. It would take more memory than it is worth.
    """

    __slots__ = ("_by_value", "_get", "_kind", "_name", "is_sparse", "ready")

    def __init__(self, kind: Kind, name: str, get: Get, *, ready: bool) -> None:
        self._kind = kind
        self._name = name
        self._get = get
        self._by_value: dict[str, _Value] = {}
        self.is_sparse = False
        self.ready = ready

    @property
    def is_empty(self) -> bool:
        """True if no resource has the metadata key. Ask only if it is ready."""
        return not self._by_value

    def keys(self, value: str) -> Found | None:
        """Return the keys that may have a value, some of them twice, or None if there are too many."""
        entry = self._by_value.get(value)
        if entry is None:
            return Found([], exact=True)
        # The list has every right key. If it is no longer than their number, it has no others, and none twice.
        return None if entry.keys is None else Found(entry.keys, exact=len(entry.keys) == entry.count)

    def change(self, key: Key, before: str | None, after: str | None) -> None:
        """Note that the entry of a resource has changed. The table must have the new state. None means no entry."""
        # Every write of a store comes here, so nothing is looked up twice.
        by_value = self._by_value
        if after is not None:
            entry = by_value.get(after)
            if entry is None:
                entry = self._new(after)
            entry.count += 1
            keys = entry.keys
            if keys is not None:
                keys.append(key)
                if entry.count > MOST_AT_ONCE:
                    entry.keys = None
        if before is None:
            return
        # During a build, a resource may leave a value before the builder has offered it.
        entry = by_value.get(before) or self._new(before)
        entry.count -= 1
        if not self.ready:
            return
        if not entry.count:
            del by_value[before]
        elif entry.keys is not None and len(entry.keys) > 2 * entry.count + _SLACK:
            entry.keys = self._cleaned(entry.keys, before)

    def _new(self, value: str) -> _Value:
        by_value = self._by_value
        entry = by_value[value] = _Value()
        if len(by_value) % MOST_VALUES == 0:
            self.is_sparse = sum(each.count for each in by_value.values()) < 4 * len(by_value)
        return entry

    def _cleaned(self, keys: list[Key], value: str) -> list[Key]:
        """Return the keys that have a value, each once."""
        get, kind, name = self._get, self._kind, self._name
        found = ((key, get(kind, key)) for key in dict.fromkeys(keys))
        return [key for key, stored in found if stored is not None and stored.metadata.get(name) == value]

    def offer(self, keys: Sequence[Key], resources: Sequence[pb.Resource]) -> None:
        """Add resources of the builder's cut, with their keys."""
        name = self._name
        for key, each in zip(keys, resources, strict=True):
            value = each.metadata.get(name)
            if value is not None:
                self.change(key, None, value)

    def finish(self) -> None:
        """Note that every resource has been offered."""
        self.ready = True
        self._by_value = {value: entry for value, entry in self._by_value.items() if entry.count}
