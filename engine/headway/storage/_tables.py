"""What is stored now, by kind and key and by owner. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headway.resource import Key, Kind, pb
from headway.storage._backend import Within
from headway.storage._sorted_keys import SortedKeys


class ResourceTables:
    """The resources of one store."""

    __slots__ = ("_keys", "_owned", "_tables")

    def __init__(self) -> None:
        self._tables: dict[Kind, dict[Key, pb.Resource]] = {}
        # Invariant: the keys of each table.
        self._keys: dict[Kind, SortedKeys] = {}
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
            self._keys[kind] = SortedKeys()
        old = table.get(key)
        if old is not None:
            self._disown(kind, key, old)
        else:
            self._keys[kind].add(key)
        table[key] = resource
        if resource.owner is not None and resource.owner.uid:
            self._owned.setdefault(resource.owner.uid, {})[kind, key] = resource

    def remove(self, kind: Kind, key: Key) -> pb.Resource | None:
        """Take it away; what was there."""
        old = self._tables.get(kind, {}).pop(key, None)
        if old is not None:
            self._keys[kind].remove(key)
            self._disown(kind, key, old)
        return old

    def _disown(self, kind: Kind, key: Key, old: pb.Resource) -> None:
        if old.owner is not None and old.owner.uid:
            owned = self._owned[old.owner.uid]
            del owned[kind, key]
            if not owned:
                del self._owned[old.owner.uid]

    def scan(
        self, kind: Kind, within: Within, *, after: Key | None, limit: int, most: int
    ) -> tuple[list[pb.Resource], Key | None]:
        """Up to ``limit`` resources within, in order of key, behind ``after``, of at most ``most`` that are looked at.

        Returns where to go on besides, or None at the end or the limit.
        """
        keys, table = self._keys.get(kind), self._tables.get(kind, {})
        found: list[pb.Resource] = []
        if keys is None:
            return found, None
        begin = _first(within)
        behind = after is not None and after >= begin
        since = keys.since(after if after is not None and behind else begin, inclusive=not behind)
        for looked_at, key in enumerate(since, 1):
            if within.matches(key):
                found.append(table[key])
                if len(found) == limit:
                    return found, None
            elif _is_behind(key, within):
                return found, None
            if looked_at == most:
                return found, key
        return found, None

    def values(self, kind: Kind) -> list[pb.Resource]:
        """All of a kind, in no order."""
        return list(self._tables.get(kind, {}).values())

    def owned(self, uid: str) -> list[pb.Resource]:
        """What a uid owns, in no order."""
        return list(self._owned.get(uid, {}).values())

    def owns(self, uid: str) -> bool:
        """Whether a uid owns anything."""
        return uid in self._owned

    def kinds(self) -> Sequence[Kind]:
        """The kinds of which something is stored, in order."""
        return sorted(kind for kind, table in self._tables.items() if table)

    def keys(self, kind: Kind) -> Collection[Key]:
        """The keys of a kind."""
        return self._tables.get(kind, {}).keys()


def _first(within: Within) -> Key:
    """The lowest key that can be within."""
    if within.partition == "*":
        return ("", "", "")
    if within.namespace == "*":
        return (within.partition, "", "")
    return (within.partition, within.namespace, within.name_prefix)


def _is_behind(key: Key, within: Within) -> bool:
    """True if no key from this one on can be within."""
    if within.partition == "*":
        return False
    if key[0] != within.partition:
        return key[0] > within.partition
    if within.namespace == "*":
        return False
    if key[1] != within.namespace:
        return key[1] > within.namespace
    return key[2] > within.name_prefix and not key[2].startswith(within.name_prefix)
