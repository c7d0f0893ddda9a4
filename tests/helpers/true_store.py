"""A simple model of a store, and a checker of a type store. Both recompute everything from a list of commits."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, NamedTuple

from headway.cache import Applied, TypeStore
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Position,
    ResourceType,
    StreamItem,
    pb,
    resource_key,
)
from tests.helpers.resources import stored


class TrueChange(NamedTuple):
    """The effect of one commit on one key. ``old`` or ``new`` is None where the key is absent."""

    type: ResourceType[Any]
    key: Key
    old: pb.Resource | None
    new: pb.Resource | None


class Reply(NamedTuple):
    """The reply to a write: the state of the key at a position."""

    key: Key
    stored: pb.Resource | None
    position: Position


class TrueStore:
    """A store as the list of all its commits."""

    def __init__(self, store_id: str) -> None:
        self.store_id = store_id
        self.commits: list[tuple[int, list[TrueChange]]] = []
        self.head = 0
        self._uids = 0

    @property
    def revisions(self) -> list[int]:
        """0, and the revision of every commit."""
        return [0, *(revision for revision, _ in self.commits)]

    def position(self, revision: int) -> Position:
        return Position(self.store_id, "opened-first", revision)

    def state(self, type: ResourceType[Any], revision: int) -> dict[Key, pb.Resource]:
        """Return the state of a type at a revision, recomputed from the first commit on."""
        entries: dict[Key, pb.Resource] = {}
        for at, commit in self.commits:
            if at > revision:
                break
            for change in commit:
                if change.type is type and change.new is not None:
                    entries[change.key] = change.new
                elif change.type is type:
                    del entries[change.key]
        return entries

    def commit(self, gap: int, what: list[tuple[ResourceType[Any], str, str]]) -> None:
        """Write or delete names, all in one commit. Skip the deletion of an absent name."""
        revision = self.head + gap
        done: dict[tuple[str, Key], TrueChange] = {}
        for type, name, verb in what:
            key = ("default", "default", name)
            old = self.state(type, self.head).get(key)
            if (type.name.kind, key) in done or (old is None and verb == "delete"):
                continue
            new = None if verb == "delete" else stored(name, revision, type=type, uid=self._uid_after(old))
            done[type.name.kind, key] = TrueChange(type, key, old, new)
        self.head = revision
        self.commits.append((revision, list(done.values())))

    def _uid_after(self, old: pb.Resource | None) -> str:
        if old is not None and old.id is not None:
            return old.id.uid
        self._uids += 1
        return f"incarnation-{self._uids}"

    def changes(self, type: ResourceType[Any], after: int, upto: int) -> list[Change]:
        """Return the stream's changes of a type with their `more`."""
        found: list[Change] = []
        for revision, commit in self.commits:
            ours = [change for change in commit if change.type is type] if after < revision <= upto else []
            for index, change in enumerate(ours):
                resource = change.old if change.new is None else change.new
                assert resource is not None
                found.append(Change(revision, resource, change.new is None, index < len(ours) - 1))
        return found

    def true_change(self, type: ResourceType[Any], key: Key, revision: int) -> TrueChange:
        """Return the effect on a key of the commit at a revision."""
        commit = next(commit for at, commit in self.commits if at == revision)
        return next(change for change in commit if change.type is type and change.key == key)

    def reply(self, type: ResourceType[Any], name: str) -> Reply:
        """Return the reply that any write of this name would get now."""
        key = ("default", "default", name)
        return Reply(key, self.state(type, self.head).get(key), self.position(self.head))


def _version(resource: pb.Resource | None) -> int:
    return 0 if resource is None else int(resource.version)


class Touch(NamedTuple):
    """A state that was mapped, and the revision up to which the cache knew the key at that time."""

    key: Key
    version: int
    known: int


@dataclass
class TypeStoreChecker:
    """A checker that compares the reports and the entries of one type store with the true store.

    Attributes:
        sound: True if all checks so far have passed.
        hidden: keys with a change that a server has withheld. The cache cannot know it before the next snapshot.
    """

    store: TrueStore
    type: ResourceType[Any]
    type_store: TypeStore
    hidden: set[Key] = dataclass_field(default_factory=set)
    sound: bool = True
    frontier: int = 0
    replayed: dict[Key, pb.Resource] = dataclass_field(default_factory=dict)
    # By key: the lowest version that the cache may hold later.
    floors: dict[Key, int] = dataclass_field(default_factory=dict)
    ahead: dict[Key, int] = dataclass_field(default_factory=dict)
    touches: set[Touch] = dataclass_field(default_factory=set)

    def fed(self, item: StreamItem, was_primed: bool, applied: list[Applied], overtaken: list[Applied]) -> None:
        """Check the type store's answer to an item."""
        self.sound = False
        before = self.frontier
        delivered = item.changes[-1].revision if isinstance(item, Changes) else 0
        if isinstance(item, Bookmark | EndOfSnapshot):
            delivered = item.position.revision
        assert self.type_store.frontier == max(before, delivered), "the frontier is not the highest delivered revision"
        held_before = dict(self.replayed)
        self._move_frontier()
        snapshot_applied = isinstance(item, EndOfSnapshot) and (not was_primed or item.position.revision >= before)
        if snapshot_applied and not was_primed and not applied:
            # The cache was primed: its entries are the backlog, which the run maps.
            self.replayed = dict(self.type_store.entries)
            for key, resource in self.replayed.items():
                self._touch(key, resource)
        self._note(applied, overtaken)
        if snapshot_applied:
            self.hidden.clear()
        self.check()
        if isinstance(item, Changes):
            self._check_delivered(item, before)
        elif snapshot_applied and isinstance(item, EndOfSnapshot):
            self._check_bridged(held_before, item.position.revision)
        self.sound = True

    def replied(self, reply: Reply, applied: list[Applied], overtaken: list[Applied]) -> None:
        """Check the type store's answer to a reply."""
        self.sound = False
        revision = reply.position.revision
        if revision > self.frontier:
            self.ahead[reply.key] = max(self.ahead.get(reply.key, 0), revision)
        if reply.key not in self.hidden:
            self._raise_floor(reply.key, revision if reply.stored is None else _version(reply.stored))
        self._note(applied, overtaken)
        self.check()
        self.sound = True

    def check(self) -> None:
        """Check the invariants that hold at any time."""
        type_store = self.type_store
        assert type_store.frontier == self.frontier
        assert type_store.ahead() == self.ahead, "the remembered replies are not those above the frontier"
        assert type_store.entries == self.replayed, "the reported changes do not add up to the entries"
        for key, resource in type_store.entries.items():
            assert _version(resource) >= self.floors.get(key, 0), f"{key} was rolled back"
        states: dict[int, dict[Key, pb.Resource]] = {}
        for key in {*type_store.entries, *self.ahead, *self.store.state(self.type, self.frontier)} - self.hidden:
            known = self._known(key)
            if known not in states:
                states[known] = self.store.state(self.type, known)
            truth = states[known].get(key) if type_store.primed or key in self.ahead else None
            assert type_store.entries.get(key) is truth, f"{key} is not in its state of revision {known}"

    def _move_frontier(self) -> None:
        assert self.type_store.frontier >= self.frontier, "the frontier fell"
        self.frontier = self.type_store.frontier
        self.ahead = {key: revision for key, revision in self.ahead.items() if revision > self.frontier}

    def _note(self, applied: list[Applied], overtaken: list[Applied]) -> None:
        for key, old, new, revision in applied:
            assert old is not new, "a change was reported for an unchanged key"
            assert self.replayed.get(key) is old, "the old state of a change is not the entry before it"
            if new is None:
                del self.replayed[key]
                if not any(each.key == key and each.new is not None for each in applied):
                    self._raise_floor(key, revision)
            else:
                assert old is None or (old.id and new.id and old.id.uid == new.id.uid), "two incarnations in one change"
                assert _version(new) >= self.floors.get(key, 0), f"{key} was rolled back by a reported change"
                self.replayed[key] = new
                self._raise_floor(key, _version(new))
            self._touch(key, old)
            self._touch(key, new)
        for key, old, new, _ in overtaken:
            self._touch(key, old)
            self._touch(key, new)

    def _touch(self, key: Key, resource: pb.Resource | None) -> None:
        if resource is not None:
            self.touches.add(Touch(key, _version(resource), self._known(key)))

    def _known(self, key: Key) -> int:
        return max(self.frontier, self.ahead.get(key, 0))

    def _raise_floor(self, key: Key, revision: int) -> None:
        self.floors[key] = max(self.floors.get(key, 0), revision)

    def _check_delivered(self, item: Changes, before: int) -> None:
        """Check C6: the changes of an item are mapped by their true old and new state, with the change in the cache."""
        for revision, resource, _, _ in item.changes:
            key = resource_key(resource)
            if key in self.hidden:
                continue
            held = self.type_store.entries.get(key)
            assert held is None or _version(held) >= revision, "a delivered change is not in the cache"
            if revision > before:
                change = self.store.true_change(self.type, key, revision)
                self._check_touched(key, change.old, revision)
                self._check_touched(key, change.new, revision)

    def _check_bridged(self, held_before: dict[Key, pb.Resource], revision: int) -> None:
        """Check C6 for a snapshot: each changed key is mapped by its entry before and after it."""
        truth = self.store.state(self.type, revision)
        for key in {*held_before, *truth}:
            held, brought = held_before.get(key), truth.get(key)
            if held is not brought:
                self._check_touched(key, brought, revision)
                if self.ahead.get(key, 0) <= revision:
                    self._check_touched(key, held, revision)

    def _check_touched(self, key: Key, resource: pb.Resource | None, revision: int) -> None:
        if resource is not None:
            version = _version(resource)
            assert any(
                touch.key == key and touch.version == version and touch.known >= revision for touch in self.touches
            ), f"{key} at {version} was never mapped with revision {revision} in the cache"
