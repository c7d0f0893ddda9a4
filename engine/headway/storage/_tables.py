"""What is stored now, by kind and key and by owner. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence

from headway.resource import Key, Kind, pb
from headway.storage._backend import Within


class ResourceTables:
    """The resources of one store."""

    __slots__ = ("_owned", "_tables")

    def __init__(self) -> None:
        self._tables: dict[Kind, dict[Key, pb.Resource]] = {}
        # Invariant: holds exactly the stored resources that have an owner with a uid, by that uid.
        self._owned: dict[str, dict[tuple[Kind, Key], pb.Resource]] = {}

    def get(self, kind: Kind, key: Key) -> pb.Resource | None:
        """What is stored there."""
        table = self._tables.get(kind)
        return table.get(key) if table else None

    def put(self, kind: Kind, key: Key, resource: pb.Resource) -> None:
        """Store it in place of what is there."""
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = {}
        old = table.get(key)
        if old is not None:
            self._disown(kind, key, old)
        table[key] = resource
        if resource.owner is not None and resource.owner.uid:
            self._owned.setdefault(resource.owner.uid, {})[kind, key] = resource

    def remove(self, kind: Kind, key: Key) -> pb.Resource | None:
        """Take it away; what was there."""
        old = self._tables.get(kind, {}).pop(key, None)
        if old is not None:
            self._disown(kind, key, old)
        return old

    def _disown(self, kind: Kind, key: Key, old: pb.Resource) -> None:
        if old.owner is not None and old.owner.uid:
            owned = self._owned[old.owner.uid]
            del owned[kind, key]
            if not owned:
                del self._owned[old.owner.uid]

    def in_order(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> list[pb.Resource]:
        """As `Backend.list`: in order of key."""
        table = self._tables.get(kind, {})
        keys = sorted(table if within.everything else filter(within.matches, table))
        if after is not None:
            keys = keys[bisect_right(keys, after) :]
        if limit:
            keys = keys[:limit]
        return [table[key] for key in keys]

    def within(self, kind: Kind, within: Within) -> list[pb.Resource]:
        """Those within, in no order."""
        table = self._tables.get(kind, {})
        if within.everything:
            return list(table.values())
        return [resource for key, resource in table.items() if within.matches(key)]

    def owned(self, uid: str) -> list[pb.Resource]:
        """What a uid owns, in order of kind and key."""
        owned = self._owned.get(uid, {})
        return [owned[place] for place in sorted(owned)]

    def owns(self, uid: str) -> bool:
        """Whether a uid owns anything."""
        return uid in self._owned

    def kinds(self) -> Sequence[Kind]:
        """The kinds of which something is stored, in order."""
        return sorted(kind for kind, table in self._tables.items() if table)

    def keys(self, kind: Kind) -> Collection[Key]:
        """The keys of a kind."""
        return self._tables.get(kind, {}).keys()
