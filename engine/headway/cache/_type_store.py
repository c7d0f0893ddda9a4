"""The store of a type: its cached entries, and the rules for changing them. No Trio, no I/O, no clock.

Rules. The *frontier* is the revision up to which the entries are complete. It reflects what has been applied, never
what a server claims to have.

1. A change is applied if it is above the frontier, not below an earlier one in the same item, and above the revision
   that is known *ahead* for its key. When its commits are complete, the revision of the last is the frontier. Any other
   change is stale: it is refused and counted. A stale change that is newer than the entry of its key proves that the
   frontier is false. Some bookmark was false, and only a snapshot at or above the frontier can repair that.
2. A reply to a write is compared in the same way and applied at once. It never moves the frontier, because it says
   nothing about other keys. A state known only from a reply is *ahead* until the frontier has passed it. A deletion
   known only from a reply is a *grave*, an absence that is ahead. A reply at or below the frontier that is newer than
   the entry of its key proves that the frontier is false, and is applied as well (C5).
3. A snapshot is gathered separately and applied in one step at its end, which carries its revision S. It is discarded
   if S is below the frontier. Otherwise it is the truth: its resources are applied unless their key is ahead of S;
   other entries are deleted unless their key is ahead of S; then the frontier is S.
4. A bookmark moves the frontier.
5. A change that a reply has overtaken (above the frontier, below the reply) is refused as data, but it happened, so the
   keys that it maps to must be reconciled. It is returned as overtaken, for mapping only, unless it was returned when
   its own reply was applied: without its old state it would look like a creation.
6. All entries belong to one store id, which never changes; data of another store needs another `TypeStore`. The session
   and the versions are those of the server that last moved the frontier. Discarded items and replies do not affect the
   position that a stream can resume after.

Therefore, in whatever order, repetition or age the inputs arrive, the revision of a key's entry never decreases, a
deleted key stays absent until a later creation, and the frontier never decreases (C2).

Comparing with `ahead` suffices: an entry that is not ahead is at or below the frontier, so any revision above the
frontier is also above the entry.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from headway.errors import EngineBug, StoreChanged
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
    resource_key,
)


class Applied(NamedTuple):
    """A change of one key with both its states, as it was applied. Changes are never merged.

    An overtaken change (rule 5) has the same form: ``new`` is the state that it set, or ``old`` is the state that it
    deleted.

    Attributes:
        old: the entry before, or None.
        new: the entry after, or None.
        revision: the revision of the change. A deletion known only from a snapshot has the snapshot's revision.
    """

    key: Key
    old: pb.Resource | None
    new: pb.Resource | None
    revision: int


class TypeStore:
    """The entries of one type from one store.

    Attributes:
        entries: the entries, to be read only. Only the store changes them.
        frontier: see the rules. 0, with ``primed`` False, until the first snapshot has ended.
        store_id, session, versions: together with the frontier, the position that a stream can resume after.
        refused: the number of stale changes and snapshots, which were refused.
        disproved: True if a stale change or a reply has proved the frontier false since this was last set to False.
    """

    def __init__(self) -> None:
        self.entries: dict[Key, pb.Resource] = {}
        # Invariant: never decreases.
        self.frontier = 0
        self.primed = False
        self.disproved = False
        self.store_id = ""
        self.session = ""
        self.versions = ""
        self.refused = 0
        # The position of the newest reply that was applied.
        self._replied: Position | None = None
        # Overtaken changes, until `take_overtaken`.
        self._overtaken: list[Applied] = []
        # Invariant: holds exactly the keys whose state is known from a reply above the frontier, with the revision of
        # the reply. A key that is not in `entries` is a grave.
        self._ahead: dict[Key, int] = {}
        # Every (revision, key) added above, as a heap, so that moving the frontier only touches these; and as a set.
        self._ahead_order: list[tuple[int, Key]] = []
        self._reported: set[tuple[int, Key]] = set()
        self._gathered: dict[Key, pb.Resource] = {}

    @property
    def newest(self) -> int:
        """The highest revision of any entry or grave."""
        return max(self.frontier, max(self._ahead.values(), default=0))

    @property
    def position(self) -> Position:
        """The frontier, as the position that a stream can resume after."""
        return Position(self.store_id, self.session, self.frontier, self.versions)

    @property
    def known(self) -> Position | None:
        """The newest position that the data depends on; None without data.

        It is a reply's position if that is ahead of the frontier. A store that never had this position has lost data.
        """
        if self._replied is not None and self._replied.revision > self.frontier:
            return self._replied
        return self.position if self.primed else None

    @property
    def gathered(self) -> int:
        """The number of resources that an unfinished snapshot has delivered so far."""
        return len(self._gathered)

    def ahead(self) -> dict[Key, int]:
        """Return the keys known from a reply above the frontier, with the reply's revision."""
        return dict(self._ahead)

    def restart(self) -> None:
        """Forget the content of an unfinished snapshot, because a new stream begins."""
        self._gathered = {}

    def feed(self, item: StreamItem) -> list[Applied]:
        """Apply an item of a stream (whole commits only), and return the changes in order."""
        if isinstance(item, Changes):
            return self._changes(item.changes)
        if isinstance(item, Bookmark):
            self._note_store(item.position)
            if self.primed:
                self._raise_to(item.position)
            return []
        if isinstance(item, SnapshotChunk):
            self._gathered.update(zip(map(resource_key, item.resources), item.resources, strict=True))
            return []
        return self._end_of_snapshot(item)

    def _changes(self, changes: list[Change]) -> list[Applied]:
        if not self.primed:
            raise EngineBug("a change was fed to a store before its snapshot")
        frontier, entries, ahead = self.frontier, self.entries, self._ahead
        applied: list[Applied] = []
        newest = frontier
        for revision, resource, deleted, _ in changes:
            # Several changes of one commit share a revision. A lower revision is a repetition within the item.
            if revision <= frontier or revision < newest:
                self.refused += 1
                if revision <= frontier and self._holds_older(resource_key(resource), revision):
                    self.disproved = True
                continue
            same_commit, newest = revision == newest, revision
            key = resource_key(resource)
            if ahead and ahead.get(key, 0) >= revision:
                # A reply has reported this change, or has overtaken it (rule 5).
                if (revision, key) not in self._reported:
                    was, new = (resource, None) if deleted else (None, resource)
                    self._overtaken.append(Applied(key, was, new, revision))
                continue
            old = entries.get(key)
            if deleted:
                if old is not None:
                    del entries[key]
                    applied.append(Applied(key, old, None, revision))
            elif same_commit and old is not None and old.version == resource.version:
                self.refused += 1
            else:
                entries[key] = resource
                _note(applied, key, old, resource, revision)
        # These keys are no longer ahead.
        self._raise_frontier(newest)
        return applied

    def reply(self, key: Key, stored: pb.Resource | None, position: Position) -> list[Applied] | None:
        """Apply the response to a write: at ``position``, ``stored`` is the state of the key (None: absent).

        Return the changes, or None if this state or a later one of the key is already known. Raises StoreChanged if the
        response is from another store.
        """
        self._note_store(position)
        revision = position.revision
        if revision <= self._ahead.get(key, 0):
            return None
        if revision > self.frontier:
            if self._replied is None or revision > self._replied.revision:
                self._replied = position
            self._ahead[key] = revision
            heapq.heappush(self._ahead_order, (revision, key))
            self._reported.add((revision, key))
        elif self._holds_older(key, revision if stored is None else int(stored.version)):
            self.disproved = True
        else:
            # An absent key may have been deleted after this reply.
            return None
        old = self.entries.get(key)
        applied: list[Applied] = []
        if stored is None:
            if old is not None:
                del self.entries[key]
                applied.append(Applied(key, old, None, revision))
        elif old is None or old.version != stored.version:
            self.entries[key] = stored
            _note(applied, key, old, stored, revision)
        return applied

    def _end_of_snapshot(self, item: EndOfSnapshot) -> list[Applied]:
        gathered, self._gathered = self._gathered, {}
        self._note_store(item.position)
        revision = item.position.revision
        if self.primed and revision < self.frontier:
            self.refused += 1
            if any(self._holds_older(key, int(resource.version)) for key, resource in gathered.items()):
                self.disproved = True
            return []
        applied: list[Applied] = []
        if not self.primed and not self._ahead:
            # Nothing can have been read yet, so the gathered resources become the entries without a comparison.
            self.entries = gathered
        else:
            applied = self._difference(gathered, revision)
        self.primed = True
        self._raise_to(item.position)
        return applied

    def _difference(self, gathered: dict[Key, pb.Resource], revision: int) -> list[Applied]:
        entries, ahead = self.entries, self._ahead
        applied: list[Applied] = []
        for key in [key for key in entries if key not in gathered and ahead.get(key, 0) <= revision]:
            applied.append(Applied(key, entries.pop(key), None, revision))
        for key, resource in gathered.items():
            old = entries.get(key)
            if old is not None and old.version == resource.version:
                continue
            if ahead.get(key, 0) > revision:
                self._overtaken.append(Applied(key, None, resource, revision))
                continue
            entries[key] = resource
            _note(applied, key, old, resource, int(resource.version))
        return applied

    def _holds_older(self, key: Key, revision: int) -> bool:
        """Return True if an entry's version is below the revision of a change or deletion of its key.

        If the frontier is true, this is impossible for a revision up to the frontier.
        """
        held = self.entries.get(key)
        return held is not None and int(held.version) < revision

    def take_overtaken(self) -> list[Applied]:
        """Return the changes that have been overtaken since the last call."""
        taken, self._overtaken = self._overtaken, []
        return taken

    def _raise_to(self, position: Position) -> None:
        if position.revision >= self.frontier:
            self.session, self.versions = position.session, position.versions
            self._raise_frontier(position.revision)

    def _raise_frontier(self, revision: int) -> None:
        if revision > self.frontier:
            self.frontier = revision
            order = self._ahead_order
            while order and order[0][0] <= revision:
                known, key = heapq.heappop(order)
                self._reported.remove((known, key))
                if self._ahead.get(key) == known:
                    del self._ahead[key]

    def _note_store(self, position: Position) -> None:
        if not self.store_id:
            self.store_id = position.store_id
        elif position.store_id != self.store_id:
            raise StoreChanged(f"data of store {position.store_id} came for a cache of {self.store_id}")


def _note(applied: list[Applied], key: Key, old: pb.Resource | None, new: pb.Resource, revision: int) -> None:
    """Append a change. Another incarnation under the same key counts as a deletion and a creation."""
    if old is not None and old.id.uid != new.id.uid:  # type: ignore[union-attr]  # stored ids are whole
        applied.append(Applied(key, old, None, revision))
        old = None
    # A call of the class would run a function of Python for every change.
    applied.append(tuple.__new__(Applied, (key, old, new, revision)))
