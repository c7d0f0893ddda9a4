"""The delayed entries by due time. An entry that is no longer delayed is removed at once.

A heap cannot remove an element from its middle, so an abandoned place stays in it and is recognized by its ticket: a
place is valid only while its entry has the same ticket. An overridden delay therefore never fires. When more than half
of the heap's places are abandoned, they are removed, so that repeatedly delaying and overriding a key costs no memory.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic

from headway.queue._entry import Entry, K, R

# Below this size a heap isn't worth rebuilding.
_SMALL: Final = 64


class Delays(Generic[K, R]):
    """The delayed entries, the soonest first. Entries due at the same time are in order of insertion."""

    __slots__ = ("_heap", "_last_ticket", "_size")

    def __init__(self) -> None:
        # Invariant: exactly _size of the places are valid: they have the ticket that their entry has.
        self._heap: list[tuple[float, int, Entry[K, R]]] = []
        self._size = 0
        self._last_ticket = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry[K, R]]:
        return (entry for _, ticket, entry in self._heap if entry.ticket == ticket)

    def places(self) -> int:
        """Return the number of places in the heap, including abandoned ones."""
        return len(self._heap)

    def put(self, entry: Entry[K, R], due: float) -> None:
        """Delay an entry that is not in here until `due`, in seconds."""
        self._last_ticket = ticket = self._last_ticket + 1
        entry.ticket = ticket
        entry.due = due
        self._size += 1
        heappush(self._heap, (due, ticket, entry))

    def discard(self, entry: Entry[K, R]) -> None:
        """Remove an entry before it is due."""
        entry.ticket = 0
        self._size -= 1
        if len(self._heap) > max(_SMALL, 2 * self._size):
            self._heap = [place for place in self._heap if place[2].ticket == place[1]]
            heapify(self._heap)

    def next_due(self) -> float | None:
        """Return when the soonest entry is due, in seconds, or None."""
        heap = self._heap
        while heap and heap[0][2].ticket != heap[0][1]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Entry[K, R] | None:
        """Remove and return the soonest entry that is due at `now`, in seconds, or None."""
        due = self.next_due()
        if due is None or due > now:
            return None
        entry = heappop(self._heap)[2]
        entry.ticket = 0
        self._size -= 1
        return entry
