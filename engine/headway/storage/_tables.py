"""The stored resources, by kind and key and by owner, and the decision what an operation changes in them. Pure."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from headway.resource import Key, Kind, Within, pb
from headway.storage._log import LogChange
from headway.storage._metadata_indexes import MetadataIndexes
from headway.storage._operations import (
    Operation,
    Put,
    Require,
    RequireOwnsNothing,
    StillOwns,
    VersionConflict,
    WrongUid,
)
from headway.storage._sorted_keys import Cut, Part, SortedKeys

K = TypeVar("K", bound=tuple[Any, ...])

Effect = tuple[Kind, Key, pb.Resource | None, pb.Resource | None]
"""A change (kind, key, stored before, stored now)."""


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
            self._keys.copy_for_cuts(key)
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


_LOWEST: Kind = ("", "")

OwnedKey = tuple[str, Kind, Key]
"""A key (the owner's uid, kind, key) of the table by owner."""


class ResourceTables:
    """The resources of one store."""

    __slots__ = ("_owned", "_tables", "indexes")

    def __init__(self) -> None:
        self._tables: dict[Kind, Table[Key]] = {}
        # Invariant: holds exactly the stored resources that have an owner with a uid.
        self._owned: Table[OwnedKey] = Table()
        self.indexes = MetadataIndexes(self.get)

    def get(self, kind: Kind, key: Key) -> pb.Resource | None:
        """Return the stored resource, or None."""
        table = self._tables.get(kind)
        return table.resources.get(key) if table else None

    def get_all(self, kind: Kind, keys: Iterable[Key]) -> list[pb.Resource]:
        """Return the stored resources of these keys, without those that do not exist."""
        table = self._tables.get(kind)
        if table is None:
            return []
        found = map(table.resources.get, keys)
        return [each for each in found if each is not None]

    def put(self, kind: Kind, key: Key, resource: pb.Resource) -> None:
        """Store a resource in place of the stored one."""
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = Table()
        old = table.put(key, resource)
        # A written status leaves the metadata as it was, as the same object.
        if old is None or (old.metadata is not resource.metadata and old.metadata != resource.metadata):
            self.indexes.change(kind, key, old, resource)
        owner = _owner(resource)
        if old is not None and (former := _owner(old)) and former != owner:
            self._owned.remove((former, kind, key))
        if owner:
            self._owned.put((owner, kind, key), resource)

    def remove(self, kind: Kind, key: Key) -> pb.Resource | None:
        """Remove the stored resource and return it, or None."""
        table = self._tables.get(kind)
        old = table.remove(key) if table else None
        self.indexes.change(kind, key, old, None)
        if old is not None and (owner := _owner(old)):
            self._owned.remove((owner, kind, key))
        return old

    def scan(
        self, kind: Kind, within: Within, *, after: Key | None, limit: int, most: int
    ) -> tuple[list[pb.Resource], Key | None]:
        """Look for matching resources behind ``after``, in order of key.

        At most ``most`` resources are looked at and at most ``limit`` are returned; 0 is no limit.

        Returns:
            The resources, and the key to continue after, or None at the end or at the limit.
        """
        table = self._tables.get(kind)
        found: list[pb.Resource] = []
        if table is None:
            return found, None
        first, inclusive = within.begin(after)
        every_key, resources = within.every_key, table.resources
        if every_key and not within.metadata:
            # Most of all lists. It takes a third of the time.
            keys = list(islice(table.since(first, inclusive=inclusive), min(limit or most, most)))
            goes_on = len(keys) == most and most != limit
            return list(map(resources.__getitem__, keys)), keys[-1] if goes_on else None
        for looked_at, key in enumerate(table.since(first, inclusive=inclusive), 1):
            if every_key or within.matches(key):
                resource = resources[key]
                if not within.metadata or within.select([resource]):
                    found.append(resource)
                if len(found) == limit:
                    return found, None
            elif within.is_behind(key):
                return found, None
            if looked_at == most:
                return found, key
        return found, None

    def cut(self, kind: Kind, within: Within, after: Key | None = None) -> Cut:
        """Open a cut of a kind's resources behind ``after``. It may also hold resources that don't match ``within``."""
        table = self._tables.get(kind)
        if table is None:
            return Cut((), 0, 0)
        first, inclusive = within.begin(after)
        return table.cut(first, within.is_behind, inclusive=inclusive)

    def owned(self, uid: str) -> Cut:
        """Open a cut of the resources that a uid owns, in order of kind and key."""
        return self._owned.cut((uid, _LOWEST, ("", "", "")), lambda key: key[0] > uid)

    def owns(self, uid: str) -> bool:
        """Return True if a uid owns anything."""
        key = next(self._owned.since((uid, _LOWEST, ("", "", "")), inclusive=True), None)
        return key is not None and key[0] == uid

    def kinds(self) -> Sequence[Kind]:
        """Return the kinds that have stored resources, in order."""
        return sorted(kind for kind, table in self._tables.items() if table.resources)

    def sizes(self) -> dict[Kind, int]:
        """Return the number of stored resources of each kind that has any."""
        return {kind: len(table.resources) for kind, table in self._tables.items() if table.resources}

    def keys(self, kind: Kind) -> Collection[Key]:
        """Return the keys of a kind."""
        table = self._tables.get(kind)
        return table.resources.keys() if table else ()


def _owner(resource: pb.Resource) -> str:
    """Return the uid of the owner, or an empty string."""
    owner = resource.owner
    return owner.uid if owner is not None else ""


def decide(tables: ResourceTables, operation: Operation) -> Effect | None:
    """Return the change that the operation makes, or None. Raise a StorageError if the store rejects it."""
    if isinstance(operation, RequireOwnsNothing):
        if tables.owns(operation.owner_uid):
            raise StillOwns(f"uid {operation.owner_uid} still owns resources")
        return None
    kind, key = operation.kind, operation.key
    stored = tables.get(kind, key)
    version = "" if stored is None else stored.version
    if isinstance(operation, Put):
        new: pb.Resource | None = operation.resource
        if stored is not None and stored.id.uid != new.id.uid:  # type: ignore[union-attr]  # stored ids are whole
            raise WrongUid(f"{key[2]} is stored with another uid")
    else:
        new = None
        is_another = stored is None or stored.id.uid != operation.uid  # type: ignore[union-attr]  # as above
        if isinstance(operation, Require):
            if is_another or operation.expected not in ("", version):
                raise VersionConflict(f"{key[2]} has changed since it was read")
            return None
        if is_another:
            return None
    if version != operation.expected:
        raise VersionConflict(f"{key[2]} is not stored at version {operation.expected!r}")
    return (kind, key, stored, new)


def changes_of(
    kind: Kind, old: pb.Resource | None, new: pb.Resource | None, formers: dict[int, pb.Resource], index: int
) -> list[LogChange]:
    """Return the log entries of a change: one, or two if the resource is now stored as another version of its kind.

    The two entries, in one commit, delete the resource as the old version and store it as the new one. A watcher of
    one version therefore gets the deletion of every resource that it has seen, and keeps no record of them itself.
    If an update changes the metadata, the old state is added to ``formers`` at ``index``.
    """
    if new is None:
        return [] if old is None else [(kind, old, True)]
    if old is None:
        return [(kind, new, False)]
    if version_of(old) != version_of(new):
        return [(kind, old, True), (kind, new, False)]
    if old.metadata is not new.metadata and old.metadata != new.metadata:
        formers[index] = old
    return [(kind, new, False)]


def version_of(resource: pb.Resource) -> str:
    """Return the version of its kind as which a resource is stored."""
    return resource.id.type.group_version  # type: ignore[union-attr]  # stored ids are whole
