"""An in-memory store that claims every capability: it can be closed, reopened and restored."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import trio

from headway.protobuf import copy_message, encode
from headway.resource import Key, Kind, Position, StreamItem, pb
from headway.storage import (
    SNAPSHOT_CHUNK,
    Fence,
    LeaseTable,
    LogWatch,
    MemoryBackend,
    Operation,
    Put,
    Require,
    RequireOwnsNothing,
    Rules,
    StillOwns,
    Stored,
    VersionConflict,
    Within,
    WrongUid,
    check_resumable,
    refuse_repeated_keys,
)
from headway.testing import BackendCheck
from headway.testing.conformance import uid_of, version_of

Effect = tuple[Kind, Key, pb.Resource | None, pb.Resource | None]
"""(kind, key, what was stored, what is stored now)."""

Found = tuple[Sequence[pb.Resource], Position]


@dataclass
class KeptChange:
    """A change as the rules see it."""

    kind: Kind
    key: Key
    old: pb.Resource | None
    new: pb.Resource | None
    size: Callable[[pb.Resource], int]

    @property
    def resources(self) -> int:
        return (self.new is not None) - (self.old is not None)

    @property
    def bytes(self) -> int:
        return (0 if self.new is None else self.size(self.new)) - (0 if self.old is None else self.size(self.old))


class KeptContent(Stored):
    """The content of a store as the rules see it."""

    def __init__(self, store: KeptMemory) -> None:
        self._store = store

    def next_kind(self, kind: Kind) -> Kind | None:
        return min((each for each, table in self._store.tables.items() if table and each > kind), default=None)

    def every(self, kind: Kind) -> Iterable[pb.Resource]:
        return list(self._store.tables.get(kind, {}).values())

    def measure(self, kind: Kind, partition: str, namespace: str, after: Key | None) -> tuple[int, int, Key | None]:  # noqa: ARG002
        table, within = self._store.tables.get(kind, {}), self._store.within
        found = [each for key, each in table.items() if within(key, partition, namespace)]
        return len(found), sum(map(self._store.size, found)), None


class KeptMemory(MemoryBackend):
    """A store that keeps its content when it is closed; broken stores override what they break.

    It decides on commits and keeps its resources by itself, as plainly as possible. Fences, leases and the log come
    from the in-memory store.
    """

    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        self.rules = Rules(KeptContent(self))
        # The last revision of each earlier opening.
        self.left: dict[str, int] = {}
        self.tables: dict[Kind, dict[Key, pb.Resource]] = {}
        self.owned: dict[str, dict[tuple[Kind, Key], pb.Resource]] = {}
        self._openings = 0

    async def __aenter__(self) -> Self:
        self._openings += 1
        if self._openings > 1:
            self.open_again()
        return self

    def open_again(self) -> None:
        self.left[self._session] = self._log.head
        self._session = uuid.uuid4().hex
        self._leases = LeaseTable(list(self._leases._leases.values()))
        self._position = self._at(self._log.head)

    def read_nowait(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        return self.tables.get(kind, {}).get(key), self.position

    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        await trio.lowlevel.checkpoint()
        table = self.tables.get(kind, {})
        keys = [key for key in sorted(table) if within.admits(table[key]) and (after is None or key > after)]
        return [table[key] for key in (keys[:limit] if limit else keys)], self.position

    async def list_by_owner(self, owner_uid: str) -> Found:
        await trio.lowlevel.checkpoint()
        return list(self.owned.get(owner_uid, {}).values()), self.position

    async def kinds(self) -> Sequence[Kind]:
        await trio.lowlevel.checkpoint()
        return sorted(kind for kind, table in self.tables.items() if table)

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        refuse_repeated_keys(operations)
        await trio.lowlevel.checkpoint()
        if fence is not None:
            self._check_fence(fence)
        applied = [entry for operation in operations if (entry := self.decide(operation)) is not None]
        if applied:
            changes = [KeptChange(*each, self.size) for each in applied]
            self.ask_rules(changes)
            self.publish(applied)
            self.follow(changes)
        return self.position

    # --- Rules of commits ---

    def ask_rules(self, changes: Sequence[KeptChange]) -> None:
        """Let the rules refuse a commit."""
        self.rules.charge(changes)

    def follow(self, changes: Sequence[KeptChange]) -> None:
        """Let the rules follow a commit."""
        self.rules.follow(changes)

    def within(self, key: Key, partition: str, namespace: str) -> bool:
        """Return True if a resource is in this part of the store."""
        return key[0] == partition and namespace in ("", key[1])

    def size(self, resource: pb.Resource) -> int:
        """Return the bytes of a resource."""
        unversioned = copy_message(resource)
        unversioned.version = ""
        return len(encode(unversioned))

    def decide(self, operation: Operation) -> Effect | None:
        """Return the change that an operation makes, or None if it makes none."""
        if isinstance(operation, RequireOwnsNothing):
            if operation.owner_uid in self.owned:
                raise StillOwns("it owns something")
            return None
        stored = self.there(operation)
        if isinstance(operation, Put):
            if stored is not None and uid_of(stored) != uid_of(operation.resource):
                raise WrongUid("it is stored with another uid")
            if (stored.version if stored is not None else "") != operation.expected:
                raise VersionConflict("it is stored at another version")
            return (operation.kind, operation.key, stored, operation.resource)
        same = stored is not None and uid_of(stored) == operation.uid
        if isinstance(operation, Require):
            if stored is None or not same or operation.expected not in ("", stored.version):
                raise VersionConflict("it has changed since it was read")
            return None
        if stored is None or not same:
            return None
        if stored.version != operation.expected:
            raise VersionConflict("it is stored at another version")
        return (operation.kind, operation.key, stored, None)

    def publish(self, applied: Sequence[Effect]) -> None:
        """Apply the decided changes at the next revision."""
        revision = self._log.head + 1
        changes: list[tuple[Kind, pb.Resource, bool]] = []
        formers: dict[int, pb.Resource] = {}
        for kind, key, old, new in applied:
            table = self.tables.setdefault(kind, {})
            if new is not None:
                new.version = str(revision)
                table[key] = new
                if old is not None and version_of(old) != version_of(new):
                    changes.append((kind, old, True))
                elif old is not None:
                    formers[len(changes)] = old
                changes.append((kind, new, False))
            elif old is not None:
                del table[key]
                changes.append((kind, old, True))
            self.index(kind, key, old, new)
        self._append(revision, changes, self.formers(formers))

    def formers(self, formers: dict[int, pb.Resource]) -> dict[int, pb.Resource]:
        """Return the states before changes that the log keeps, by the index of the change."""
        return formers

    def index(self, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None) -> None:
        """Index an owned resource by its owner."""
        for resource in (old, new):
            if resource is None or resource.owner is None or not resource.owner.uid:
                continue
            owned = self.owned.setdefault(resource.owner.uid, {})
            owned.pop((kind, key), None)
            if resource is new:
                owned[kind, key] = resource
            if not owned:
                del self.owned[resource.owner.uid]

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        await trio.lowlevel.checkpoint()
        if resume_after is not None:
            self.check_resumable(resume_after)
            return self.tail(kind, within, resume_after.revision, None)
        found = [each for each in self.tables.get(kind, {}).values() if within.admits(each)]
        return self.tail(kind, within, self._log.head, ListSnapshot(found))

    def there(self, operation: Operation) -> pb.Resource | None:
        """Return the stored resource that an operation names, or None."""
        if isinstance(operation, RequireOwnsNothing):
            return None
        return self.tables.get(operation.kind, {}).get(operation.key)

    def check_resumable(self, wanted: Position) -> None:
        """Raise unless a watch can resume after a position."""
        check_resumable(wanted, self.position, {**self.left, self._session: None})

    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        """Return a watch of the snapshot, if there is one, and of the changes after a revision."""
        cursor = self._log.cursor(kind, after)
        return SpoilableWatch(self.spoil, self._log, self._pulse, self._at, cursor, within, snapshot)

    def spoil(self, item: StreamItem) -> StreamItem | None:
        """Return the item that a watch hands out in place of this one, or None to drop it."""
        return item

    def restored(self) -> None:
        """Restore a closed store: it gets another id and no openings, and keeps its content."""
        self._store_id = uuid.uuid4().hex
        self.left.clear()


class ListSnapshot:
    """A `Snapshot` over resources that are already in memory."""

    def __init__(self, resources: Sequence[pb.Resource]) -> None:
        self._resources = resources
        self._taken = 0

    async def next(self) -> list[pb.Resource]:
        chunk = list(self._resources[self._taken : self._taken + SNAPSHOT_CHUNK])
        self._taken += len(chunk)
        return chunk


class SpoilableWatch(LogWatch):
    """A watch that passes each item through a function that may replace or drop it.

    Attributes:
        spoil: Replaces or drops an item; see `KeptMemory.spoil`.
        owed: Items that are delivered before all others.
        at_close: A function that is called when the watch is closed.
    """

    def __init__(self, spoil: Callable[[StreamItem], StreamItem | None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.spoil = spoil
        self.owed: list[StreamItem] = []
        self.at_close: Callable[[], None] = lambda: None

    async def next(self) -> StreamItem:
        if self.owed:
            await trio.lowlevel.checkpoint()
            return self.owed.pop()
        while (item := self.spoil(await super().next())) is None:
            pass
        return item

    def close(self) -> None:
        self.at_close()


class KeptMemories:
    """The stores by the place at which they were opened.

    Attributes:
        opened: The history limit (``max_changes``) of the store at each place.
    """

    def __init__(self, make: type[KeptMemory] = KeptMemory) -> None:
        self._make = make
        self._stores: dict[Path, KeptMemory] = {}
        self.opened: dict[Path, int] = {}

    def open(self, place: Path, *, max_changes: int = 100_000) -> KeptMemory:
        """Return the store at a place."""
        if place not in self._stores:
            self._stores[place] = self._make(max_changes=max_changes)
            self.opened[place] = max_changes
        return self._stores[place]

    async def restore(self, place: Path) -> None:
        """Restore the closed store at a place."""
        self._stores[place].restored()


Broken = dict[type[KeptMemory], list[BackendCheck]]
"""Broken stores, and the checks that each of them must fail."""
