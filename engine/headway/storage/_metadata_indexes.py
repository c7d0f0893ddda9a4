"""The metadata indexes of a store, for scopes: kept from the first write on, or made by the first scope. Pure.

Comparing the metadata of a million resources takes far longer than delivering the few that match. So a snapshot by
metadata reads the resources that an index names.

Rules:
1. A store begins an index of a metadata key with the first resource that has the key, so the index is complete. It
   keeps indexes for the first `MOST_KEPT` keys of a kind. It gives one up if too few resources share each value.
2. The first snapshot by another key reads everything anyway, and makes an index. It is used once its builder has
   offered every resource of its cut. An index whose builder is dropped before is never used.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping

from headway.resource import Key, Kind, Within, pb
from headway.storage._metadata_index import Found, Get, MetadataIndex

MOST_KEPT = 16
"""The number of metadata keys of a kind whose indexes are kept from the first write on."""

MOST_INDEXES = 16
"""The number of indexes of one store that scopes have made. Another one replaces the least recently used one."""

_NONE: Mapping[str, str] = {}


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

        Later changes enter the index by themselves, so the builder offers a cut of the present state.
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
