"""What of a watch's items one caller is told: the resources of one version of their kind that may be read. Pure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from operator import attrgetter

from headway.resource import Bookmark, Change, Changes, Position, SnapshotChunk, StreamItem, pb, resource_key
from headway.service._versions import View

# No Python function: it is called for each resource of a snapshot. Stored ids are whole.
_version: Callable[[pb.Resource], str] = attrgetter("id.type.group_version")


def is_of_version(item: StreamItem, version: str) -> bool:
    """Return True for resources that are all stored as this version of their kind; False for anything else."""
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
    """Return what a watcher of one version is told of an item; commits stay whole by what is left of them.

    A resource that was stored as another version of its kind, and is visible as both, has been updated: its deletion as
    the one version is left out.

    Where the last commits of changes are left out it says how far they went, so that their reader's frontier moves
    on: nobody else will say it, and a store may be quiet from then on.

    Args:
        view: gives a stored resource as the watcher's version, if there is a way.
        shows: whether a resource may be read.
        here: a position of the incarnation that the item is of.
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
    """Changes without the deletions that the same commit follows by a write of the same resource."""
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
    """Changes of which some were taken away: whether another of the same commit follows is told anew."""
    following = [*(change.revision for change in changes[1:]), 0]
    return [
        change._replace(more=change.revision == revision) for change, revision in zip(changes, following, strict=True)
    ]
