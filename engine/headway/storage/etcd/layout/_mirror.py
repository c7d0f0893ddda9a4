"""The mirror: the contents of a store, kept by one watch of its prefix. Pure: no Trio, no I/O, no clock.

Invariants:

1. `head` is the last applied transaction of commits. Every transaction puts the head key with the number of keys that
   each of its commits changes. The key's etcd version counts the transactions. So a transaction is applied only when
   all of it has arrived and it is the next one. A watch that loses, splits or invents changes is detected (`Lost`),
   regardless of its progress notifications.
2. Changes at or below the head are stale. They are rejected and counted, like everything else that a stream repeats.
3. After an interruption, a stream begins with the transaction at the mirror's head, with the same nonce. Otherwise it
   belongs to another history (`OtherHistory`).
4. The end of a lease is not a commit: etcd deletes the key. The event arrives between commits and ends the term.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from headway._gen.mvccpb import Event, EventEventType, KeyValue
from headway.resource import Kind, Position, decode_resource, pb, resource_key
from headway.storage._fences import next_term
from headway.storage._leases import check_borne, lease_of
from headway.storage._log import MAX_BYTES, CommitLog, LogChange
from headway.storage._operations import Fence
from headway.storage._tables import Effect, ResourceTables, changes_of
from headway.storage._timeline import Timeline
from headway.storage._traces import CommitTraces
from headway.storage.etcd.layout._keys import (
    ANCHOR,
    FENCE,
    HEAD,
    LEASE,
    NO_FENCE,
    OWNED,
    RESOURCE,
    RULES,
    STORE,
    TRACE,
    Head,
    Layout,
    StoredFence,
    StoredLease,
    etcd_revision,
    fence_from,
    head_from,
    lease_from,
    lease_name_from,
    place_in,
    place_of,
    placed_body,
    revision_of,
    scope_from,
    timeline_from,
    traces_from,
)

_Gathered = tuple[bytes, Event]
_NONE: Mapping[bytes, Effect] = {}
# Stands for a change that another process has made, whose resource must be decoded.
_DECODED: Effect = (("", ""), ("", "", ""), None, None)
_PUT = EventEventType.PUT
_COMMITTED = frozenset((OWNED, FENCE, LEASE, ANCHOR, RULES))


class Lost(Exception):
    """The watch has lost changes, or delivered changes that no commit has made. A new snapshot is needed."""


class OtherHistory(Exception):
    """The prefix has another history than the mirror: the cluster was restored, or this is another store."""


class Mirror:
    """The contents and the history of a store.

    Args:
        layout: the keys of the store.
        store_id: the store's id.
        timeline: the sessions of the store.
        head: the last transaction in the snapshot that is passed to `load`.
        counts: the number of rejected answers by reason, for diagnosis. It outlives the mirror.
        max_changes: the number of changes of history to keep.
        max_age: the maximum age of the kept history in seconds.
        max_bytes: the number of bytes of history to keep, about as they are in memory.
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
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.store_id = store_id
        self.timeline = timeline
        self.head = head
        self.tables = ResourceTables()
        self.leases: dict[str, StoredLease] = {}
        self.traces = CommitTraces()
        # etcd's revision of the last put of each key of rules.
        self.rule_puts: dict[bytes, int] = {}
        self.log = CommitLog(head.revision, max_changes=max_changes, max_age=max_age, max_bytes=max_bytes)
        # True if the watch must first repeat the transaction at the head, to prove that this is the same history.
        self.rejoining = False
        # The number of changes to the mirror.
        self.version = 0
        # The changes in this process's transactions under way, by nonce. They need not be decoded again.
        self.given: dict[bytes, Mapping[bytes, Effect]] = {}
        # Called with the changes of each commit, once they are applied.
        self.applied: Callable[[Sequence[Effect]], None] | None = None
        self._position: Position | None = None
        self._layout = layout
        self._counts = counts
        self._fences: dict[tuple[str, str], StoredFence] = {}
        # The changes received of an incomplete transaction. Invariant: all have one revision, above the head.
        self._gathered: list[_Gathered] = []

    @property
    def position(self) -> Position:
        """The position of the mirror's head."""
        # Every write reads it, and it changes with a transaction.
        here = self._position
        if here is None:
            here = self._position = self.at(self.head.revision)
        return here

    def at(self, revision: int) -> Position:
        """Return the position of a revision in this history."""
        first, session = self.timeline.eras[-1]
        if revision < first:
            session = self.timeline.at(revision)
        return Position(self.store_id, session, revision)

    # --- Fences --------------------------------------------------------------

    def fence(self, controller: str, member: str) -> StoredFence:
        """Return the effective fence. If its lease has ended without a commit, it is one term above the stored one.

        No holder ever has that term: the next one to acquire the lease gets a term above it.
        """
        stored = self._fences.get((controller, member), NO_FENCE)
        if stored.leased and lease_of(controller, member) not in self.leases:
            return stored._replace(term=stored.term + 1, number=0, leased=False)
        return stored

    def next_term(self, controller: str, member: str) -> int:
        """Return the member's `next_term`."""
        return max(self.fence(controller, member).term + 1, next_term((controller, member), self._fences))

    def fences(self) -> Sequence[Fence]:
        """Return every effective fence, in order of controller and member."""
        return [Fence(*who, *self.fence(*who)[:2]) for who in sorted(self._fences)]

    def check_fence(self, fence: Fence) -> StoredFence:
        """Check the fence of a write and return the stored one. Raise FenceLowered or UnknownTerm."""
        stored = self.fence(fence.controller, fence.member)
        check_borne(fence, (stored.term, stored.number))
        return stored

    # --- A snapshot ----------------------------------------------------------

    def load(self, kvs: Iterable[KeyValue], former: Mirror | None = None) -> None:
        """Load a part of the snapshot at the head. Share the resources that ``former`` has at the same revision.

        Raise ValueError if Headway has not written one of the values.
        """
        for kv in kvs:
            segment, rest = self._layout.split(kv.key)
            if segment == RESOURCE:
                self._load_resource(kv, rest, former)
            elif segment == FENCE:
                self._fences[scope_from(rest)] = fence_from(kv)
            elif segment == LEASE:
                self._put_lease(rest, kv)
            elif segment == RULES:
                self.rule_puts[kv.key] = kv.mod_revision

    def load_leases(self, kvs: Iterable[KeyValue]) -> None:
        """Replace all leases by the given ones."""
        self.leases.clear()
        self.load(kvs)

    def _load_resource(self, kv: KeyValue, rest: bytes, former: Mirror | None) -> None:
        kind, key = place_of(rest)
        known = former.tables.get(kind, key) if former is not None else None
        if known is None or known.version != str(revision_of(kv.mod_revision, placed_body(kv.value)[0])):
            known = _resource(kv)
        self.tables.put(kind, key, known)

    # --- A watch -------------------------------------------------------------

    def receive(self, events: Iterable[Event], now: float) -> None:
        """Apply the events of a watch.

        Raises:
            Lost, OtherHistory: the events contradict the mirror.
            ValueError: Headway has not written one of the values.
        """
        resources = self._layout.resources
        for event in events:
            kv = event.kv
            assert kv is not None
            if kv.key.startswith(resources):
                self._gather(RESOURCE, event, kv.mod_revision)
                continue
            segment, rest = self._layout.split(kv.key)
            if segment == HEAD:
                self._receive_head(event, kv, now)
            elif segment == LEASE and event.type == EventEventType.DELETE:
                self._end_lease(rest, revision_of(kv.mod_revision))
            elif segment in _COMMITTED:
                self._gather(segment, event, kv.mod_revision)
            elif segment == TRACE and event.type == EventEventType.PUT:
                # It arrives before the head that ends its transaction, so before any watcher can see the commits.
                for revision, trace in traces_from(kv).items():
                    self.traces.put(revision, trace)
            elif segment == STORE and revision_of(kv.mod_revision) > self.head.revision:
                raise OtherHistory("the store's id was written again")

    def interrupted(self) -> None:
        """Drop the changes of an incomplete transaction, because the stream has ended."""
        self._gathered.clear()

    def _gather(self, segment: bytes, event: Event, revision: int) -> None:
        gathered = self._gathered
        if gathered and gathered[0][1].kv.mod_revision == revision:  # type: ignore[union-attr]  # checked by `receive`
            gathered.append((segment, event))
            return
        stands = etcd_revision(self.head.revision)
        if revision <= stands:
            # While rejoining, the stream begins with the transaction at the head.
            if not (self.rejoining and revision == stands):
                self._counts["stale events"] += 1
            return
        if gathered:
            raise Lost(f"an event of etcd's revision {revision} arrived before the end of the last commit")
        gathered.append((segment, event))

    def _receive_head(self, event: Event, kv: KeyValue, now: float) -> None:
        revision, stands = kv.mod_revision, etcd_revision(self.head.revision)
        if revision < stands or (revision == stands and not self.rejoining):
            self._counts["stale commits"] += 1
            return
        if event.type == EventEventType.DELETE:
            raise Lost("the head key was deleted, but Headway never deletes it")
        head = head_from(kv)
        if self.rejoining:
            if head != self.head:
                raise OtherHistory(f"etcd now has another commit at revision {self.head.revision}")
            self.rejoining = False
            return
        self._check_next(head)
        self._apply(head, now)

    def _check_next(self, head: Head) -> None:
        if head.sequence != self.head.sequence + 1:
            raise Lost(f"transaction {head.sequence} arrived after {self.head.sequence}")
        gathered, changes = self._gathered, sum(head.changes)
        if len(gathered) != changes:
            raise Lost(f"expected {changes} changes of the commits up to {head.revision}, got {len(gathered)}")
        # No transaction changes a key twice.
        if changes > 1 and len({event.kv.key for *_, event in gathered}) != changes:  # type: ignore[union-attr]  # as above
            raise Lost(f"a change of the commits up to {head.revision} arrived twice, and another is missing")
        if gathered and gathered[0][1].kv.mod_revision != etcd_revision(head.revision):  # type: ignore[union-attr]  # as above
            raise Lost(f"changes that no commit has made arrived before the commit at {head.revision}")

    def _apply(self, head: Head, now: float) -> None:
        gathered, self._gathered = self._gathered, []
        given = self.given.pop(head.nonce, _NONE)
        # Decode all values before applying any, because one may be invalid.
        commits: list[tuple[int, list[Effect]]] = []
        first, rest = revision_of(etcd_revision(head.revision)), iter(gathered)
        for place, count in enumerate(head.changes):
            version = str(first + place)
            mine = [event for segment, event in islice(rest, count) if segment == RESOURCE]
            commits.append((first + place, [self._changed(event, place, version, given) for event in mine]))
        for segment, event in gathered:
            if segment != RESOURCE:
                self._put(segment, event.kv)  # type: ignore[arg-type]  # checked by `receive`
        tables, append, applied = self.tables, self.log.append, self.applied
        for revision, changes in commits:
            entries: list[LogChange] = []
            formers: dict[int, pb.Resource] = {}
            for kind, key, old, new in changes:
                if new is None:
                    tables.remove(kind, key)
                else:
                    tables.put(kind, key, new)
                entries += changes_of(kind, old, new, formers, len(entries))
            append(revision, entries, now, formers)
            if applied is not None:
                applied(changes)
        self.head = head
        self._position = None
        self.version += 1
        if self.timeline.eras[-1][0] == head.revision:
            self.log.mark()

    def _changed(self, event: Event, place: int, version: str, given: Mapping[bytes, Effect]) -> Effect:
        """Return a change with the resource before it, and give the resource the version of its commit.

        No transaction changes a key twice.
        """
        kv = event.kv
        assert kv is not None
        if event.type != _PUT:
            kind, key = place_of(self._layout.split(kv.key)[1])
            old = self.tables.get(kind, key)
            if old is None:
                raise Lost(f"{'/'.join((*kind, *key))} was deleted but did not exist")
            return kind, key, old, None
        kind, key, _, new = given.get(kv.key, _DECODED)
        if new is None:
            new = _resource(kv)
            kind, key = _kind(new), resource_key(new)
        if place_in(kv.value) != place:
            written = revision_of(kv.mod_revision, place_in(kv.value))
            raise ValueError(f"version {written} was written in commit {version}, as the head says")
        new.version = version
        return kind, key, self.tables.get(kind, key), new

    def _put(self, segment: bytes, kv: KeyValue) -> None:
        """Apply a put of a fence, a lease, the anchor or a key of rules."""
        if segment == ANCHOR:
            self.timeline = timeline_from(kv)
        elif segment == FENCE:
            self._fences[scope_from(self._layout.split(kv.key)[1])] = fence_from(kv)
        elif segment == LEASE:
            self._put_lease(self._layout.split(kv.key)[1], kv)
        elif segment == RULES:
            self.rule_puts[kv.key] = kv.mod_revision

    def _put_lease(self, rest: bytes, kv: KeyValue) -> None:
        name = lease_name_from(rest)
        self.leases[name] = lease_from(name, kv)

    def _end_lease(self, rest: bytes, revision: int) -> None:
        name = lease_name_from(rest)
        held = self.leases.get(name)
        if held is not None and held.revision < revision:
            del self.leases[name]
            self.version += 1


def _resource(kv: KeyValue) -> pb.Resource:
    place, body = placed_body(kv.value)
    try:
        resource = decode_resource(body)
    except ValueError as error:
        raise ValueError(f"{kv.key!r}: {error}") from error
    if resource.id is None or resource.id.type is None:
        raise ValueError(f"{kv.key!r} holds a resource without an id")
    resource.version = str(revision_of(kv.mod_revision, place))
    return resource


def _kind(resource: pb.Resource) -> Kind:
    type = resource.id.type  # type: ignore[union-attr]  # checked by `_resource`
    return (type.group, type.kind)  # type: ignore[union-attr]  # as above
