"""A kind as its watch has it from its snapshot on, and as its history leaves it."""

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
from headway.storage._backend import Backend, Watch, Within

PATIENCE = 30.0
"""Seconds after which a watch that owes something is taken to have lost it."""


class Followed:
    """What a watch has said so far."""

    def __init__(self, watch: Watch, say: Callable[[str], object], name: str) -> None:
        self._watch = watch
        self._say = say
        self._name = name
        self._held: dict[Key, pb.Resource] = {}
        self._frontier = 0
        self.changes: list[Change] = []

    async def begin(self) -> None:
        """Take the snapshot, or the word that the watch was resumed."""
        with trio.move_on_after(PATIENCE):
            while True:
                item = await self._watch.next()
                if isinstance(item, EndOfSnapshot | Bookmark):
                    self._frontier = item.position.revision
                    return
                if isinstance(item, SnapshotChunk):
                    self._held.update((resource_key(each), each) for each in item.resources)
                else:
                    self._say(f"{self._name} said changes before its snapshot had ended")
        self._say(f"{self._name} has not ended its snapshot within {PATIENCE:g} s")

    async def until(self, at: Position) -> Mapping[Key, pb.Resource]:
        """What is there at a position, which is none before the snapshot's."""
        with trio.move_on_after(PATIENCE) as patience:
            while self._frontier < at.revision:
                self._hear(await self._watch.next())
        if patience.cancelled_caught:
            self._say(f"{self._name} stays at revision {self._frontier}; the store stands at {at.revision}")
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
                    self._say(f"{self._name} said revision {change.revision} after {self._frontier}")
                self.changes.append(change)
                self._frontier = change.revision
        else:
            self._say(f"{self._name} said more of a snapshot after its end")


@asynccontextmanager
async def follow(
    backend: Backend, kind: Kind, say: Callable[[str], object], after: Position | None = None
) -> AsyncIterator[Followed]:
    """A watch of a kind that has begun, for the length of the block; ``say`` is told what is wrong with it."""
    watch = await backend.watch(kind, Within(), after)
    try:
        followed = Followed(watch, say, f"a watch of {'.'.join(kind)}{'' if after is None else ', resumed,'}")
        await followed.begin()
        yield followed
    finally:
        watch.close()


async def oldest_kept(backend: Backend) -> int:
    """The lowest revision after which a watch can be resumed: below it none can, from it on all."""
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
    """Where the history of a kind since a revision doesn't lead to what is there at a position: key and what is wrong.

    Where others write so much that no history up to that position is kept any more, nothing is.
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
            problems.append((key, f"is stored, and history has it deleted at revision {change.revision}"))
        elif not change.deleted and stored != change.resource:
            problems.append((key, f"is not stored as history has it, written at revision {change.revision}"))
    for key, stored in here.items():
        if key not in last and stored.version.isdigit() and int(stored.version) > oldest:
            problems.append((key, f"is of version {stored.version}, and history, from {oldest} on, has no such commit"))
    return problems
