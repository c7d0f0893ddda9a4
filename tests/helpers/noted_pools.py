"""A `PoolsApp` whose reconciler watches a further type from some moment on: notes, which refer to pools."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

import headway
from headway import field
from headway.cache import CacheReader, range_of
from headway.errors import NotWatched
from headway.resource import Kind
from tests.helpers.pools import Concerned, PoolsApp


@headway.message
class Note:
    pool: str = field(1)


class NotedPools(PoolsApp):
    """A `PoolsApp` that also lists a pool's notes in its summary, once it watches notes.

    Attributes:
        watching: True if each reconcile watches notes before it reads anything.
        asked: the term of each run in which a reconcile has asked to watch them.
        watched: the term of each run in which the call has returned.
        at_first: the types that it has from the beginning.
    """

    def __init__(self, *, concurrency: int = 2, deadline: float = 20.0, scoped: bool = False) -> None:
        self.watching = False
        self.asked: list[int] = []
        self.watched: list[int] = []
        super().__init__(concurrency=concurrency, deadline=deadline, scoped=scoped)
        self.note = self.app.type("test", "v1", "Note", Note)
        self.ranges[self.note.kind] = range_of(self.note)
        self.at_first = self.types

    @property
    def watches_notes(self) -> bool:
        """True if the last run that began watches notes."""
        return self.note in self.types

    def spec(self) -> headway.Watch[Any]:
        """Return the watch, with a new mapper each time."""
        return headway.watch(self.note, lambda note, cache: self._map_note(note, cache))

    @override
    def on_start(self, rt: headway.Runtime) -> None:
        try:
            rt.cache.revision(self.note)
        except NotWatched:
            self.types = self.at_first
        else:
            self.types, self.added = (*self.at_first, self.note), {self.note.kind}

    @override
    async def prepare(self, rt: headway.Runtime) -> None:
        if self.watching:
            self.asked.append(rt.term)
            await rt.watch(self.spec())
            self.watched.append(rt.term)

    @override
    def further_members(self, rt: headway.Runtime, pool: str) -> list[str]:
        if not self.watches_notes:
            return []
        return sorted(note.name for note in rt.cache.list(self.note) if note.data.pool == pool)

    @override
    def concerned(self, kind: Kind, message: Any) -> set[str]:
        if kind == self.note.kind:
            return {self.note.view(message).data.pool} - {""}
        return super().concerned(kind, message)

    def _map_note(self, note: headway.Resource[Note], cache: CacheReader) -> Concerned:
        self.on_mapping(note, cache)
        return [self.pool.id(note.data.pool)] if note.data.pool else []
