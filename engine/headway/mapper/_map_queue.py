"""The map queue: changes that wait until every type of their controller has reached them. No I/O.

Rules:
1. A change waits under its revision. It is returned when every frontier of its controller has reached that revision
   (C4), in order of revision, and in order of arrival within a revision.
2. A change whose mapper failed is kept separately until it is due, and does not delay the others.
3. Failed changes of one resource are kept and retried together. If there are more than `FailedChanges.MOST`, they are
   reduced to two: one from the oldest state to the newest, and the last change itself. The amount kept is limited by
   the number of resources. The loss is noted, because only the lost states determine which keys they mapped to.
4. What an earlier run left is returned first: every type has reached it. It is taken over in one step, however much it
   is.
5. The backlog (the resources that existed when the run began) is returned only when no change is ready.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator

from headway.cache import Applied
from headway.mapper._items import FailedChanges, MapItem
from headway.resource import Key, TypeName


class MapQueue:
    """The map queue of one run."""

    def __init__(self) -> None:
        self._waiting: list[MapItem] = []
        # The rest of each type's backlog. Items are created on demand, so that the start of a run with a large backlog
        # stays cheap.
        self._backlog: deque[tuple[TypeName, Iterator[Applied]]] = deque()
        self._backlog_left = 0
        self._owed: deque[tuple[TypeName, Applied]] = deque()
        # By resource. Invariant: the heap, by due time, contains each of them once.
        self._failed: dict[tuple[TypeName, Key], FailedChanges] = {}
        self._due: list[tuple[float, int, FailedChanges]] = []
        self._order = 0

    def push(self, type: TypeName, applied: Iterable[Applied]) -> None:
        """Add changes of a type."""
        waiting, order = self._waiting, self._order
        for each in applied:
            order += 1
            # A call of the class would run a function of Python for every change.
            heapq.heappush(waiting, tuple.__new__(MapItem, (each.revision, order, type, each, False)))
        self._order = order

    def push_owed(self, changes: Iterable[tuple[TypeName, Applied]]) -> None:
        """Add changes that an earlier run left, in the order in which they are returned."""
        self._owed.extend(changes)

    def push_backlog(self, type: TypeName, applied: Collection[Applied]) -> None:
        """Add the resources that existed when the run began. The collection is kept and must not change."""
        if applied:
            self._backlog.append((type, iter(applied)))
            self._backlog_left += len(applied)

    @property
    def first(self) -> int:
        """The lowest revision of the changes that wait; 0 without any."""
        return self._waiting[0].revision if self._waiting else 0

    def pop(self, complete: int) -> MapItem | None:
        """Return the next change at or below ``complete``, the controller's lowest frontier, or one of the backlog."""
        if self._owed:
            type, applied = self._owed.popleft()
            self._order += 1
            return MapItem(applied.revision, self._order, type, applied, False)
        if self._waiting and self._waiting[0].revision <= complete:
            return heapq.heappop(self._waiting)
        while self._backlog:
            type, left = self._backlog[0]
            for applied in left:
                self._backlog_left -= 1
                self._order += 1
                return tuple.__new__(MapItem, (0, self._order, type, applied, True))
            self._backlog.popleft()
        return None

    def defer(self, item: MapItem, due: float) -> FailedChanges:
        """Keep an item whose mapping failed until ``due``, or together with earlier failures of its resource."""
        failed = self._failed.get((item.type, item.applied.key))
        if failed is not None:
            failed.add(item)
            return failed
        failed = FailedChanges(item, due)
        self._wait(failed)
        return failed

    def defer_again(self, failed: FailedChanges, due: float) -> None:
        """Keep changes whose mapping failed again until ``due``."""
        failed.failures += 1
        failed.due = due
        self._wait(failed)

    def _wait(self, failed: FailedChanges) -> None:
        self._failed[failed.name] = failed
        heapq.heappush(self._due, (failed.due, failed.order, failed))

    def pop_due(self, now: float) -> FailedChanges | None:
        """Return the next failed changes that are due, or None. If they fail again, use `defer_again`."""
        if self._due and self._due[0][0] <= now:
            failed = heapq.heappop(self._due)[2]
            del self._failed[failed.name]
            return failed
        return None

    def next_due(self) -> float | None:
        """Return when the next failed changes are due, or None."""
        return self._due[0][0] if self._due else None

    def failed(self) -> Collection[FailedChanges]:
        """Return the resources whose mapping failed, in no particular order."""
        return self._failed.values()

    def drain(self) -> Iterator[tuple[TypeName, Applied]]:
        """Remove everything that waits, for the next run after this one has ended. Changes of one resource keep order.

        Equal changes are returned once: each run adds its whole cache to the backlog, so that without this, several
        short runs would leave as many copies of it. Lost changes need no mention, because every run begins with all
        keys in its cache.
        """
        # By the resource and the revision, because states cannot be hashed.
        distinct: dict[tuple[TypeName, Key, int], list[Applied]] = {}
        for type, applied in self._rest():
            same = distinct.setdefault((type, applied.key, applied.revision), [])
            if applied not in same:
                same.append(applied)
                yield type, applied

    def _rest(self) -> Iterator[tuple[TypeName, Applied]]:
        # What has failed was returned before any later change of its resource.
        failed, self._failed, self._due = self._failed, {}, []
        for kept in failed.values():
            for applied in kept.changes:
                yield kept.type, applied
        while self._waiting or self._backlog or self._owed:
            item = self.pop(self._waiting[0].revision if self._waiting else 0)
            if item is not None:
                yield item.type, item.applied

    def __len__(self) -> int:
        """Return the number of changes that wait. Those of a resource whose mapping failed count as one."""
        return len(self._owed) + len(self._waiting) + self._backlog_left + len(self._failed)
