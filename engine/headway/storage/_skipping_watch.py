"""A watch over a commit log that skips the commits that change nothing of its part of a kind."""

from __future__ import annotations

import trio

from headway.resource import StreamItem
from headway.storage._log import CommitLog, Cursor
from headway.storage._operations import Within
from headway.storage._watch import LogWatch

_MOST = 32
"""The number of changes that a commit looks at for one watch. More are left to its task."""


class SkippingWatch(LogWatch):
    """A `LogWatch` that implements `SkipsUnrelated`."""

    __slots__ = ()

    @trio.lowlevel.enable_ki_protection
    async def next_change(self) -> StreamItem:
        """Return the next item like `next`, but stay asleep while commits change nothing of this part of the kind."""
        if not self._opened:
            return await self.next()
        while True:
            if self._has_nothing():
                await self._pulse.wait(self._has_nothing)
            else:
                await trio.lowlevel.checkpoint()
            item = self._take()
            if item is not None:
                return item

    @trio.lowlevel.enable_ki_protection
    def poll(self) -> StreamItem | None:
        """Return the next item if there is one now. Before the end of the snapshot there is none."""
        return self._take() if self._opened else None

    def _has_nothing(self) -> bool:
        """Skip the changes outside of this part. Return False if there are others, or a session to announce."""
        marks = self._log.marks
        return not (marks and marks[-1] > self._announced) and _skip(self._log, self._cursor, self._within)


def _skip(log: CommitLog, cursor: Cursor, within: Within | None) -> bool:
    """Move the cursor past the changes after it if none of them is in ``within``, and return True.

    Otherwise, or if there are too many, return False and leave the cursor. `CommitLog.take` moves ``cursor.revision``
    later, and stops at marks as usual.

    Args:
        within: None for the whole kind.
    """
    changes, start, formers = cursor.log.changes, cursor.log.start, cursor.log.formers
    first, end = cursor.index - start, len(changes)
    # A snapshot above the head already includes the changes up to its revision.
    if first < end and log.head > cursor.revision:
        if within is None or first < cursor.log.dropped or end - first > _MOST:
            return False
        for index in range(first, end):
            if within.admits(changes[index].resource):
                return False
            if (former := formers.get(start + index)) is not None and within.admits(former):
                return False
        cursor.index = start + end
    return True
