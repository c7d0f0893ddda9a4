"""The map queue: changes that wait until every type of their controller has reached them. Pure.

Rules:
1. A change waits under its revision. It is handed out when the caller says that every frontier of its controller has
   reached that revision (C4), in order of revision, and within one in order of arrival.
2. A change is never merged with another one and never dropped: it is handed out until it is taken for good. One
   whose mapper failed is kept aside until its time, and doesn't hold up the others.
3. The backlog (what was there when the run began) is handed out only when no change is ready.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from headway.cache import Applied
from headway.resource import TypeName


class MapItem(NamedTuple):
    """A change of a type. ``failures`` counts how often mapping it has failed."""

    revision: int
    order: int
    type: TypeName
    applied: Applied
    failures: int
    backlog: bool


class MapQueue:
    """The map queue of one run."""

    def __init__(self) -> None:
        self._waiting: list[MapItem] = []
        # What is left of each type's backlog. An item is made when it is taken, so that a run which starts on many
        # resources doesn't make as many items first.
        self._backlog: deque[tuple[TypeName, Iterator[Applied]]] = deque()
        self._backlog_left = 0
        # Invariant: a heap by due time; everything in it has failed at least once.
        self._failed: list[tuple[float, int, MapItem]] = []
        self._order = 0

    def push(self, type: TypeName, applied: Iterable[Applied]) -> None:
        """Add changes of a type."""
        waiting, order = self._waiting, self._order
        for each in applied:
            order += 1
            heapq.heappush(waiting, MapItem(each.revision, order, type, each, 0, False))
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
                return MapItem(0, self._order, type, applied, 0, True)
            self._backlog.popleft()
        return None

    def keep(self, item: MapItem, due: float) -> None:
        """Mapping this item failed: keep it until ``due``."""
        heapq.heappush(self._failed, (due, item.order, item._replace(failures=item.failures + 1)))

    def take_due(self, now: float) -> MapItem | None:
        """The next failed change whose time has come."""
        if self._failed and self._failed[0][0] <= now:
            return heapq.heappop(self._failed)[2]
        return None

    def next_due(self) -> float | None:
        """When the next failed change's time comes."""
        return self._failed[0][0] if self._failed else None

    def take_all(self) -> list[tuple[TypeName, Applied]]:
        """Everything that waits, in no order, when the run has ended: for the next one."""
        waiting = [*self._waiting, *(item for _, _, item in self._failed)]
        backlog = [(type, applied) for type, left in self._backlog for applied in left]
        self._waiting, self._failed, self._backlog_left = [], [], 0
        self._backlog.clear()
        return [*((item.type, item.applied) for item in waiting), *backlog]

    def __len__(self) -> int:
        return len(self._waiting) + self._backlog_left + len(self._failed)
