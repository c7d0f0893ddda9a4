"""Who sleeps until when: the delayed entries by due time, from which one that is no longer wanted is gone at
once.

A heap can't remove from its middle, so a place that was given up stays in it and is told by its ticket: a
place counts only while its entry carries the same ticket. That is what keeps a delay that was overridden from
firing later. Places given up are cleared out when they are more than half of the heap, so that a key which is
delayed and overridden again and again costs no memory.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic

from headway.queue._entry import Entry, K, R

# Below this size a heap isn't worth rebuilding.
_SMALL: Final = 64


class Delays(Generic[K, R]):
    """The delayed entries, soonest first; of two that are due together, the one put in first."""

    __slots__ = ("_heap", "_last_ticket", "_size")

    def __init__(self) -> None:
        # Invariant: exactly _size of the places are valid, that is, carry the ticket that their entry
        # carries.
        self._heap: list[tuple[float, int, Entry[K, R]]] = []
        self._size = 0
        self._last_ticket = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry[K, R]]:
        return (entry for _, ticket, entry in self._heap if entry.ticket == ticket)

    def places(self) -> int:
        """Return how many places the heap holds, those given up included."""
        return len(self._heap)

    def put(self, entry: Entry[K, R], due: float) -> None:
        """Let an entry that isn't in here sleep until `due`, in seconds."""
        self._last_ticket = ticket = self._last_ticket + 1
        entry.ticket = ticket
        entry.due = due
        self._size += 1
        heappush(self._heap, (due, ticket, entry))

    def discard(self, entry: Entry[K, R]) -> None:
        """Take an entry out before it is due."""
        entry.ticket = 0
        self._size -= 1
        if len(self._heap) > max(_SMALL, 2 * self._size):
            self._heap = [place for place in self._heap if place[2].ticket == place[1]]
            heapify(self._heap)

    def next_due(self) -> float | None:
        """Return when the soonest entry is due, in seconds; None when there is none."""
        heap = self._heap
        while heap and heap[0][2].ticket != heap[0][1]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Entry[K, R] | None:
        """Remove and return the soonest entry that is due at `now`, in seconds; None when none is."""
        due = self.next_due()
        if due is None or due > now:
            return None
        entry = heappop(self._heap)[2]
        entry.ticket = 0
        self._size -= 1
        return entry
