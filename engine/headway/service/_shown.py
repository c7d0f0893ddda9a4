"""The part of a watch's items that one caller receives: readable resources of one version of their kind. Pure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from operator import attrgetter

from headway.resource import Bookmark, Change, Changes, Position, SnapshotChunk, StreamItem, pb, resource_key
from headway.service._versions import View

# Not a Python function, because it is called for each resource of a snapshot. Stored ids are complete.
_version: Callable[[pb.Resource], str] = attrgetter("id.type.group_version")


def is_of_version(item: StreamItem, version: str) -> bool:
    """Return True if all resources of an item are stored as this version; False for items without resources."""
    if isinstance(item, Changes):
        for change in item.changes:
            if change.resource.id.type.group_version != version:  # type: ignore[union-attr]  # stored ids are whole
                break
        else:
            return True
        return False
    if isinstance(item, SnapshotChunk):
        return set(map(_version, item.resources)) == {version}
    return False


def told_of(item: StreamItem, view: View, shows: Callable[[pb.Resource], bool], here: Position) -> list[StreamItem]:
    """Return the items to send to a watcher of one version. Commits stay whole as far as their changes are sent.

    A resource that was stored as another version of its kind, and is visible as both, counts as updated: its deletion
    as the old version is left out.

    If the last commits of the changes are left out, a bookmark gives their revision, so that the reader's frontier
    advances. Nothing else would report it, and a store may then be quiet for long.

    Args:
        view: returns a stored resource as the watcher's version, if a converter leads there.
        shows: returns True if the caller may read a resource.
        here: a position of the session that the item belongs to.
    """
    if isinstance(item, SnapshotChunk):
        there = [seen for each in item.resources if (seen := view(each)) is not None and shows(seen)]
        return [SnapshotChunk(there)] if there else []
    if isinstance(item, Changes):
        left = _without_moves(
            [
                each if seen is each.resource else each._replace(resource=seen)
                for each in item.changes
                if (seen := view(each.resource)) is not None and shows(seen)
            ]
        )
        items: list[StreamItem] = [Changes(_ending_commits(left))] if left else []
        last = item.changes[-1].revision
        if not left or left[-1].revision < last:
            items.append(Bookmark(here._replace(revision=last)))
        return items
    return [item]


def _without_moves(changes: list[Change]) -> list[Change]:
    """Return the changes without deletions that are followed by a write of the same resource in the same commit."""
    return [
        change
        for change, after in zip_longest(changes, changes[1:])
        if not (
            change.deleted
            and after is not None
            and after.revision == change.revision
            and not after.deleted
            and resource_key(after.resource) == resource_key(change.resource)
        )
    ]


def _ending_commits(changes: list[Change]) -> list[Change]:
    """Return the remaining changes with `more` set anew: it says whether another change of the same commit follows."""
    following = [*(change.revision for change in changes[1:]), 0]
    return [
        change._replace(more=change.revision == revision) for change, revision in zip(changes, following, strict=True)
    ]
