"""The reader of a stream of resources: what its caller may read, and what it has of what may be hidden from it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from headway.errors import HistoryCompacted
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    Key,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
    resource_id,
    resource_key,
)
from headway.service._access import AccessChecks
from headway.service._forms import View
from headway.storage import ending_commits


class Reader:
    """The reader of the resources of one type, in one of its versions.

    A right may depend on what a resource contains (`headway.Hooks.needs`). A change can then hide a resource that the
    reader has. That counts as its deletion, in the state that the reader has: otherwise the reader would keep it for
    ever.

    Args:
        view: returns a stored resource as the reader's version, if it can be shown as that.
        resumed: True if the stream has no snapshot, so that what the reader has is not known here.
    """

    def __init__(self, access: AccessChecks, view: View, *, resumed: bool = False) -> None:
        self._sight = access.sight
        self._view = view
        self._resumed = resumed
        # Of the resources whose content decides: the state that the reader has, or None if it lacks the resource.
        # Invariants: a reader that did not resume lacks all others, and between two calls all of them exist. Otherwise
        # a stream of names that come and go would remember each of them.
        self._has: dict[Key, pb.Resource | None] = {}
        # Those that the changes so far have deleted and not written again.
        self._ended: set[Key] = set()

    def items(self, item: SnapshotChunk | Changes, here: Position) -> list[StreamItem]:
        """Return the items to send. Commits stay whole as far as their changes are sent.

        If the last commits of the changes are left out, a bookmark gives their revision, so that the reader's frontier
        advances. Nothing else would report it, and a store may then be quiet for long.

        Args:
            here: a position of the session that the item belongs to.
        """
        if isinstance(item, SnapshotChunk):
            there = [seen for each in item.resources if (seen := self.seen(each)) is not None]
            return [SnapshotChunk(there)] if there else []
        left = self.changes(item.changes)
        items: list[StreamItem] = [Changes(ending_commits(left))] if left else []
        last = item.changes[-1].revision
        if not left or left[-1].revision < last:
            items.append(Bookmark(here._replace(revision=last)))
        return items

    def seen(self, stored: pb.Resource) -> pb.Resource | None:
        """Return a resource of the snapshot as the reader sees it, or None if it does not."""
        resource = self._view(stored)
        if resource is None:
            return None
        sight = self._sight(resource)
        if sight.visible and sight.by_content:
            self._has[resource_key(resource)] = resource
        return resource if sight.visible else None

    def changes(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes to send. `more` is not adjusted.

        A resource that was stored as another version of its kind, and is visible as both, counts as updated: its
        deletion as the old version is left out.

        Raises:
            HistoryCompacted: a change has hidden a resource, and only a snapshot says whether the reader has it.
        """
        seen = [change for each in changes if (change := self._change(each)) is not None]
        # Only now: a commit that stores a resource as another version deletes it and writes it.
        for key in self._ended:
            self._has.pop(key, None)
        self._ended.clear()
        # Without the deletions that are followed by a write of the same resource in the same commit.
        return [
            change
            for change, after in zip_longest(seen, seen[1:])
            if not (
                change.deleted
                and after is not None
                and after.revision == change.revision
                and not after.deleted
                and resource_key(after.resource) == resource_key(change.resource)
            )
        ]

    def _change(self, change: Change) -> Change | None:
        resource = self._view(change.resource)
        if resource is None:
            return None
        sight = self._sight(resource)
        if sight.by_content:
            key = resource_key(resource)
            (self._ended.add if change.deleted else self._ended.discard)(key)
            if not sight.visible:
                return self._hidden(change, key)
            self._note(key, None if change.deleted else resource)
        if not sight.visible:
            return None
        return change if resource is change.resource else change._replace(resource=resource)

    def _hidden(self, change: Change, key: Key) -> Change | None:
        # A deletion is of a state that was hidden before, so that the reader lacks it.
        if self._resumed and key not in self._has and not change.deleted:
            id = resource_id(change.resource.id)
            raise HistoryCompacted(
                f"a watch of {id.type} cannot continue without a snapshot: what you may read of it depends on what it "
                "contains, and a change has hidden a resource that you may have"
            )
        had = self._has.get(key)
        self._note(key, None)
        return None if had is None else change._replace(resource=had, deleted=True)

    def _note(self, key: Key, resource: pb.Resource | None) -> None:
        if resource is not None or self._resumed:
            self._has[key] = resource
        else:
            self._has.pop(key, None)
