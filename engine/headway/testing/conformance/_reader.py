"""A reader that checks every item of a watch, and a comparable form of what readers have received."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Kind,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
    resource_key,
)
from headway.storage import Backend, SkipsUnrelated, Watch, Within
from headway.testing.conformance._tools import EVERYTHING, KIND, QUIET, must, name_of, uid_of

Held = dict[Key, tuple[str, str]]
"""A state of the store: (uid, version) by key."""


def held(resources: Sequence[pb.Resource]) -> Held:
    """Return the result of a list as a state."""
    return {resource_key(resource): (uid_of(resource), resource.version) for resource in resources}


class Reader:
    """A reader of a watch that checks every item against promise 5 and keeps what it received.

    Attributes:
        frontier: the last revision that the watch has delivered completely; None before the end of the snapshot.
        held: the current resources, as delivered.
        changes: the changes after the snapshot.
        items: the number of items received.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.frontier: int | None = None
        self.snapshot_at: Position | None = None
        self.snapshot: Held = {}
        self.held: Held = {}
        self.changes: list[Change] = []
        self.bookmarks: list[Bookmark] = []
        self.items = 0

    async def next(self) -> StreamItem:
        """Return the next item after checking it."""
        return await self._checked(self.watch.next)

    async def next_change(self) -> StreamItem:
        """Return the next item like `next`, of a watch that skips commits outside of its part."""
        assert isinstance(self.watch, SkipsUnrelated)
        return await self._checked(self.watch.next_change)

    async def _checked(self, upcoming: Callable[[], Awaitable[StreamItem]]) -> StreamItem:
        with trio.move_on_after(QUIET):
            return self._check(await upcoming())
        raise AssertionError(
            f"a watch has delivered everything up to {self.frontier} and is stuck, although there is more to deliver"
        )

    def _check(self, item: StreamItem) -> StreamItem:
        match item:
            case SnapshotChunk():
                self._check_chunk(item)
            case EndOfSnapshot():
                must(self.frontier is None, "the end of a snapshot came after a change")
                self.frontier, self.snapshot_at = item.position.revision, item.position
                self.snapshot = dict(self.held)
            case Changes():
                self._check_changes(item)
            case Bookmark():
                self._check_bookmark(item)
        self.items += 1
        return item

    async def until(self, revision: int) -> None:
        """Read until the watch has delivered everything up to a revision."""
        while self.frontier is None or self.frontier < revision:
            await self.next()

    async def until_snapshot(self) -> Position:
        """Read to the end of the snapshot and return its position."""
        while self.snapshot_at is None:
            await self.next()
        return self.snapshot_at

    def _check_chunk(self, item: SnapshotChunk) -> None:
        must(self.frontier is None, "a chunk of a snapshot came after its end")
        for resource in item.resources:
            key = resource_key(resource)
            must(key not in self.held, f"a snapshot has {key} twice")
            last = next(reversed(self.held), key)
            must(not item.in_order or last <= key, f"a snapshot in order of keys has {key} after {last}")
            self.held[key] = (uid_of(resource), resource.version)

    def _check_changes(self, item: Changes) -> None:
        must(self.frontier is not None, "a change came before the end of the snapshot")
        must(item.changes, "an item has no changes")
        must(not item.changes[-1].more, "an item ended within a commit")
        last = self.frontier or 0
        for index, change in enumerate(item.changes):
            if index and item.changes[index - 1].more:
                must(change.revision == last, f"a commit at {last} continued at {change.revision}")
            else:
                must(change.revision > last, f"revision {change.revision} came after everything up to {last}")
            last = change.revision
            self._apply(change)
        self.frontier = last
        self.changes += item.changes

    def _apply(self, change: Change) -> None:
        key = resource_key(change.resource)
        if change.deleted:
            self.held.pop(key, None)
            return
        must(
            change.resource.version == str(change.revision),
            "the version of a change's resource is not its commit's revision",
        )
        self.held[key] = (uid_of(change.resource), change.resource.version)

    def _check_bookmark(self, item: Bookmark) -> None:
        if item.resumed:
            must(self.items == 0, "a later item than the first says that the watch was resumed")
        else:
            must(self.frontier is not None, "a bookmark came before the end of the snapshot")
        must(item.position.revision >= (self.frontier or 0), "a bookmark is below what was already delivered")
        self.frontier = item.position.revision
        self.bookmarks.append(item)


async def reading(
    backend: Backend, within: Within = EVERYTHING, *, kind: Kind = KIND, after: Position | None = None
) -> Reader:
    """Open a watch and return its reader."""
    return Reader(await backend.watch(kind, within, after))


def summary(changes: Sequence[Change]) -> list[tuple[int, str, bool]]:
    """Return changes as (revision, name, deleted), sorted by revision and name, for a comparison."""
    return sorted((change.revision, name_of(change.resource), change.deleted) for change in changes)
