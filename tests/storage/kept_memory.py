"""A store in memory that claims everything: it can be closed and opened again, and restored."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import trio

from headway.resource import Kind, Position, StreamItem, pb
from headway.storage import MemoryBackend, Operation, RequireOwnsNothing, Within
from headway.storage._lease_table import LeaseTable
from headway.storage._resume import check_resumable
from headway.storage._tail import ListSnapshot, LogWatch
from headway.testing import BackendCheck


class KeptMemory(MemoryBackend):
    """Keeps what it holds over its closing. The base of the broken stores: what each overrides is what it breaks."""

    def __init__(self, *, max_changes: int = 100_000) -> None:
        super().__init__(max_changes=max_changes)
        # The revision at which each earlier opening was left.
        self._left: dict[str, int] = {}
        self._openings = 0

    async def __aenter__(self) -> Self:
        self._openings += 1
        if self._openings > 1:
            self._open_again()
        return self

    def _open_again(self) -> None:
        self._left[self._incarnation] = self._log.head
        self._incarnation = uuid.uuid4().hex
        self._leases = LeaseTable(list(self._leases._leases.values()))
        self._position = self._at(self._log.head)

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        await trio.lowlevel.checkpoint()
        if resume_after is not None:
            self.check_resumable(resume_after)
            return self.tail(kind, within, resume_after.revision, None)
        found = [each for key, each in self._tables.get(kind, {}).items() if within.matches(key)]
        return self.tail(kind, within, self._log.head, ListSnapshot(found))

    def there(self, operation: Operation) -> pb.Resource | None:
        """What is stored of what an operation names."""
        if isinstance(operation, RequireOwnsNothing):
            return None
        return self._tables.get(operation.kind, {}).get(operation.key)

    def check_resumable(self, wanted: Position) -> None:
        """Raise unless a watch can resume after a position."""
        check_resumable(wanted, self.position, {**self._left, self._incarnation: None})

    def tail(self, kind: Kind, within: Within, after: int, snapshot: ListSnapshot | None) -> LogWatch:
        """A watch that says a snapshot, if it has one, and what comes after a revision."""
        cursor = self._log.cursor(kind, after)
        return SpoilableWatch(self.spoil, self._log, self._pulse, self._at, cursor, within, snapshot)

    def spoil(self, item: StreamItem) -> StreamItem | None:
        """What a watch says in place of an item; None: nothing."""
        return item

    def restored(self) -> None:
        """What restoring does to a closed store: another id, none of its openings, and all that it held."""
        self._store_id = uuid.uuid4().hex
        self._left.clear()


class SpoilableWatch(LogWatch):
    """Says what is left of its items.

    Attributes:
        spoil: see `KeptMemory.spoil`.
        owed: what it says before all else.
        at_close: is called when it is closed.
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
    """Stores by the places that they were opened at.

    Attributes:
        opened: how many changes the store at each place keeps.
    """

    def __init__(self, make: type[KeptMemory] = KeptMemory) -> None:
        self._make = make
        self._stores: dict[Path, KeptMemory] = {}
        self.opened: dict[Path, int] = {}

    def open(self, place: Path, *, max_changes: int = 100_000) -> KeptMemory:
        """The store of a place."""
        if place not in self._stores:
            self._stores[place] = self._make(max_changes=max_changes)
            self.opened[place] = max_changes
        return self._stores[place]

    async def restore(self, place: Path) -> None:
        """Restore the store of a place, which is closed."""
        self._stores[place].restored()


Broken = dict[type[KeptMemory], list[BackendCheck]]
"""Broken stores, and the checks that each of them must fail."""
