"""A watch's bookmarks, at most one an interval; everything else goes on at once.

So does a bookmark of another incarnation than was told before: the changes behind it are of that one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from headway.resource import Bookmark, EndOfSnapshot, StreamItem
from headway.service._refusals import invalid

LONGEST = 3_600_000
"""The longest interval, in milliseconds: an hour, for who wants none."""


def bookmark_interval(milliseconds: int) -> float:
    """The seconds between bookmarks that a request asks for; 0: no waiting."""
    if not 0 <= milliseconds <= LONGEST:
        raise invalid(
            f"bookmark_interval_ms {milliseconds} must be from 0, at once, to {LONGEST}, an hour: with that there are "
            "as good as none"
        )
    return milliseconds / 1000


class SpacedBookmarks:
    """The items of a watch. A bookmark that comes too early waits for its time, or for one that says more.

    Args:
        upcoming: the next item; cancelled, it has taken nothing.
        seconds: between two bookmarks.
    """

    def __init__(self, upcoming: Callable[[], Awaitable[StreamItem]], seconds: float) -> None:
        self._upcoming = upcoming
        self._seconds = seconds
        self._held: Bookmark | None = None
        self._due = -float("inf")
        self._incarnation = ""

    async def next(self) -> StreamItem:
        """The next item whose time has come. No scope is open when it returns."""
        while True:
            item: StreamItem | None = None
            with trio.CancelScope(deadline=float("inf") if self._held is None else self._due):
                item = await self._upcoming()
            if item is None:
                assert self._held is not None
                return self._told(self._held)
            told = self._incarnation
            if isinstance(item, Bookmark | EndOfSnapshot):
                self._incarnation = item.position.session
            if not isinstance(item, Bookmark) or item.resumed or self._incarnation != told:
                # It says more than what is held: it comes from behind it.
                self._held = None
                return item
            if trio.current_time() >= self._due:
                return self._told(item)
            self._held = item

    def _told(self, bookmark: Bookmark) -> Bookmark:
        self._held = None
        self._due = trio.current_time() + self._seconds
        return bookmark
