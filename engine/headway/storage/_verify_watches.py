"""The state of a kind according to a watch, and a comparison of it with the history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from headway.errors import HistoryCompacted
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Kind,
    Position,
    SnapshotChunk,
    pb,
    resource_key,
)
from headway.storage._backend import Backend, Watch
from headway.storage._operations import Within

PATIENCE = 30.0
"""The seconds to wait for an item that a watch owes. After that, the item counts as lost."""


class Followed:
    """A watch and the items that it has delivered so far."""

    def __init__(self, watch: Watch, say: Callable[[str], object], name: str) -> None:
        self._watch = watch
        self._say = say
        self._name = name
        self._held: dict[Key, pb.Resource] = {}
        self._frontier = 0
        self.changes: list[Change] = []

    async def begin(self) -> None:
        """Read the snapshot, or the bookmark of a resumed watch."""
        with trio.move_on_after(PATIENCE):
            while True:
                item = await self._watch.next()
                if isinstance(item, EndOfSnapshot | Bookmark):
                    self._frontier = item.position.revision
                    return
                if isinstance(item, SnapshotChunk):
                    self._held.update((resource_key(each), each) for each in item.resources)
                else:
                    self._say(f"{self._name} delivered changes before the end of its snapshot")
        self._say(f"{self._name} has not ended its snapshot within {PATIENCE:g} s")

    async def until(self, at: Position) -> Mapping[Key, pb.Resource]:
        """Return the resources at a position. It must not be before the snapshot's position."""
        with trio.move_on_after(PATIENCE) as patience:
            while self._frontier < at.revision:
                self._hear(await self._watch.next())
        if patience.cancelled_caught:
            self._say(f"{self._name} stays at revision {self._frontier}; the store is at revision {at.revision}")
        for change in self.changes:
            if change.revision > at.revision:
                break
            self._held.pop(resource_key(change.resource), None)
            if not change.deleted:
                self._held[resource_key(change.resource)] = change.resource
        return self._held

    def _hear(self, item: object) -> None:
        if isinstance(item, Bookmark):
            self._frontier = item.position.revision
        elif isinstance(item, Changes):
            for change in item.changes:
                before = self.changes[-1] if self.changes else None
                whole = before is None or not before.more
                if change.revision < self._frontier or (whole and change.revision == self._frontier):
                    self._say(f"{self._name} delivered revision {change.revision} after revision {self._frontier}")
                self.changes.append(change)
                self._frontier = change.revision
        else:
            self._say(f"{self._name} delivered more of its snapshot after its end")


@asynccontextmanager
async def follow(
    backend: Backend, kind: Kind, say: Callable[[str], object], after: Position | None = None
) -> AsyncIterator[Followed]:
    """Follow a watch of a kind for the length of the block. ``say`` is called with each problem of the watch."""
    watch = await backend.watch(kind, Within(), after)
    try:
        followed = Followed(watch, say, f"a watch of {'.'.join(kind)}{'' if after is None else ', resumed,'}")
        await followed.begin()
        yield followed
    finally:
        watch.close()


async def oldest_kept(backend: Backend) -> int:
    """Return the lowest revision that a watch can resume after. It can also resume after every later one."""
    here = backend.position
    low, high = 0, here.revision
    while low < high:
        middle = (low + high) // 2
        try:
            (await backend.watch(("", ""), Within(), here._replace(revision=middle))).close()
        except HistoryCompacted:
            low = middle + 1
        else:
            high = middle
    return low


async def replay(
    backend: Backend, kind: Kind, oldest: int, at: Position, here: Mapping[Key, pb.Resource]
) -> Sequence[tuple[Key, str]]:
    """Compare a kind's history since a revision with its resources at a position. Return each problem with its key.

    If others write so much that the history up to that position is compacted, return no problems.
    """
    problems: list[tuple[Key, str]] = []

    def say(problem: str) -> None:
        problems.append((("", "", ""), problem))

    try:
        async with follow(backend, kind, say, at._replace(revision=oldest)) as followed:
            await followed.until(at)
    except HistoryCompacted:
        later = await oldest_kept(backend)
        return await replay(backend, kind, later, at, here) if later < at.revision else []
    last = {resource_key(each.resource): each for each in followed.changes if each.revision <= at.revision}
    for key, change in last.items():
        stored = here.get(key)
        if change.deleted and stored is not None:
            problems.append((key, f"is stored, but history has it deleted at revision {change.revision}"))
        elif not change.deleted and stored != change.resource:
            problems.append((key, f"differs from history, which has it written at revision {change.revision}"))
    for key, stored in here.items():
        if key not in last and stored.version.isdigit() and int(stored.version) > oldest:
            problems.append((key, f"has version {stored.version}, but history from {oldest} on has no such commit"))
    return problems
