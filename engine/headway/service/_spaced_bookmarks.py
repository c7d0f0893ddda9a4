"""The interval of a watch's bookmarks, and the items of a watch with at most one bookmark in this time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from headway.errors import InvalidArgument
from headway.resource import Bookmark, EndOfSnapshot, StreamItem

LONGEST = 3_600_000
"""The longest interval in milliseconds: an hour, for callers who want no bookmarks."""


def bookmark_interval(milliseconds: int) -> float:
    """Return the seconds between bookmarks that a request asks for; 0 sends each bookmark at once."""
    if not 0 <= milliseconds <= LONGEST:
        raise InvalidArgument(
            f"bookmark_interval_ms {milliseconds} must be from 0 (send each at once) to {LONGEST} (one an hour)"
        )
    return milliseconds / 1000


class SpacedBookmarks:
    """The items of a watch. A bookmark that comes too early is held until it is due, or replaced by a newer item.

    Args:
        upcoming: returns the next item. If it is canceled, no item is lost.
        seconds: the time between two bookmarks.
        change: returns the next item in place of ``upcoming`` while a bookmark is held, and may skip bookmarks.
        poll: returns the next item if there is one now, such as a bookmark for all that ``change`` has skipped.
    """

    def __init__(
        self,
        upcoming: Callable[[], Awaitable[StreamItem]],
        seconds: float,
        *,
        change: Callable[[], Awaitable[StreamItem]] | None = None,
        poll: Callable[[], StreamItem | None] = lambda: None,
    ) -> None:
        self._upcoming = upcoming
        self._change = change or upcoming
        self._poll = poll
        self._seconds = seconds
        self._held: Bookmark | None = None
        self._due = -float("inf")
        self._session = ""

    async def next(self) -> StreamItem:
        """Return the next item that is due. No cancel scope is open when it returns."""
        item: StreamItem | None = None
        if self._held is None:
            item = self._unless_held(await self._upcoming())
        if item is None:
            # One scope for all bookmarks that are held in turn: a scope costs more than an event, and a watcher of a
            # quiet part of a busy store may see a bookmark for each commit.
            with trio.CancelScope(deadline=self._due):
                while item is None:
                    item = self._unless_held(await self._change())
        if item is None:
            assert self._held is not None
            item = self._unless_held(self._poll() or self._held)
            assert item is not None, "the held bookmark is due"
        return item

    def _unless_held(self, item: StreamItem) -> StreamItem | None:
        """Return the item if it is due. Otherwise hold it, in place of an earlier one, and return None."""
        before = self._session
        if isinstance(item, Bookmark | EndOfSnapshot):
            self._session = item.position.session
        if not isinstance(item, Bookmark) or item.resumed or self._session != before:
            # It supersedes the held bookmark, because it comes after it.
            self._held = None
            return item
        if trio.current_time() >= self._due:
            return self._send(item)
        self._held = item
        return None

    def _send(self, bookmark: Bookmark) -> Bookmark:
        self._held = None
        self._due = trio.current_time() + self._seconds
        return bookmark
