"""Which of the ready keys is next: live before backlog, first come first served in each, and neither starves.

The rule: a live key goes before a backlog key, except that after `live_per_backlog` live keys in a row that
were taken while backlog waited, one backlog key goes first. So the n-th backlog key is handed out after at
most `n * (live_per_backlog + 1)` takes, whatever comes live in the meantime.

The two lanes are not made alike. Nothing ever leaves the live lane but by its turn, so a deque does; a
backlog key that a live change raises leaves from the middle, so the backlog needs removal by key.
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
        # Invariant: every entry in _live has priority LIVE, every one in _backlog BACKLOG, and no key is in
        # both.
        self._live: deque[Entry[K, R]] = deque()
        self._backlog: OrderedDict[K, Entry[K, R]] = OrderedDict()
        # Invariant: 0 <= _passed_over <= _live_per_backlog: the live keys taken since backlog last had its
        # turn.
        self._passed_over = 0

    def __len__(self) -> int:
        return len(self._live) + len(self._backlog)

    def __iter__(self) -> Iterator[Entry[K, R]]:
        return chain(self._live, self._backlog.values())

    def backlog_size(self) -> int:
        """Return how many of the entries are backlog."""
        return len(self._backlog)

    def append(self, entry: Entry[K, R]) -> None:
        """Put an entry at the end of the lane of its priority."""
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
        """Remove and return the entry whose turn it is."""
        live, backlog = self._live, self._backlog
        if not backlog:
            return live.popleft() if live else None
        if live and self._passed_over < self._live_per_backlog:
            self._passed_over += 1
            return live.popleft()
        self._passed_over = 0
        entry = backlog.popitem(last=False)[1]
        if not backlog:
            # Emptied by hand it would keep the room for every key that a run has begun with.
            backlog.clear()
        return entry
