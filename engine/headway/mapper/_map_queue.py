"""The map queue: changes that wait until every type of their controller has reached them. Pure.

Rules:
1. A change waits under its revision. It is handed out when the caller says that every frontier of its controller has
   reached that revision (C4), in order of revision, and within one in order of arrival.
2. A change is handed out until it is taken for good. One whose mapper failed is kept aside until its time, and doesn't
   hold up the others.
3. The changes of one resource whose mapping failed are kept together, and tried again together. Beyond `MOST` of them
   they become two, from the oldest state to the newest and the last one itself, so that the number of resources bounds
   what is kept. The loss is noted, because only the lost states say which keys they mapped to.
4. The backlog (what was there when the run began) is handed out only when no change is ready.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from headway.cache import Applied
from headway.resource import Key, TypeName

MOST = 16
"""How many changes of one resource are kept while its mapping fails."""


class MapItem(NamedTuple):
    """A change of a type."""

    revision: int
    order: int
    type: TypeName
    applied: Applied
    backlog: bool


class Kept:
    """The changes of one resource whose mapping has failed.

    Attributes:
        changes: the oldest first; one at least.
        backlog: all of them are of what was there when the run began.
        failures: how often in a row mapping them has failed.
        due: when they are to be mapped again.
        lost: changes between these were dropped.
    """

    __slots__ = ("backlog", "changes", "due", "failures", "lost", "order", "type")

    def __init__(self, item: MapItem, due: float) -> None:
        self.type = item.type
        self.order = item.order
        self.changes = [item.applied]
        self.backlog = item.backlog
        self.failures = 1
        self.due = due
        self.lost = False

    @property
    def name(self) -> tuple[TypeName, Key]:
        """The resource, by its type and key."""
        return self.type, self.changes[0].key

    def add(self, item: MapItem) -> None:
        """Keep a later change of the same resource."""
        self.backlog = self.backlog and item.backlog
        self.changes.append(item.applied)
        if len(self.changes) > MOST:
            last = item.applied
            # One that begins and ends with nothing there would map to nothing, and its mapper might raise for it.
            merged = last._replace(old=self.changes[0].old or last.old)
            # The key that the last one moved the resource from may be one that no other state maps to.
            self.changes = [merged, last] if merged.old is not last.old else [last]
            self.lost = True


class MapQueue:
    """The map queue of one run."""

    def __init__(self) -> None:
        self._waiting: list[MapItem] = []
        # What is left of each type's backlog. An item is made when it is taken, so that a run which starts on many
        # resources doesn't make as many items first.
        self._backlog: deque[tuple[TypeName, Iterator[Applied]]] = deque()
        self._backlog_left = 0
        # By resource. Invariant: the heap, by due time, has each of them once.
        self._failed: dict[tuple[TypeName, Key], Kept] = {}
        self._due: list[tuple[float, int, Kept]] = []
        self._order = 0

    def push(self, type: TypeName, applied: Iterable[Applied]) -> None:
        """Add changes of a type."""
        waiting, order = self._waiting, self._order
        for each in applied:
            order += 1
            heapq.heappush(waiting, MapItem(each.revision, order, type, each, False))
        self._order = order

    def push_backlog(self, type: TypeName, applied: Collection[Applied]) -> None:
        """Add what was there when the run began. It is kept, and must not change any more."""
        if applied:
            self._backlog.append((type, iter(applied)))
            self._backlog_left += len(applied)

    def take(self, complete: int) -> MapItem | None:
        """The next change at or below ``complete``, the lowest frontier of the controller; else one of the backlog."""
        if self._waiting and self._waiting[0].revision <= complete:
            return heapq.heappop(self._waiting)
        return self._take_backlog() if self._backlog else None

    def _take_backlog(self) -> MapItem | None:
        while self._backlog:
            type, left = self._backlog[0]
            for applied in left:
                self._backlog_left -= 1
                self._order += 1
                return MapItem(0, self._order, type, applied, True)
            self._backlog.popleft()
        return None

    def keep(self, item: MapItem, due: float) -> Kept:
        """Mapping this item failed: keep it until ``due``, or with what is kept of its resource already."""
        kept = self._failed.get((item.type, item.applied.key))
        if kept is not None:
            kept.add(item)
            return kept
        kept = Kept(item, due)
        self._wait(kept)
        return kept

    def keep_again(self, kept: Kept, due: float) -> None:
        """Mapping these changes failed again: keep them until ``due``."""
        kept.failures += 1
        kept.due = due
        self._wait(kept)

    def _wait(self, kept: Kept) -> None:
        self._failed[kept.name] = kept
        heapq.heappush(self._due, (kept.due, kept.order, kept))

    def take_due(self, now: float) -> Kept | None:
        """The next failed changes whose time has come; to be kept again if they fail again."""
        if self._due and self._due[0][0] <= now:
            kept = heapq.heappop(self._due)[2]
            del self._failed[kept.name]
            return kept
        return None

    def next_due(self) -> float | None:
        """When the next failed change's time comes."""
        return self._due[0][0] if self._due else None

    def take_all(self) -> list[tuple[TypeName, Applied]]:
        """Everything that waits, in no order, when the run has ended: for the next one.

        That changes were lost needs no word: every run begins with all keys that it holds.
        """
        waiting = [(item.type, item.applied) for item in self._waiting]
        failed = [(kept.type, applied) for kept in self._failed.values() for applied in kept.changes]
        backlog = [(type, applied) for type, left in self._backlog for applied in left]
        self._waiting, self._failed, self._due, self._backlog_left = [], {}, [], 0
        self._backlog.clear()
        return [*waiting, *failed, *backlog]

    def __len__(self) -> int:
        """How many changes wait; those of a resource whose mapping has failed count as one."""
        return len(self._waiting) + self._backlog_left + len(self._failed)
