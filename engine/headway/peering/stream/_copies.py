"""The known copies in this store, and the operations that keep them equal to their originals. Pure.

Rules:
1. A copy carries the version of its original. A state of the original below it is stale and is ignored. Versions of
   different stores cannot be compared: after the peer's store was replaced, the next state of each original overrides
   its copy, whenever that state arrives.
2. A copy has a uid of this store. If the original has a new uid, it is another incarnation: the copy is removed in
   one commit, and created in the next.
3. Originals of several partitions may have the same namespace and name. The first one is copied, and the others are
   refused until it is gone.
4. After a snapshot, every copy is removed whose original it did not contain, unless its export is still offered by the
   peer but not received here. A snapshot removes no copy before its end: an original that is deleted within it may
   have moved to another version of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headway.peering.stream._rules import ORIGIN_PARTITION, ORIGIN_UID, ORIGIN_VERSION, Breach, Exported, copy_of
from headway.resource import Key, Kind, ResourceId, TypeName, pb, resource_key, type_name
from headway.storage import Operation, Put, Remove


class Copy(NamedTuple):
    """A stored copy: its uid and version here, and its original."""

    uid: str
    version: str
    origin_uid: str
    origin_version: int
    origin_partition: str


Place = tuple[Kind, Key]
"""A kind and a key: of a copy in this store, or of an original in the other one."""


class Change(NamedTuple):
    """The newest known state of an original, None if it was deleted, with its revision, and the place of its copy."""

    id: ResourceId
    place: Place
    resource: pb.Resource | None
    revision: int


class Copies:
    """The copies of one peering.

    Args:
        partition: the partition that holds them.
        most: the greatest number of copies.
        new_uid: returns a new uid.

    Attributes:
        stale: the number of states that were ignored, because a newer one is stored.
        spared: True if there may be copies without an original, because another version of their kind is refused.
    """

    def __init__(self, partition: str, most: int, new_uid: Callable[[], str]) -> None:
        self._partition = partition
        self._most = most
        self._new_uid = new_uid
        self._copies: dict[Place, Copy] = {}
        # Shared by all copies, because a million of them are held.
        self._types: dict[TypeName, pb.Type] = {}
        self._tenancies: dict[str, pb.Tenancy] = {}
        # The originals that the snapshot being received contains; None outside a snapshot.
        self._seen: set[Place] | None = None
        # The copies that may be of an earlier store of the peer, because they were not written since.
        self._outdated: set[Place] = set()
        self.stale = 0
        self.spared = False

    def __len__(self) -> int:
        return len(self._copies)

    def load(self, resources: Iterable[pb.Resource]) -> None:
        """Add stored copies."""
        for resource in resources:
            assert resource.id is not None
            place = type_name(resource.id.type).unversioned, resource_key(resource)
            self._note(place, resource, resource.version)

    def _note(self, place: Place, resource: pb.Resource, version: str) -> None:
        assert resource.id is not None
        metadata = resource.metadata
        origin = metadata.get(ORIGIN_VERSION, "")
        self._copies[place] = Copy(
            resource.id.uid,
            version,
            metadata.get(ORIGIN_UID, ""),
            int(origin) if origin.isascii() and origin.isdecimal() else 0,
            metadata.get(ORIGIN_PARTITION, ""),
        )

    # --- other stores ---

    def outdate(self) -> None:
        """Note that the peer has another store than before: the next state of each original overrides its copy."""
        self._outdated = set(self._copies)

    @property
    def outdated(self) -> bool:
        """True if a copy may be of an earlier store of the peer."""
        return bool(self._outdated)

    # --- snapshots ---

    def begin_snapshot(self) -> None:
        """Note the originals that the peer sends from now on."""
        self._seen = set()

    @property
    def seen(self) -> int:
        """The number of originals that the snapshot has contained so far."""
        return len(self._seen or ())

    def see(self, id: ResourceId, *, deleted: bool = False) -> None:
        """Note that the snapshot contains an original, or no longer does."""
        if self._seen is not None:
            (self._seen.discard if deleted else self._seen.add)((id.type.unversioned, id.key))

    def end_snapshot(self, kept: Iterable[Exported], selection: Iterable[Exported]) -> list[Remove]:
        """Return the removals of all copies without an original. The copies of the exports in ``kept`` stay."""
        seen, self._seen = self._seen or set(), None
        self.spared = False
        refused, selected = list(kept), list(selection)
        removals: list[Remove] = []
        for (kind, key), copy in self._copies.items():
            original = _original(copy, key)
            if (kind, original) in seen:
                continue
            if covered(refused, kind, original):
                self.spared = self.spared or covered(selected, kind, original)
            else:
                removals.append(Remove(kind, key, copy.uid, copy.version))
        self._planned(removals)
        return removals

    def outside(self, exports: Iterable[Exported]) -> list[Operation]:
        """Return the removals of all copies that belong to none of the exports."""
        offered = list(exports)
        return [
            Remove(kind, key, copy.uid, copy.version)
            for (kind, key), copy in self._copies.items()
            if not covered(offered, kind, _original(copy, key))
        ]

    # --- changes ---

    def conflict(self, place: Place, partition: str) -> str | None:
        """Return why an original of a partition cannot have a copy at a place that another one has; None if it can."""
        known = self._copies.get(place)
        if known is None or known.origin_partition == partition:
            return None
        return f"partition {known.origin_partition} has a resource of the same name, which is copied already"

    def holds(self, id: ResourceId) -> bool:
        """Return True if there is a copy of an original."""
        known = self._copies.get(self.place(id))
        return known is not None and known.origin_partition == id.partition

    def plan(self, changes: Iterable[Change]) -> tuple[list[Remove], list[Put | Remove]]:
        """Return the operations that bring the copies to these states: the first and the second commit.

        The first has only removals of copies whose originals were deleted and created again.

        Raises:
            Breach: there would be too many copies.
        """
        newest: dict[Place, Change] = {}
        for change in changes:
            place = change.place
            if change.resource is None and self._holder(newest.get(place), place) not in (None, change.id.partition):
                # Another partition's original of the same name, which was refused.
                continue
            newest[place] = change
        first: list[Remove] = []
        then: list[Put | Remove] = []
        created = 0
        for (kind, key), (id, _, resource, revision) in newest.items():
            known = self._copies.get((kind, key))
            if known is not None and (kind, key) not in self._outdated and known.origin_version >= revision:
                self.stale += known.origin_version > revision
                continue
            if resource is None:
                if known is not None and self._seen is None:
                    then.append(Remove(kind, key, known.uid, known.version))
                continue
            assert resource.id is not None
            if known is None:
                created += 1
            elif known.origin_uid != resource.id.uid:
                first.append(Remove(kind, key, known.uid, known.version))
                known = None
            uid, expected = (self._new_uid(), "") if known is None else (known.uid, known.version)
            then.append(Put(kind, key, copy_of(resource, self._new_id(id, uid)), expected))
        if created and len(self._copies) + created > self._most:
            raise Breach(f"exports more than {self._most} resources")
        self._planned(then)
        return first, then

    def _planned(self, operations: Iterable[Put | Remove]) -> None:
        """Note that these copies are outdated no longer.

        It is noted before they are stored, because the state that is stored with them says so.
        """
        self._outdated.difference_update((each.kind, each.key) for each in operations)

    def _new_id(self, original: ResourceId, uid: str) -> pb.Id:
        type = self._types.get(original.type)
        if type is None:
            type = self._types[original.type] = original.type.message()
        namespace = original.namespace
        tenancy = self._tenancies.get(namespace)
        if tenancy is None:
            tenancy = self._tenancies[namespace] = pb.Tenancy(partition=self._partition, namespace=namespace)
        return pb.Id(uid=uid, name=original.name, type=type, tenancy=tenancy)

    def stored(self, operations: Iterable[Operation], revision: int) -> None:
        """Note that a commit has stored these operations."""
        version = str(revision)
        for operation in operations:
            if isinstance(operation, Remove):
                place = operation.kind, operation.key
                self._copies.pop(place, None)
                self._outdated.discard(place)
            elif isinstance(operation, Put):
                self._note((operation.kind, operation.key), operation.resource, version)

    def _holder(self, change: Change | None, place: Place) -> str | None:
        """Return the partition whose original the copy is of, or is about to be of; None without a copy."""
        if change is not None:
            return change.id.partition
        known = self._copies.get(place)
        return None if known is None else known.origin_partition

    def place(self, id: ResourceId) -> Place:
        """Return the place of the copy of an original."""
        return id.type.unversioned, (self._partition, id.namespace, id.name)


def _original(copy: Copy, key: Key) -> Key:
    return copy.origin_partition, key[1], key[2]


def covered(exports: list[Exported], kind: Kind, original: Key) -> bool:
    """Return True if an original of any version of its kind belongs to one of the exports."""
    return any(each.type.unversioned == kind and each.covers(each.type, original) for each in exports)
