"""The order of ready keys: live before backlog, first come first served in each, and neither starves.

A live key goes before a backlog key. However, after `live_per_backlog` consecutive live keys were dequeued while
backlog waited, one backlog key goes first. The n-th backlog key is therefore dequeued after at most `n *
(live_per_backlog + 1)` keys, whatever live keys arrive in the meantime.

The two lanes have different types. A live key only leaves by being dequeued, so a deque suffices. A backlog key that a
live change raises leaves from the middle, so the backlog needs removal by key.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain
from typing import Generic

from headway.queue._entry import BACKLOG, LIVE, Entry, K, R


class Lanes(Generic[K, R]):
    """The ready entries, in two lanes."""

    __slots__ = ("_backlog", "_live", "_live_per_backlog", "_passed_over")

    def __init__(self, live_per_backlog: int) -> None:
        if live_per_backlog < 1:
            raise ValueError(f"live_per_backlog is {live_per_backlog!r}: it must be at least 1")
        self._live_per_backlog = live_per_backlog
        # Invariant: every entry in _live has priority LIVE, every entry in _backlog has BACKLOG, and no key is in both.
        self._live: deque[Entry[K, R]] = deque()
        self._backlog: OrderedDict[K, Entry[K, R]] = OrderedDict()
        # The live keys dequeued since the last turn of the backlog. Invariant: 0 <= _passed_over <= _live_per_backlog.
        self._passed_over = 0

    def __len__(self) -> int:
        return len(self._live) + len(self._backlog)

    def __iter__(self) -> Iterator[Entry[K, R]]:
        return chain(self._live, self._backlog.values())

    def backlog_size(self) -> int:
        """Return the number of backlog entries."""
        return len(self._backlog)

    def append(self, entry: Entry[K, R]) -> None:
        """Append an entry to the lane of its priority."""
        if entry.priority == BACKLOG:
            self._backlog[entry.key] = entry
        else:
            self._live.append(entry)

    def make_live(self, entry: Entry[K, R]) -> None:
        """Move a backlog entry to the end of the live lane."""
        del self._backlog[entry.key]
        entry.priority = LIVE
        self._live.append(entry)

    def pop(self) -> Entry[K, R] | None:
        """Remove and return the next entry, or None."""
        live, backlog = self._live, self._backlog
        if not backlog:
            return live.popleft() if live else None
        if live and self._passed_over < self._live_per_backlog:
            self._passed_over += 1
            return live.popleft()
        self._passed_over = 0
        entry = backlog.popitem(last=False)[1]
        if not backlog:
            # If only emptied by removals, it would keep the memory for all keys of the run's start.
            backlog.clear()
        return entry
