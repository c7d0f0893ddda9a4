"""Watches by metadata, of stores that filter by it themselves and of stores that do not."""

from __future__ import annotations

import trio
from typing_extensions import override

from headway.errors import HistoryCompacted
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Kind,
    Position,
    SnapshotChunk,
    StreamItem,
    Within,
    pb,
    resource_key,
)
from headway.storage._abilities import filters_metadata
from headway.storage._backend import Backend, Watch
from headway.storage._filter import ending_commits


async def open_watch(backend: Backend, kind: Kind, within: Within, resume_after: Position | None = None) -> Watch:
    """Open a watch of a store. If the store does not filter by metadata, its items are filtered here."""
    if not within.metadata or filters_metadata(backend):
        return await backend.watch(kind, within, resume_after)
    watch = await backend.watch(kind, within._replace(metadata=()), resume_after)
    if resume_after is not None:
        # Only a snapshot says which resources the reader has. The store was asked first, because it refuses a position
        # of another store.
        watch.close()
        raise HistoryCompacted(
            f"a watch by metadata cannot resume after revision {resume_after.revision}: the store does not filter by it"
        )
    return FilteredWatch(watch, within)


class FilteredWatch(Watch):
    """A watch by metadata over a watch of more. It keeps the resources that its reader has."""

    def __init__(self, inner: Watch, within: Within) -> None:
        self._inner = inner
        self._within = within
        # Invariant: the resources of the delivered items that match.
        self._held: dict[Key, pb.Resource] = {}
        self._at: Position | None = None
        self._bookmark: Bookmark | None = None

    @override
    async def next(self) -> StreamItem:
        while True:
            if self._bookmark is not None:
                await trio.lowlevel.checkpoint()
                bookmark, self._bookmark = self._bookmark, None
                return bookmark
            item = await self._inner.next()
            if isinstance(item, SnapshotChunk):
                chunk = self._within.select(item.resources)
                self._held.update((resource_key(each), each) for each in chunk)
                if chunk:
                    return SnapshotChunk(chunk)
            elif isinstance(item, Changes):
                if kept := self._filtered(item):
                    return Changes(kept)
            else:
                if isinstance(item, EndOfSnapshot | Bookmark):
                    self._at = item.position
                return item

    def _filtered(self, changes: Changes) -> list[Change]:
        """Return the changes of the scope. A bookmark reports the commits at the end that have none."""
        kept = [each for change in changes.changes if (each := self._change(change)) is not None]
        last = changes.changes[-1].revision
        if not kept or kept[-1].revision < last:
            assert self._at is not None, "changes come after the snapshot"
            self._bookmark = Bookmark(self._at._replace(revision=last))
        return ending_commits(kept)

    def _change(self, change: Change) -> Change | None:
        key = resource_key(change.resource)
        if not change.deleted and self._within.admits(change.resource):
            self._held[key] = change.resource
            return change
        held = self._held.pop(key, None)
        if held is None or change.deleted:
            return change if held is not None else None
        return change._replace(resource=held, deleted=True)

    @override
    def close(self) -> None:
        self._inner.close()
