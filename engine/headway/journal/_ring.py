"""A sequence of entries within a limit of memory. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

E = TypeVar("E")


class Ring(Generic[E]):
    """The newest entries that fit within a limit of memory.

    Attributes:
        limit: the memory that all entries together may count for, in bytes.
        dropped: the number of entries that made room for newer ones.
    """

    __slots__ = ("_entries", "_size", "_sizes", "dropped", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.dropped = 0
        self._entries: deque[E] = deque()
        # Invariant: the sizes of the entries. `_size` is their sum, and at most `limit` after each `add`.
        self._sizes: deque[int] = deque()
        self._size = 0

    def add(self, entry: E, size: int) -> None:
        """Add an entry of this size, in bytes, and drop the oldest entries until all fit within the limit."""
        self._entries.append(entry)
        self._sizes.append(size)
        self._size += size
        while self._size > self.limit:
            self._entries.popleft()
            self._size -= self._sizes.popleft()
            self.dropped += 1

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[E]:
        """Yield the entries, the oldest first."""
        return iter(self._entries)

    def newest(self) -> Iterator[E]:
        """Yield the entries, the newest first."""
        return reversed(self._entries)
