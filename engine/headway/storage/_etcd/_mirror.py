"""What is in a store, as one watch of its prefix says it. Pure: no Trio, no I/O, no clock.

Invariants:

1. The mirror stands at `head`, the last transaction of commits applied. Each puts the head's key, whose etcd version
   counts them, and says there how many keys each of its commits changes. So it is applied when all of it is here and it
   is the next one: a watch that loses, cuts or invents something is found out (`Lost`), whatever its progress
   notifications say.
2. What is at or below the head is stale: refused, and counted. So is whatever else a stream repeats.
3. After a stream was interrupted the first that comes is the one that the mirror stands at, with the same nonce;
   otherwise this is another history (`OtherHistory`).
4. That a lease has gone is no commit: etcd takes its key away. It is heard of in between, and is final for its term.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headway._gen.mvccpb import Event, EventEventType, KeyValue
from headway.resource import Kind, Position, decode, pb, resource_key
from headway.storage._backend import Fence
from headway.storage._decide import Applied, changes_of
from headway.storage._etcd._layout import (
    ANCHOR,
    FENCE,
    HEAD,
    LEASE,
    OWNED,
    RESOURCE,
    STORE,
    Layout,
    lease_name_from,
    place_of,
    scope_from,
)
from headway.storage._etcd._records import (
    NO_FENCE,
    Head,
    StoredFence,
    StoredLease,
    Timeline,
    etcd_revision,
    fence_from,
    head_from,
    lease_from,
    placed_body,
    revision_of,
    timeline_from,
)
from headway.storage._leases import check_borne, lease_of
from headway.storage._log import CommitLog, LogChange
from headway.storage._tables import ResourceTables

_Gathered = tuple[bytes, bytes, Event]
_NONE: Mapping[bytes, pb.Resource] = {}
_COMMITTED = frozenset((RESOURCE, OWNED, FENCE, LEASE, ANCHOR))


class Lost(Exception):
    """A watch has not said everything, or not what commits say: only a snapshot helps."""


class OtherHistory(Exception):
    """What is under the prefix is not what the mirror was made from: a restored cluster, or another store."""


class Mirror:
    """One store's contents and history.

    Args:
        head: where the snapshot stands that `load` will be given.
        counts: what was refused and why, to be looked at; it outlives a mirror.
        max_changes: how many changes of history are kept.
        max_age: for how many seconds.
    """

    def __init__(
        self,
        layout: Layout,
        store_id: str,
        timeline: Timeline,
        head: Head,
        counts: Counter[str],
        *,
        max_changes: int,
        max_age: float,
    ) -> None:
        self.store_id = store_id
        self.timeline = timeline
        self.head = head
        self.tables = ResourceTables()
        self.leases: dict[str, StoredLease] = {}
        self.log = CommitLog(head.revision, max_changes=max_changes, max_age=max_age)
        # Whether the transaction at the head is to come again, as a proof that this is the same history.
        self.rejoining = False
        # Counts whatever has made the mirror different.
        self.version = 0
        # By the nonce of their transaction: resources that this process has on their way, which needn't be decoded.
        self.given: dict[bytes, Mapping[bytes, pb.Resource]] = {}
        self._layout = layout
        self._counts = counts
        self._fences: dict[tuple[str, str], StoredFence] = {}
        # What has come of the transaction that isn't whole yet. Invariant: all of one revision, above the head.
        self._gathered: list[_Gathered] = []

    @property
    def position(self) -> Position:
        """Where the mirror stands."""
        return self.at(self.head.revision)

    def at(self, revision: int) -> Position:
        """A position in this history."""
        return Position(self.store_id, self.timeline.at(revision), revision)

    # --- What is there -------------------------------------------------------

    def fence(self, controller: str, member: str) -> StoredFence:
        """A fence as it counts: when its lease has gone without a commit, it stands above the lease's term.

        The term above an ended one is nobody's: the next one to take the lease goes above that.
        """
        stored = self._fences.get((controller, member), NO_FENCE)
        if stored.leased and lease_of(controller, member) not in self.leases:
            return stored._replace(term=stored.term + 1, number=0, leased=False)
        return stored

    def fences(self) -> Sequence[Fence]:
        """Every fence as it counts, in order of controller and member."""
        return [Fence(*who, *self.fence(*who)[:2]) for who in sorted(self._fences)]

    def check_fence(self, fence: Fence) -> StoredFence:
        """The stored fence that a write with this one is held to. Raises FenceLowered or UnknownTerm."""
        stored = self.fence(fence.controller, fence.member)
        check_borne(fence.controller, fence.member, (stored.term, stored.number), (fence.term, fence.number))
        return stored

    # --- A snapshot ----------------------------------------------------------

    def load(self, kvs: Iterable[KeyValue], former: Mirror | None = None) -> None:
        """Take a part of the snapshot at the head. What ``former`` has at the same revision is shared with it.

        Raises ValueError for what Headway has not written.
        """
        for kv in kvs:
            segment, rest = self._layout.split(kv.key)
            if segment == RESOURCE:
                self._load_resource(kv, rest, former)
            elif segment == FENCE:
                self._fences[scope_from(rest)] = fence_from(kv)
            elif segment == LEASE:
                self._put_lease(rest, kv)

    def load_leases(self, kvs: Iterable[KeyValue]) -> None:
        """The leases that are held now, in place of those that were."""
        self.leases.clear()
        self.load(kvs)

    def _load_resource(self, kv: KeyValue, rest: bytes, former: Mirror | None) -> None:
        kind, key = place_of(rest)
        known = former.tables.get(kind, key) if former is not None else None
        if known is None or known.version != str(revision_of(kv.mod_revision, placed_body(kv.value)[0])):
            known = _resource(kv)
        self.tables.put(kind, key, known)

    # --- A watch -------------------------------------------------------------

    def hear(self, events: Iterable[Event], now: float) -> None:
        """Apply what a watch says. Raises Lost, OtherHistory, and ValueError for what Headway has not written."""
        for event in events:
            kv = event.kv
            assert kv is not None
            segment, rest = self._layout.split(kv.key)
            if segment == HEAD:
                self._hear_head(event, kv, now)
            elif segment == LEASE and event.type == EventEventType.DELETE:
                self._end_lease(rest, revision_of(kv.mod_revision))
            elif segment in _COMMITTED:
                self._gather(segment, rest, event, kv.mod_revision)
            elif segment == STORE and revision_of(kv.mod_revision) > self.head.revision:
                raise OtherHistory("the store's id was written to")

    def interrupted(self) -> None:
        """The stream has ended: of a transaction that has not come as a whole nothing is kept."""
        self._gathered.clear()

    def _gather(self, segment: bytes, rest: bytes, event: Event, revision: int) -> None:
        stands = etcd_revision(self.head.revision)
        if revision <= stands:
            # At the head itself it is what the stream was asked to begin with.
            if not (self.rejoining and revision == stands):
                self._counts["stale events"] += 1
            return
        if self._gathered and self._gathered[0][2].kv.mod_revision != revision:  # type: ignore[union-attr]  # as above
            raise Lost(f"a commit was not whole when an event of etcd's revision {revision} came")
        self._gathered.append((segment, rest, event))

    def _hear_head(self, event: Event, kv: KeyValue, now: float) -> None:
        revision, stands = kv.mod_revision, etcd_revision(self.head.revision)
        if revision < stands or (revision == stands and not self.rejoining):
            self._counts["stale commits"] += 1
            return
        if event.type == EventEventType.DELETE:
            raise Lost("the head was deleted, which no commit does")
        head = head_from(kv)
        if self.rejoining:
            if head != self.head:
                raise OtherHistory(f"the commit at revision {self.head.revision} is another one now")
            self.rejoining = False
            return
        self._check_next(head)
        self._apply(head, now)

    def _check_next(self, head: Head) -> None:
        if head.sequence != self.head.sequence + 1:
            raise Lost(f"transaction {head.sequence} came after {self.head.sequence}")
        gathered, changes = self._gathered, sum(head.changes)
        if len(gathered) != changes:
            raise Lost(f"{len(gathered)} of the {changes} changes of the commits up to {head.revision} have come")
        # No transaction changes a key twice.
        if changes > 1 and len({(segment, rest) for segment, rest, _ in gathered}) != changes:
            raise Lost(f"a change of the commits up to {head.revision} came twice, and another one not at all")
        if gathered and gathered[0][2].kv.mod_revision != etcd_revision(head.revision):  # type: ignore[union-attr]  # as above
            raise Lost(f"changes came that no commit has made, before the one at {head.revision}")

    def _apply(self, head: Head, now: float) -> None:
        gathered, self._gathered = self._gathered, []
        given = self.given.pop(head.nonce, _NONE)
        # Whatever can't be read is found before anything is applied.
        changed = [
            self._changed(rest, event, given) if segment == RESOURCE else None for segment, rest, event in gathered
        ]
        commits: list[tuple[int, list[Applied]]] = []
        begin = 0
        for revision, count in enumerate(head.changes, head.revision - len(head.changes) + 1):
            changes = [each for each in changed[begin : begin + count] if each is not None]
            for _, _, _, new in changes:
                if new is not None and new.version != str(revision):
                    raise ValueError(f"version {new.version} was written in commit {revision}, as the head says")
            commits.append((revision, changes))
            begin += count
        for segment, rest, event in gathered:
            self._put(segment, rest, event.kv)  # type: ignore[arg-type]  # as above
        for revision, changes in commits:
            told: list[LogChange] = []
            for kind, key, old, new in changes:
                if new is None:
                    self.tables.remove(kind, key)
                else:
                    self.tables.put(kind, key, new)
                told += changes_of(kind, old, new)
            self.log.append(revision, told, now)
        self.head = head
        self.version += 1
        if self.timeline.eras[-1][0] == head.revision:
            self.log.mark()

    def _changed(self, rest: bytes, event: Event, given: Mapping[bytes, pb.Resource]) -> Applied:
        """What was put or deleted, and what was there. No transaction changes a key twice."""
        if event.type == EventEventType.PUT:
            new = _resource(event.kv, given)  # type: ignore[arg-type]  # as above
            kind, key = _kind(new), resource_key(new)
            return kind, key, self.tables.get(kind, key), new
        kind, key = place_of(rest)
        old = self.tables.get(kind, key)
        if old is None:
            raise Lost(f"{'/'.join((*kind, *key))} was deleted and had not been there")
        return kind, key, old, None

    def _put(self, segment: bytes, rest: bytes, kv: KeyValue) -> None:
        """What a commit has put besides resources."""
        if segment == FENCE:
            self._fences[scope_from(rest)] = fence_from(kv)
        elif segment == LEASE:
            self._put_lease(rest, kv)
        elif segment == ANCHOR:
            self.timeline = timeline_from(kv)

    def _put_lease(self, rest: bytes, kv: KeyValue) -> None:
        name = lease_name_from(rest)
        self.leases[name] = lease_from(name, kv)

    def _end_lease(self, rest: bytes, revision: int) -> None:
        name = lease_name_from(rest)
        held = self.leases.get(name)
        if held is not None and held.revision < revision:
            del self.leases[name]
            self.version += 1


def _resource(kv: KeyValue, given: Mapping[bytes, pb.Resource] = _NONE) -> pb.Resource:
    place, body = placed_body(kv.value)
    resource = given.get(kv.key)
    if resource is None:
        try:
            resource = decode(pb.Resource, body)
        except ValueError as error:
            raise ValueError(f"{kv.key!r}: {error}") from error
    if resource.id is None or resource.id.type is None:
        raise ValueError(f"{kv.key!r} holds a resource without an id")
    resource.version = str(revision_of(kv.mod_revision, place))
    return resource


def _kind(resource: pb.Resource) -> Kind:
    type = resource.id.type  # type: ignore[union-attr]  # `_resource` has seen that it is there
    return (type.group, type.kind)  # type: ignore[union-attr]  # likewise
