"""WatchList: what is there, its end, then every change."""

from __future__ import annotations

from typing import Any

from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Position,
    Registry,
    SnapshotChunk,
    StreamItem,
    pb,
    position,
)
from headway.service._access import Access
from headway.service._admission import admit_within, resolve
from headway.service._bookmarks import SpacedBookmarks, bookmark_interval
from headway.service._bounds import check_position
from headway.service._known import check_known
from headway.service._refusals import STORE_ERRORS, invalid, refusal
from headway.storage import Backend


async def watch_list(backend: Backend, registry: Registry, access: Access, stream: Any) -> None:
    """A grpclib handler. It sends `StreamItem`s; a stream that serialises makes WatchEvents of them.

    It sends from inside no cancel scope and no nursery of its own, so that a channel inside the process may drive it.
    """
    request: pb.WatchListRequest = await stream.recv_message()
    type = resolve(registry, access, request.type, "type")
    within = admit_within(type, request.tenancy, request.name_prefix, absent_is_any=True)
    access.check_list(type.name, within)
    interval = bookmark_interval(request.bookmark_interval_ms)
    check_position(request.resume_after, "resume_after")
    check_position(request.known, "known")
    if request.snapshot_only and request.resume_after is not None:
        raise invalid("snapshot_only must be false with resume_after: what goes on after a position has no snapshot")
    version = type.name.version
    try:
        watch = await backend.watch(type.kind, within, position(request.resume_after))
        # After the watch was opened: what has replaced that history by now ends the watch.
        await check_known(backend, type.kind, position(request.known))

        behind: list[StreamItem] = []
        here = Position("", "", 0)

        async def shown() -> StreamItem:
            nonlocal here
            if behind:
                return behind.pop()
            item = await watch.next()
            if isinstance(item, EndOfSnapshot | Bookmark):
                here = item.position
            item, *behind[:] = access.shown_of(item, here)
            return item

        # Who sees everything and asks for no interval has no coroutine in between: every event would pay for it.
        upcoming = shown if access.restricted else watch.next
        if interval:
            upcoming = SpacedBookmarks(upcoming, interval).next
        try:
            while True:
                item = await upcoming()
                await stream.send_message(_of_version(item, version))
                if request.snapshot_only and isinstance(item, EndOfSnapshot):
                    break
        finally:
            watch.close()
    except STORE_ERRORS as error:
        raise refusal(error) from error


def _of_version(item: StreamItem, version: str) -> StreamItem:
    """Leave out what is stored as another version of the kind; who holds an older version hears of a deletion.

    The same objects where nothing is to be left out, which is the usual case.
    """
    if isinstance(item, SnapshotChunk):
        if {resource.id.type.group_version for resource in item.resources} != {version}:  # type: ignore[union-attr]  # likewise
            return SnapshotChunk([resource for resource in item.resources if _version(resource) == version])
    elif isinstance(item, Changes):
        for change in item.changes:
            if change.resource.id.type.group_version != version:  # type: ignore[union-attr]  # likewise
                return Changes([_gone(each, version) for each in item.changes])
    return item


def _version(resource: pb.Resource) -> str:
    return resource.id.type.group_version  # type: ignore[union-attr]  # stored ids are whole


def _gone(change: Change, version: str) -> Change:
    """A change into another version is, for watchers of this one, a deletion (of what they may never have had).

    What is deleted is said without data: the other version's is not of the class that they expect.
    """
    resource = change.resource
    if _version(resource) == version:
        return change
    assert resource.id is not None
    assert resource.id.type is not None
    type = pb.Type(group=resource.id.type.group, group_version=version, kind=resource.id.type.kind)
    id = pb.Id(uid=resource.id.uid, name=resource.id.name, type=type, tenancy=resource.id.tenancy)
    bare = pb.Resource(
        id=id,
        owner=resource.owner,
        version=resource.version,
        generation=resource.generation,
        metadata=resource.metadata,
        status=resource.status,
    )
    return change._replace(resource=bare, deleted=True)
