"""The entries of the queue, one for each key, and their order: ready ones in two lanes, delayed ones in a heap.

They are internal to the queue and mutable. `_values.py` has what the queue returns.

Lanes: a live key goes before a backlog key. However, after `live_per_backlog` consecutive live keys were dequeued while
backlog waited, one backlog key goes first. The n-th backlog key is therefore dequeued after at most `n *
(live_per_backlog + 1)` keys, whatever live keys arrive in the meantime. A live key only leaves its lane by being
dequeued, so a deque suffices. A backlog key that a live change raises would leave from the middle, which a deque cannot
do: its place is abandoned instead. Such a place is recognized by the priority of its entry, which is never lowered
again. When more than half of the backlog's places are abandoned, they are removed.

Delays: a heap cannot remove an element from its middle, so an abandoned place stays in it and is recognized by its
ticket: a place is valid only while its entry has the same ticket. An overridden delay therefore never fires. When more
than half of the heap's places are abandoned, they are removed, so that repeatedly delaying and overriding a key costs
no memory.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final, Generic

from headway.queue._values import BACKLOG, LIVE, K, Priority, R, State

FIRST_REASONS: Final = 3
LAST_REASONS: Final = 5
_KEPT_REASONS: Final = FIRST_REASONS + LAST_REASONS


class Entry(Generic[K, R]):
    """A coming or current run of a key, with its reasons."""

    # A plain class with slots, because one is created for every change, and a dataclass would cost more each time.
    __slots__ = (
        *("due", "failures", "following", "key", "omitted", "priority", "queued_at", "reasons", "since", "state"),
        "ticket",
    )

    def __init__(self, key: K, reasons: tuple[R, ...], priority: Priority, queued_at: float) -> None:
        self.key = key
        # Invariant: len(reasons) <= 8, and len(reasons) + omitted is the number of reasons noted.
        self.reasons = reasons
        self.omitted = 0
        self.priority: Priority = priority
        self.queued_at = queued_at
        # The time, in seconds, since which the key has been pending, through all failures. It has no meaning while the
        # entry is scheduled.
        self.since = queued_at
        self.failures = 0
        self.state: State = "ready"
        # The time, in seconds, when a delayed entry becomes ready. It has no meaning in other states.
        self.due = 0.0
        # Invariant: ticket != 0 exactly while the entry is delayed. It is then the ticket of its valid place.
        self.ticket = 0
        # The reasons added since the key was dequeued, for the run after the one in hand. Invariant: following is not
        # None implies state == "in hand" and following.state is neither "in hand" nor "paced".
        self.following: Entry[K, R] | None = None

    def note(self, reason: R) -> None:
        """Add a reason. Of many, keep the first (the original causes) and the last (the current ones).

        A repeated reason, such as one failure after another, is only counted. Otherwise it would push out the causes.
        """
        reasons = self.reasons
        if reasons[-1] is reason:
            self.omitted += 1
            return
        if len(reasons) == _KEPT_REASONS:
            reasons = reasons[:FIRST_REASONS] + reasons[FIRST_REASONS + 1 :]
            self.omitted += 1
        self.reasons = (*reasons, reason)

    def absorb(self, other: "Entry[K, R]") -> None:
        """Add the reasons of a later entry, and raise the priority to the later entry's if that is higher."""
        for reason in other.reasons:
            self.note(reason)
        self.omitted += other.omitted
        self.raise_to(other.priority)

    def raise_to(self, priority: Priority) -> None:
        """Raise the entry to this priority if it is higher than its own."""
        self.priority = min(self.priority, priority)


def scheduled_entry(key: K, reason: R, priority: Priority, due: float) -> Entry[K, R]:
    """Return a new entry that becomes ready at `due`."""
    entry = Entry(key, (reason,), priority, due)
    entry.state = "scheduled"
    entry.due = due
    return entry


LIVE_PER_BACKLOG: Final = 8
"""The default number of live keys that may go before a waiting backlog key."""

# Below this size a heap or a lane isn't worth rebuilding.
_SMALL: Final = 64


class Lanes(Generic[K, R]):
    """The ready entries, in two lanes."""

    __slots__ = ("_backlog", "_in_backlog", "_live", "_live_per_backlog", "_passed_over")

    def __init__(self, live_per_backlog: int) -> None:
        if live_per_backlog < 1:
            raise ValueError(f"live_per_backlog is {live_per_backlog!r}: it must be at least 1")
        self._live_per_backlog = live_per_backlog
        # Invariant: every entry in _live has priority LIVE, and exactly _in_backlog of those in _backlog have BACKLOG.
        # The places of the others are abandoned.
        self._live: deque[Entry[K, R]] = deque()
        self._backlog: deque[Entry[K, R]] = deque()
        self._in_backlog = 0
        # The live keys dequeued since the last turn of the backlog. Invariant: 0 <= _passed_over <= _live_per_backlog.
        self._passed_over = 0

    def __len__(self) -> int:
        return len(self._live) + self._in_backlog

    def __iter__(self) -> Iterator[Entry[K, R]]:
        return chain(self._live, (entry for entry in self._backlog if entry.priority == BACKLOG))

    def backlog_size(self) -> int:
        """Return the number of backlog entries."""
        return self._in_backlog

    def append(self, entry: Entry[K, R]) -> None:
        """Append an entry to the lane of its priority."""
        if entry.priority == BACKLOG:
            self._backlog.append(entry)
            self._in_backlog += 1
        else:
            self._live.append(entry)

    def make_live(self, entry: Entry[K, R]) -> None:
        """Move a backlog entry to the end of the live lane."""
        entry.priority = LIVE
        self._live.append(entry)
        self._in_backlog -= 1
        if len(self._backlog) > max(_SMALL, 2 * self._in_backlog):
            self._backlog = deque(entry for entry in self._backlog if entry.priority == BACKLOG)

    def pop(self) -> Entry[K, R] | None:
        """Remove and return the next entry, or None."""
        live = self._live
        if not self._in_backlog:
            return live.popleft() if live else None
        if live and self._passed_over < self._live_per_backlog:
            self._passed_over += 1
            return live.popleft()
        self._passed_over = 0
        self._in_backlog -= 1
        entry = self._backlog.popleft()
        while entry.priority != BACKLOG:
            entry = self._backlog.popleft()
        return entry


class Delays(Generic[K, R]):
    """The delayed entries, the soonest first. Entries due at the same time are in order of insertion.

    Attributes:
        heap: the places, by due time and ticket. The first may be an abandoned one. Only this object writes here.
    """

    __slots__ = ("_last_ticket", "_size", "heap")

    def __init__(self) -> None:
        # Invariant: exactly _size of the places are valid: they have the ticket that their entry has.
        self.heap: list[tuple[float, int, Entry[K, R]]] = []
        self._size = 0
        self._last_ticket = 0

    def __len__(self) -> int:
        return self._size

    def put(self, entry: Entry[K, R], due: float) -> None:
        """Delay an entry that is not in here until `due`, in seconds."""
        self._last_ticket = ticket = self._last_ticket + 1
        entry.ticket = ticket
        entry.due = due
        self._size += 1
        heappush(self.heap, (due, ticket, entry))

    def discard(self, entry: Entry[K, R]) -> None:
        """Remove an entry before it is due."""
        entry.ticket = 0
        self._size -= 1
        if len(self.heap) > max(_SMALL, 2 * self._size):
            self.heap = [place for place in self.heap if place[2].ticket == place[1]]
            heapify(self.heap)

    def next_due(self) -> float | None:
        """Return when the soonest entry is due, in seconds, or None."""
        heap = self.heap
        while heap and heap[0][2].ticket != heap[0][1]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Entry[K, R] | None:
        """Remove and return the soonest entry that is due at `now`, in seconds, or None."""
        due = self.next_due()
        if due is None or due > now:
            return None
        entry = heappop(self.heap)[2]
        entry.ticket = 0
        self._size -= 1
        return entry
