"""Stores that record every commit, for comparison with a cache."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.protobuf import copy_message
from headway.resource import Change, Key, Kind, Position, Resource, ResourceType, Within, pb
from headway.storage import Fence, MemoryBackend, Operation, Put, Require, RequireOwnsNothing, SqliteBackend
from headway.storage.sqlite._requests import WriteRequest


class Commit(NamedTuple):
    """A change of a resource."""

    revision: int
    kind: Kind
    key: Key
    old: pb.Resource | None
    new: pb.Resource | None
    fence: Fence | None

    def within(self, within: Within) -> Commit | None:
        """Return the change of a scope: a state outside is absent. Return None if both states are outside."""
        old = self.old if self.old is not None and within.admits(self.old) else None
        new = self.new if self.new is not None and within.admits(self.new) else None
        if old is self.old and new is self.new:
            return self
        return None if old is None and new is None else self._replace(old=old, new=new)


EVERYTHING = Within()


class Record:
    """The record of all changes, in ``commits``."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self._now: dict[tuple[Kind, Key], pb.Resource] = {}

    def note(self, revision: int, operations: Sequence[Operation], fence: Fence | None) -> None:
        """Record these operations as one commit."""
        for operation in operations:
            if isinstance(operation, Require | RequireOwnsNothing):
                continue
            place = (operation.kind, operation.key)
            old = self._now.get(place)
            # A copy, because the store's own message is shared with the caches, and a reader might change it there.
            new = copy_message(operation.resource) if isinstance(operation, Put) else None
            if new is not None:
                new.version = str(revision)
            if new is None and (old is None or old.version != operation.expected):
                continue
            if new is None:
                del self._now[place]
            else:
                self._now[place] = new
            self.commits.append(Commit(revision, *place, old, new, fence))

    def commits_of(self, kind: Kind, within: Within) -> list[Commit]:
        """Return the changes of a kind within a scope."""
        found = [each.within(within) for each in self.commits if each.kind == kind]
        return [each for each in found if each is not None]

    def versions(self, type: ResourceType[Any], revision: int, within: Within = EVERYTHING) -> dict[Key, int]:
        """Return the version of each key of a type, at a revision."""
        there: dict[Key, int] = {}
        for commit in self.commits_of(type.kind, within):
            if commit.revision > revision:
                continue
            if commit.new is None:
                there.pop(commit.key, None)
            else:
                there[commit.key] = commit.revision
        return there

    def state(self, kind: Kind, revision: int, within: Within = EVERYTHING) -> list[pb.Resource]:
        """Return the resources of a kind at a revision, in order of key."""
        there: dict[Key, pb.Resource] = {}
        for commit in self.commits_of(kind, within):
            if commit.revision <= revision:
                if commit.new is None:
                    del there[commit.key]
                else:
                    there[commit.key] = commit.new
        return [there[key] for key in sorted(there)]

    def changes(self, kind: Kind, after: int, until: int, within: Within = EVERYTHING) -> list[Change]:
        """Return the changes of a kind after a revision and up to another one, as a stream has them."""
        ours = [each for each in self.commits_of(kind, within) if after < each.revision <= until]
        found: list[Change] = []
        for number, (revision, _, _, old, new, _) in enumerate(ours, 1):
            resource = old if new is None else new
            assert resource is not None
            more = number < len(ours) and ours[number].revision == revision
            found.append(Change(revision, resource, new is None, more))
        return found

    def resources(self, type: ResourceType[Any]) -> dict[str, Resource[Any]]:
        """Return the present resources of a type, by name."""
        return {key[2]: type.view(message) for (kind, key), message in self._now.items() if kind == type.kind}


class RecordingBackend(Record, MemoryBackend):
    """A `Backend` in memory that is also a `Record`."""

    def __init__(self, *, max_changes: int = 100_000) -> None:
        Record.__init__(self)
        MemoryBackend.__init__(self, max_changes=max_changes)

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """Commit and record in the same step of the event loop."""
        position = await super().commit(operations, fence)
        self.note(position.revision, operations, fence)
        return position


class RecordingSqlite(Record, SqliteBackend):
    """A `Backend` on a file that is also a `Record`."""

    def __init__(self, path: Path) -> None:
        Record.__init__(self)
        SqliteBackend.__init__(self, path)

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """Commit and record in the transaction, because a read may see it before the event loop does."""
        opened = self._use()
        request = _RecordedWrite(self, operations, fence, self.rules, opened.recent)
        await opened.writer.submit(request)
        return opened.at(request.revision)


class _RecordedWrite(WriteRequest):
    __slots__ = ("_record",)

    def __init__(self, record: Record, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._record = record

    def apply(self, connection: sqlite3.Connection, now: float) -> None:
        super().apply(connection, now)
        self._record.note(self.revision, self._operations, self._fence)
