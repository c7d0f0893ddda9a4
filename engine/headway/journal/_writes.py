"""The journal's record of the writes that this process has committed. No I/O; the clock is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from headway.journal._entries import ENTRY, Entry, EntryKey, Written

Sink = Callable[[str, Entry], None]
"""A function that receives every entry, with the name of its controller. It must not block."""


class WriteJournal:
    """The writes that this process has committed, of all writers."""

    def __init__(self, limit: int, clock: Callable[[], float], sink: Sink | None) -> None:
        self._clock = clock
        self._sink = sink
        # The fields of `Written`. Every write is noted here, and few are ever read.
        self._entries: deque[tuple[float, int, Any, EntryKey, str, str]] = deque(maxlen=limit // ENTRY)

    def add(self, revision: int, type: Any, key: EntryKey, verb: str, fence: Any, caller: str) -> None:
        """Record a committed write. Its writer is the controller whose `Fence` it carried, or else the caller."""
        writer = caller
        if fence is not None:
            writer = f"controller {fence.controller}" + (f" ({fence.member})" if fence.member else "")
        fields = (self._clock(), revision, type, key, verb, writer)
        self._entries.append(fields)
        if self._sink is not None:
            self._sink("", Written(*fields))

    def of(self, kind: tuple[str, str], key: EntryKey) -> Iterator[Written]:
        """Yield the writes of a resource, the newest first. All versions of its kind count."""
        entries = (Written(*each) for each in reversed(self._entries) if each[3] == key)
        return (each for each in entries if each.type.unversioned == kind)

    def at(self, revisions: set[int]) -> dict[int, Written]:
        """Return the writes with these revisions, as far as they are known."""
        return {each[1]: Written(*each) for each in self._entries if each[1] in revisions}
