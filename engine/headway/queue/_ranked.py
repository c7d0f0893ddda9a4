"""A work queue whose ready keys have priorities, which a function returns.

The highest priority goes first, and within it live keys before backlog keys. However, after `LIVE_PER_BACKLOG` keys in
a row that passed the one that has been ready for longest, that one goes. A key that becomes ready behind n others is
therefore one of the next `(n + 1) * (LIVE_PER_BACKLOG + 1)` keys. Each add of a ready key asks for its priority anew.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator

from headway.queue._backoff import Backoff
from headway.queue._entries import LIVE_PER_BACKLOG, Entry, Lanes
from headway.queue._machine import WorkQueue
from headway.queue._values import K, Priority, R


class RankedLanes(Lanes[K, R]):
    """The ready entries, in a line for each rank. The lowest goes first. It is odd for backlog keys."""

    __slots__ = ("_lines", "_priority", "_ranks")

    def __init__(self, priority: Callable[[K], int], live_per_backlog: int = LIVE_PER_BACKLOG) -> None:
        super().__init__(live_per_backlog)
        self._priority = priority
        # The key that became ready first is at the front. Invariant: each key is in the line of its rank.
        self._ranks: OrderedDict[K, int] = OrderedDict()
        self._lines: defaultdict[int, OrderedDict[K, Entry[K, R]]] = defaultdict(OrderedDict)

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Entry[K, R]]:
        return (entry for rank in sorted(self._lines) for entry in self._lines[rank].values())

    def backlog_size(self) -> int:
        return sum(rank % 2 for rank in self._ranks.values())

    def append(self, entry: Entry[K, R]) -> None:
        key, rank = entry.key, entry.priority - 2 * self._priority(entry.key)
        if rank != (known := self._ranks.get(key)):
            if known is not None:
                self._leave(key, known)
            self._ranks[key] = rank
            self._lines[rank][key] = entry

    def pop(self) -> Entry[K, R] | None:
        if not self._ranks:
            # If only emptied by removals, it would keep the memory for its largest size.
            self._ranks.clear()
            return None
        oldest = next(iter(self._ranks))
        first = oldest if self._passed_over == self._live_per_backlog else next(iter(self._lines[min(self._lines)]))
        self._passed_over = 0 if first == oldest else self._passed_over + 1
        return self._leave(first, self._ranks.pop(first))

    def _leave(self, key: K, rank: int) -> Entry[K, R]:
        line = self._lines[rank]
        entry = line.pop(key)
        if not line:
            del self._lines[rank]
        return entry


class RankedQueue(WorkQueue[K, R]):
    """A `WorkQueue` that dequeues keys by priority, as a function returns it: 0 for a normal key. It must not raise."""

    __slots__ = ()

    def __init__(self, priority: Callable[[K], int], backoff: Backoff | None = None, min_interval: float = 0.0) -> None:
        super().__init__(backoff, min_interval=min_interval)
        self._lanes = RankedLanes(priority)

    def _add_known(self, entry: Entry[K, R], reason: R, now: float, priority: Priority) -> None:
        # First, so that the entry is never moved as in two lanes.
        entry.raise_to(priority)
        super()._add_known(entry, reason, now, priority)
        if entry.state == "ready":
            self._lanes.append(entry)
