"""WatchList: a snapshot, its end, and then every change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.resource import (
    Bookmark,
    EndOfSnapshot,
    Position,
    Registry,
    StreamItem,
    pb,
    position,
)
from headway.service._access import Access
from headway.service._admission import admit_within, resolve
from headway.service._bookmarks import SpacedBookmarks, bookmark_interval
from headway.service._bounds import check_position
from headway.service._known import check_known, check_versions
from headway.service._refusals import STORE_ERRORS, invalid, refusal
from headway.service._shown import is_of_version, told_of
from headway.service._versions import Versions
from headway.storage import Backend


async def watch_list(backend: Backend, registry: Registry, access: Access, versions: Versions, stream: Any) -> None:
    """Serve WatchList as a grpclib handler. It sends `StreamItem`s; a stream that serializes turns them into
    WatchEvents.

    It sends outside any cancel scope or nursery of its own, so that an in-process channel may drive it.
    """
    request: pb.WatchListRequest = await stream.recv_message()
    type = resolve(registry, access, request.type, "type")
    within = admit_within(type, request.tenancy, request.name_prefix, absent_is_any=True)
    access.check_list(type.name, within)
    interval = bookmark_interval(request.bookmark_interval_ms)
    check_position(request.resume_after, "resume_after")
    check_position(request.known, "known")
    if request.snapshot_only and request.resume_after is not None:
        raise invalid("snapshot_only must be false with resume_after: a resumed watch has no snapshot")
    # A client that does not know bookmarks would take each for an event without content.
    bookmarks = request.bookmarks or request.resume_after is not None
    version, view, contained = type.name.version, versions.view(type), versions.contained(type)
    resume_after = position(request.resume_after)
    try:
        check_versions(type.name, contained, resume_after)
        watch = await backend.watch(type.kind, within, resume_after)
        # Check after opening the watch: if the history has been replaced by now, that also ends the watch.
        await check_known(backend, type.kind, position(request.known))

        behind: list[StreamItem] = []
        here = Position("", "", 0)

        def told(item: StreamItem) -> list[StreamItem]:
            nonlocal here
            if isinstance(item, EndOfSnapshot | Bookmark):
                here = item.position
                if contained:
                    here = here._replace(versions=contained)
                    item = replace(item, position=here)
            items = told_of(item, view, access.shows, here)
            return items if bookmarks else [each for each in items if not isinstance(each, Bookmark)]

        async def next_told() -> StreamItem:
            while not behind:
                behind[:] = reversed(told(await watch.next()))
            return behind.pop()

        # A caller who sees everything and asks for no interval reads the watch directly: another coroutine would slow
        # down every event.
        directly = not access.restricted and not interval
        upcoming = watch.next if directly else next_told
        if interval:
            upcoming = SpacedBookmarks(next_told, interval).next
        snapshot_only, send_message = request.snapshot_only, stream.send_message
        try:
            while True:
                item = await upcoming()
                if not directly or is_of_version(item, version):
                    await send_message(item)
                else:
                    for each in told(item):
                        await send_message(each)
                if snapshot_only and isinstance(item, EndOfSnapshot):
                    break
        finally:
            watch.close()
    except STORE_ERRORS as error:
        raise refusal(error) from error
