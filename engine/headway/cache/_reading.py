"""The record of what a reconcile reads, for the journal. No I/O."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

MOST_READS = 16
"""The number of reads, and of writes, of one reconcile that are recorded."""


READING: ContextVar[list[Any] | None] = ContextVar("headway.reading", default=None)
"""What the current reconcile has read. Set once in each worker's task, if the engine has a journal.

The list is flat, because a tuple for each read would be one more object for the garbage collector: a type, and then the
key that was read or a text that says how, such as ``list``. The tasks that a reconcile starts inherit it.
"""


def note_read(type: Any, how: object) -> None:
    """Record a read of a type, if the caller is a reconcile and its reads are recorded."""
    reads = READING.get()
    if reads is not None and len(reads) < 2 * MOST_READS:
        reads += (type, how)
