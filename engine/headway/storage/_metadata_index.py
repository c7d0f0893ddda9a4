"""Indexes by metadata entries, for scopes: kept from the first write on, or made by the first scope. Pure.

Comparing the metadata of a million resources takes far longer than delivering the few that match. So a snapshot by
metadata reads the resources that an index names.

Rules:
1. An index names, for a value, at least the resources that have it. It may also name others, and some twice: a snapshot
   compares what it reads. A list is cleaned when most of it is wrong, so a change costs a few steps.
2. A store keeps an index of a metadata key from the first resource that has the key. So the index is complete.
   It does so for the first `MOST_KEPT` keys of a kind, and as long as many resources share a value.
3. The first snapshot by another key reads everything anyway, and makes an index. It is used once its builder has
   offered every resource of its cut. An index whose builder is dropped before is never used.
4. A value that more than `MOST_AT_ONCE` resources have is not indexed. A snapshot of them is read in parts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headway.resource import Key, Kind, Within, pb

MOST_KEPT = 16
"""The number of metadata keys of a kind whose indexes are kept from the first write on."""

MOST_VALUES = 2000
"""The number of values that such an index may have although less than four resources share each of them."""

MOST_INDEXES = 16
"""The number of indexes of one store that scopes have made. Another one replaces the least recently used one."""

MOST_AT_ONCE = 20_000
"""The number of matching resources that a snapshot reads from an index at once: about ten milliseconds of work."""

_SLACK = MOST_AT_ONCE
"""A list is cleaned once it has more than twice the right keys and this many more. Less would cost writes more."""

_NONE: Mapping[str, str] = {}

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
    """What an index has for an entry of a scope.

    Attributes:
        keys: at least the keys of the resources with the entry.
        exact: True if these are all keys, each once.
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
        # It has every right key, so as many keys as resources are these keys, each once.
        return None if entry.keys is None else Found(entry.keys, exact=len(entry.keys) == entry.count)

    def change(self, key: Key, before: str | None, after: str | None) -> None:
        """Note that the entry of a resource has changed. The table must have the new state. None stands for none."""
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


class MetadataIndexes:
    """The indexes of one store.

    Args:
        get: returns the stored resource of a kind and key.

    Attributes:
        made: the indexes that scopes have made, by kind and metadata key. The least recently used is the first.
    """

    __slots__ = ("_get", "_kept", "_left_out", "made")

    def __init__(self, get: Get) -> None:
        self._get = get
        # By kind and metadata key; None if the index had to be given up.
        self._kept: dict[Kind, dict[str, MetadataIndex | None]] = {}
        # The kinds that have resources with a metadata key that is not in `_kept`.
        self._left_out: set[Kind] = set()
        # Each with its builder.
        self.made: dict[tuple[Kind, str], tuple[MetadataIndex, weakref.ref[object]]] = {}

    def change(self, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None) -> None:
        """Note a change of a resource. The table must have the new state."""
        before = _NONE if old is None else old.metadata
        after = _NONE if new is None else new.metadata
        if before == after:
            return
        kept = self._kept.get(kind)
        if kept is None:
            kept = self._kept[kind] = {}
        for name, value in after.items():
            was = before.get(name) if before else None
            if was != value:
                index = kept.get(name)
                if index is None and name not in kept:
                    index = self._begin(kept, kind, name)
                if index is not None:
                    index.change(key, was, value)
                    if index.is_sparse:
                        kept[name] = None
        for name, was in before.items():
            if name not in after and (index := kept.get(name)) is not None:
                index.change(key, was, None)
                if index.is_empty:
                    # No resource has the key, so the next one may begin a new index.
                    del kept[name]
        if self.made:
            for (of, name), (index, _) in self.made.items():
                if of == kind and (was := before.get(name)) != (now := after.get(name)):
                    index.change(key, was, now)

    def _begin(self, kept: dict[str, MetadataIndex | None], kind: Kind, name: str) -> MetadataIndex | None:
        """Begin an index of a metadata key that no resource has had, if the kind has not too many."""
        if kind in self._left_out:
            return None
        if len(kept) >= MOST_KEPT:
            self._left_out.add(kind)
            return None
        index = kept[name] = MetadataIndex(kind, name, self._get, ready=True)
        return index

    def find(self, kind: Kind, within: Within) -> Found | None:
        """Return the fewest keys that an index has for an entry of the scope, or None without an index.

        The keys include every resource that matches. Some may not match, and some are named twice.
        """
        found: Found | None = None
        for name, value in within.metadata:
            index = self._kept.get(kind, {}).get(name)
            if index is None:
                entry = self.made.get((kind, name))
                if entry is None or not entry[0].ready:
                    continue
                self.made[kind, name] = self.made.pop((kind, name))
                index = entry[0]
            named = index.keys(value)
            if named is not None and (found is None or len(named.keys) < len(found.keys)):
                found = named
        return found

    def build(self, kind: Kind, name: str, builder: object) -> MetadataIndex | None:
        """Return a new index for a builder to fill, or None if the store has one or another builder fills it.

        Every change from now on enters the index, so the builder needs a cut of the present state.
        """
        if self._kept.get(kind, {}).get(name) is not None:
            return None
        entry = self.made.pop((kind, name), None)
        if entry is not None and (entry[0].ready or entry[1]() is not None):
            self.made[kind, name] = entry
            return None
        while len(self.made) >= MOST_INDEXES:
            del self.made[next(iter(self.made))]
        index = MetadataIndex(kind, name, self._get, ready=False)
        self.made[kind, name] = (index, weakref.ref(builder))
        return index
