"""The grammar of one stream. Pure: items in, checked items out.

Rules:
1. A stream is `snapshot* end changes-or-bookmark*`, or, where it was asked to resume and begins with a bookmark that
   says `resumed`, `bookmark(resumed) changes-or-bookmark*`. Asked to resume and beginning otherwise, it is a
   snapshot.
2. Changes are handed on in whole commits: what comes with `more` is kept until its commit is whole. A stream that
   breaks in the middle of a commit has told nothing of it. After ``more`` nothing but that commit may follow.
3. A change at or below a bookmark of the same stream proves that bookmark false: FalseBookmark. (At or below the end
   of the snapshot it is merely late; whoever holds the data refuses it.)
4. Every position of a stream is of one store id, the one that is expected if one is. Another one is StoreChanged.
5. A bookmark that says `resumed` must stand at the very position asked for: past it, changes would be missing.
"""

from __future__ import annotations

from headway.errors import RemoteError, StoreChanged
from headway.resource import Bookmark, Change, Changes, EndOfSnapshot, Position, SnapshotChunk, StreamItem


class StreamBroken(RemoteError):
    """A stream doesn't follow the grammar; it is closed and another one opened."""


class FalseBookmark(RemoteError):
    """A stream said that it was complete up to a revision, and then told a change at or below it."""


class StreamMachine:
    """One stream from its opening on.

    Args:
        expected_store: the store id that the stream must be of; empty: whichever it is.
        resume_after: the position after which it was asked to go on, if it was.
    """

    def __init__(self, expected_store: str = "", resume_after: Position | None = None) -> None:
        self._store_id = expected_store
        self._resume_after = resume_after
        self._live = False
        self._in_snapshot = False
        self._commit: list[Change] = []
        self._bookmark = 0
        # Invariant: the revision up to which this stream has told everything, 0 before it has said so.
        self.told = 0

    def feed(self, item: StreamItem) -> StreamItem | None:
        """The item as it may be applied, or None while a commit isn't whole.

        Raises StreamBroken, FalseBookmark or StoreChanged; the stream is of no more use then.
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
            self.told = item.position.revision
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
                raise StreamBroken(f"a change at revision {revision} came in the middle of commit {unfinished}")
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
        self.told = max(self.told, item.changes[-1].revision)
        return item

    def _bookmark_item(self, item: Bookmark) -> StreamItem | None:
        self._check_store(item.position)
        revision = item.position.revision
        if not self._live:
            asked = self._resume_after
            if not item.resumed or asked is None or self._in_snapshot:
                raise StreamBroken("a bookmark came before the end of the snapshot")
            if revision != asked.revision:
                raise StreamBroken(f"a stream asked to go on after {asked.revision} goes on after {revision}")
            self._live = True
        elif self._commit:
            raise StreamBroken("a bookmark came in the middle of a commit")
        self._bookmark = max(self._bookmark, revision)
        self.told = max(self.told, revision)
        return item

    def _check_store(self, position: Position) -> None:
        if not position.store_id or (not position.revision and not position.session):
            raise StreamBroken("the server's stream has no positions: it is not a Headway server")
        if self._store_id and position.store_id != self._store_id:
            raise StoreChanged(f"the stream is of store {position.store_id}, not of {self._store_id}")
        self._store_id = position.store_id
