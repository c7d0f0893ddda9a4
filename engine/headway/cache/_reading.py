"""The record of what a reconcile reads, for the journal. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

MOST_READS = 16
"""The number of reads, and of writes, of one reconcile that are recorded."""


READING: ContextVar[list[Any] | None] = ContextVar("headway.reading", default=None)
"""What the current reconcile has read. Set once in each worker's task, if the engine has a journal.

The list is flat, because a tuple for each read would be one more object for the garbage collector: a type, and then the
key that was read or a text that says how, such as ``list``. In `VersionedReads` the key is followed by the version that
was read. The tasks that a reconcile starts inherit it.
"""

VERSIONED = 8
"""The number of reconciles of a worker whose reads are recorded with versions, from its start and from each failure."""


class LookingUp(list[Any]):
    """A list for `READING` that needs what each read has found. It looks up what is read by key.

    Args:
        find: returns the cached resource with this type and key, or None.
    """

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self._find = find

    @contextmanager
    def through(self, find: Callable[[Any, Any], Any]) -> Iterator[None]:
        """Look resources up with another function during the block, because a view is read."""
        before, self._find = self._find, find
        try:
            yield
        finally:
            self._find = before

    def found(self, resources: Sequence[Any]) -> None:
        """Note what a read that is not by key has returned."""


class VersionedReads(LookingUp):
    """A list for `READING` that also has the version of each resource that was read.

    The versions show whether a failed reconcile used an old copy that it had kept, or lost a race. To record them, each
    read looks the resource up again, which would cost too much while everything succeeds. So a worker has such a list
    only for `VERSIONED` reconciles after its start and after each failure.

    Args:
        find: returns the cached resource with this type and key, or None.
        expired: called when the list has been cleared `VERSIONED` times.
    """

    __slots__ = ("_expired", "_left")

    def __init__(self, find: Callable[[Any, Any], Any], expired: Callable[[], None]) -> None:
        super().__init__(find)
        self._expired = expired
        self._left = VERSIONED

    def __iadd__(self, read: Any) -> Self:  # type: ignore[misc]  # a list takes any iterable, and this one only reads
        type, how = read
        if isinstance(how, tuple):
            stored = self._find(type, how)
            if stored is not None and stored.version.isdecimal():
                how = (*how, int(stored.version))
        self.extend((type, how))
        return self

    def clear(self) -> None:
        super().clear()
        self._left -= 1
        if self._left == 0:
            self._expired()

    def renew(self) -> None:
        """Record versions for `VERSIONED` more reconciles, because one has failed."""
        self._left = VERSIONED + 1


def note_read(type: Any, how: object) -> None:
    """Record a read of a type, if the caller is a reconcile and its reads are recorded."""
    reads = READING.get()
    if reads is not None and len(reads) < 2 * MOST_READS:
        reads += (type, how)


def note_found(resources: Sequence[Any]) -> None:
    """Record what a read that is not by key has returned, if the caller's secrets are kept."""
    reads = READING.get()
    if isinstance(reads, LookingUp):
        reads.found(resources)
