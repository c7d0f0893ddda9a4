"""The gate: what one type's cache holds, and what may change it. Pure: no Trio, no I/O, no clock.

Rules. The *frontier* is the revision up to which what is held is complete; it is what has been applied, never what a
server says it has.

1. A change is applied when it is above the frontier, not below one that came before it in the same item, and above
   what is known *ahead* for its key. When its commits are whole, the last one's revision is the frontier. Anything
   else is stale: refused and counted. What is stale and yet newer than what is held for its key proves that the
   frontier is not true: some bookmark was false, and only a snapshot at or above the frontier can mend it.
2. A reply to a write is held to the same comparison and applied at once. It never moves the frontier: of other keys
   it says nothing. What is known only by a reply is *ahead* until the frontier has passed it; a deletion known only by
   a reply is a *grave*, an absence that is ahead.
3. A snapshot is gathered aside and applied in one step at its end, which carries its revision S. Below the frontier it
   is thrown away. At or above, it is the truth: what it brings is applied unless the key is ahead of S; what it does
   not bring is deleted unless the key is ahead of S; then the frontier is S.
4. A bookmark moves the frontier.
5. A change that a reply has overtaken (above the frontier, below the reply) is refused as data, but it happened: the
   keys that it maps to are owed a look. It is returned as overtaken, for mapping alone.
6. Everything held is of one store id; a gate never changes it. Data of another store needs another gate. The
   incarnation is that of the server which the frontier was last heard from: what is thrown away, and a reply, says
   nothing of where a stream may go on.

So for every key the revision of what is held never falls, a deleted key stays absent until a later creation, and the
frontier never falls: whatever order, repetition or age the inputs come in (C2).

Why comparing with `ahead` is enough: an entry that isn't ahead is at or below the frontier, and whatever is above the
frontier is above it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
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
    """One key's change as it was applied: never merged with another one, and both sides of it.

    An overtaken change (rule 5) looks the same; its ``new`` is what it had brought, or ``old`` what it had deleted.

    Attributes:
        old: what was held before; None: nothing.
        new: what is held now; None: nothing.
        revision: of the change. A deletion that only a snapshot showed has the snapshot's.
    """

    key: Key
    old: pb.Resource | None
    new: pb.Resource | None
    revision: int


class Found(Collection[Applied]):
    """What is held at one moment, as if it had all just been created. Each `Applied` is made when it is asked for."""

    __slots__ = ("_keys", "_resources")

    def __init__(self, entries: Mapping[Key, pb.Resource]) -> None:
        self._keys = list(entries)
        self._resources = list(entries.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Applied]:
        return (Applied(key, None, new, 0) for key, new in zip(self._keys, self._resources, strict=True))

    def __contains__(self, applied: object) -> bool:
        return any(applied == each for each in self)


@dataclass(slots=True)
class Refusals:
    """How many stale things were refused, by what they were."""

    changes: int = 0
    overtaken: int = 0
    replies: int = 0
    snapshots: int = 0


class TypeStore:
    """The entries of one type, from one store.

    Attributes:
        entries: what is held. Read it; only the gate writes to it.
        frontier: see the rules. 0 and ``primed`` False until the first snapshot has ended.
        store_id, incarnation, versions: with the frontier, the position after which a stream may go on.
        disproved: whether something stale has proved the frontier false since this was last set to False.
    """

    def __init__(self) -> None:
        self.entries: dict[Key, pb.Resource] = {}
        # Invariant: never falls.
        self.frontier = 0
        self.primed = False
        self.disproved = False
        self.store_id = ""
        self.incarnation = ""
        self.versions = ""
        self.refused = Refusals()
        # Of the newest reply that was applied.
        self._replied: Position | None = None
        # Changes that were overtaken, until `take_overtaken`.
        self._overtaken: list[Applied] = []
        # Invariant: holds exactly the keys known by a reply above the frontier, with that revision; one that is not
        # in `entries` is a grave.
        self._ahead: dict[Key, int] = {}
        # Every (revision, key) that was put there, as a heap, so that a frontier that moves needs no look at the rest.
        self._ahead_order: list[tuple[int, Key]] = []
        self._gathered: dict[Key, pb.Resource] = {}

    @property
    def newest(self) -> int:
        """No entry is above this revision."""
        return max(self.frontier, max(self._ahead.values(), default=0))

    @property
    def position(self) -> Position:
        """The frontier, as the position after which a stream may go on."""
        return Position(self.store_id, self.incarnation, self.frontier, self.versions)

    @property
    def known(self) -> Position | None:
        """The newest position that what is held rests on: a store that was never there has lost some of it.

        A reply's where that is ahead of the frontier. None: nothing is held.
        """
        if self._replied is not None and self._replied.revision > self.frontier:
            return self._replied
        return self.position if self.primed else None

    @property
    def gathered(self) -> int:
        """How many resources an unfinished snapshot has brought so far."""
        return len(self._gathered)

    def ahead(self) -> dict[Key, int]:
        """The keys known by a reply above the frontier, with its revision."""
        return dict(self._ahead)

    def restart(self) -> None:
        """A new stream begins: what an unfinished snapshot had brought is forgotten."""
        self._gathered = {}

    def feed(self, item: StreamItem) -> list[Applied]:
        """Apply an item of a stream (whole commits only) and return what changed, in order."""
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
            raise EngineBug("a change was fed to a gate before its snapshot")
        frontier, entries, ahead = self.frontier, self.entries, self._ahead
        applied: list[Applied] = []
        newest = frontier
        for revision, resource, deleted, _ in changes:
            # Several changes of one commit share a revision; one that falls is a repetition within the item.
            if revision <= frontier or revision < newest:
                self.refused.changes += 1
                if revision <= frontier and self._holds_older(resource_key(resource), revision):
                    self.disproved = True
                continue
            same_commit, newest = revision == newest, revision
            key = resource_key(resource)
            if ahead and (known := ahead.get(key, 0)) >= revision:
                # At `known` it is the very change that the reply was of; below it, it was overtaken.
                if revision < known:
                    self.refused.overtaken += 1
                    self._overtake(key, resource, revision, deleted)
                continue
            old = entries.get(key)
            if deleted:
                if old is not None:
                    del entries[key]
                    applied.append(Applied(key, old, None, revision))
            elif same_commit and old is not None and old.version == resource.version:
                self.refused.changes += 1
            else:
                entries[key] = resource
                _note(applied, key, old, resource, revision)
            if ahead:
                ahead.pop(key, None)
        self._raise_frontier(newest)
        return applied

    def reply(self, key: Key, stored: pb.Resource | None, position: Position) -> list[Applied]:
        """Apply what a write's answer says: at ``position`` this is what bears the key (None: nothing does).

        Raises StoreChanged when the answer is of another store.
        """
        self._note_store(position)
        revision = position.revision
        if revision <= self.frontier or revision <= self._ahead.get(key, 0):
            self.refused.replies += 1
            return []
        if self._replied is None or revision > self._replied.revision:
            self._replied = position
        self._ahead[key] = revision
        heapq.heappush(self._ahead_order, (revision, key))
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
            self.refused.snapshots += 1
            if any(self._holds_older(key, int(resource.version)) for key, resource in gathered.items()):
                self.disproved = True
            return []
        applied: list[Applied] = []
        if not self.primed and not self._ahead:
            # Nobody can have read anything yet: what was gathered becomes what is held, without a second look.
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
                self._overtake(key, resource, revision, False)
                continue
            entries[key] = resource
            _note(applied, key, old, resource, int(resource.version))
        return applied

    def _holds_older(self, key: Key, revision: int) -> bool:
        """Whether a key is held at a version below a revision at which it was changed, or deleted.

        At a frontier that is true it isn't, as long as that revision isn't above it.
        """
        held = self.entries.get(key)
        return held is not None and int(held.version) < revision

    def _overtake(self, key: Key, resource: pb.Resource, revision: int, deleted: bool) -> None:
        old, new = (resource, None) if deleted else (None, resource)
        self._overtaken.append(Applied(key, old, new, revision))

    def take_overtaken(self) -> list[Applied]:
        """The changes that have been overtaken since the last call."""
        taken, self._overtaken = self._overtaken, []
        return taken

    def _raise_to(self, position: Position) -> None:
        if position.revision >= self.frontier:
            self.incarnation, self.versions = position.session, position.versions
            self._raise_frontier(position.revision)

    def _raise_frontier(self, revision: int) -> None:
        if revision > self.frontier:
            self.frontier = revision
            order = self._ahead_order
            while order and order[0][0] <= revision:
                known, key = heapq.heappop(order)
                if self._ahead.get(key) == known:
                    del self._ahead[key]

    def _note_store(self, position: Position) -> None:
        if not self.store_id:
            self.store_id = position.store_id
        elif position.store_id != self.store_id:
            raise StoreChanged(f"data of store {position.store_id} came for a cache of {self.store_id}")


def _note(applied: list[Applied], key: Key, old: pb.Resource | None, new: pb.Resource, revision: int) -> None:
    """Another incarnation under a known key is a deletion and a creation."""
    if old is not None and old.id.uid != new.id.uid:  # type: ignore[union-attr]  # stored ids are whole
        applied.append(Applied(key, old, None, revision))
        old = None
    applied.append(Applied(key, old, new, revision))
