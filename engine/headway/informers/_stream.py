"""The grammar of a stream. It takes items and returns checked items. No I/O.

Rules:
1. A stream is `snapshot* end changes-or-bookmark*`. A stream that was asked to resume, and begins with a bookmark that
   says `resumed`, is `bookmark(resumed) changes-or-bookmark*`. If it begins otherwise, it is a snapshot.
2. Changes are passed on in whole commits: changes with `more` are kept until their commit is complete. If a stream
   breaks in the middle of a commit, nothing of the commit is passed on. After ``more``, only that commit may follow.
3. A change at or below a bookmark of the same stream proves the bookmark false: FalseBookmark. (A change at or below
   the end of the snapshot is merely late, and the store of the type refuses it.)
4. All positions of a stream have the same store id, the expected one if there is one. Another id is StoreChanged.
5. A bookmark that says `resumed` must be at exactly the requested position. Beyond it, changes would be missed.
"""

from __future__ import annotations

from headway.errors import RemoteError, StoreChanged
from headway.resource import Bookmark, Change, Changes, EndOfSnapshot, Position, SnapshotChunk, StreamItem


class StreamBroken(RemoteError):
    """A stream violates the grammar. It is closed, and another one is opened."""


class FalseBookmark(RemoteError):
    """A stream claimed to be complete up to a revision, and then delivered a change at or below it."""


class StreamMachine:
    """The state of a stream since its opening.

    Args:
        expected_store: the store id that the stream must have; empty for any.
        resume_after: the position that it was asked to resume after, if any.
    """

    def __init__(self, expected_store: str = "", resume_after: Position | None = None) -> None:
        self._store_id = expected_store
        self._resume_after = resume_after
        self._live = False
        self._in_snapshot = False
        self._commit: list[Change] = []
        self._bookmark = 0
        # Invariant: the revision up to which this stream is complete; 0 before it is known.
        self.frontier = 0

    def feed(self, item: StreamItem) -> StreamItem | None:
        """Return the item in the form to apply, or None while a commit is incomplete.

        Raises StreamBroken, FalseBookmark or StoreChanged; the stream is useless afterwards.
        """
        if isinstance(item, Changes):
            return self._changes(item)
        if isinstance(item, SnapshotChunk):
            if self._live:
                raise StreamBroken("a snapshot chunk came after the end of the snapshot")
            self._in_snapshot = True
            return item
        if isinstance(item, EndOfSnapshot):
            if self._live:
                raise StreamBroken("a second end of snapshot came")
            self._check_store(item.position)
            self._live = True
            self.frontier = item.position.revision
            return item
        return self._bookmark_item(item)

    def _changes(self, item: Changes) -> Changes | None:
        if not self._live:
            raise StreamBroken("a change came before the end of the snapshot")
        bookmark, unfinished = self._bookmark, self._commit[-1].revision if self._commit else 0
        for revision, _, _, more in item.changes:
            if revision <= bookmark:
                raise FalseBookmark(f"a change at revision {revision} came after the bookmark {bookmark}")
            if unfinished and revision != unfinished:
                raise StreamBroken(f"received a change at revision {revision} before commit {unfinished} was complete")
            unfinished = revision if more else 0
        if self._commit:
            item = Changes(self._commit + item.changes)
            self._commit = []
        changes = item.changes
        if changes[-1].more:
            whole = len(changes)
            while whole and changes[whole - 1].revision == changes[-1].revision:
                whole -= 1
            self._commit = changes[whole:]
            if not whole:
                return None
            item = Changes(changes[:whole])
        self.frontier = max(self.frontier, item.changes[-1].revision)
        return item

    def _bookmark_item(self, item: Bookmark) -> StreamItem | None:
        self._check_store(item.position)
        revision = item.position.revision
        if not self._live:
            asked = self._resume_after
            if not item.resumed or asked is None or self._in_snapshot:
                raise StreamBroken("a bookmark came before the end of the snapshot")
            if revision != asked.revision:
                raise StreamBroken(f"a stream that was asked to resume after {asked.revision} resumed after {revision}")
            self._live = True
        elif self._commit:
            raise StreamBroken("received a bookmark before the commit was complete")
        self._bookmark = max(self._bookmark, revision)
        self.frontier = max(self.frontier, revision)
        return item

    def _check_store(self, position: Position) -> None:
        if not position.store_id or (not position.revision and not position.session):
            raise StreamBroken("the server's stream has no positions: it is not a Headway server")
        if self._store_id and position.store_id != self._store_id:
            raise StoreChanged(f"the stream is of store {position.store_id}, not of {self._store_id}")
        self._store_id = position.store_id
