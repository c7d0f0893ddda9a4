"""WatchList: a snapshot, its end, and then every change, each as far as the caller may read it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from headway.api import Call, stream
from headway.errors import InvalidArgument
from headway.resource import (
    TOMBSTONE,
    Bookmark,
    Changes,
    EndOfSnapshot,
    Position,
    ScopeConfirmed,
    SnapshotChunk,
    StreamItem,
    Within,
    pb,
    position,
)
from headway.service._admission import resolve
from headway.service._bounds import check_selector
from headway.service._context import Context
from headway.service._forms import Form, is_stored_as
from headway.service._list import admit_within
from headway.service._position import check_known, check_position, check_versions
from headway.service._reader import Reader
from headway.service._spaced_bookmarks import SpacedBookmarks, bookmark_interval
from headway.storage import Asked, Backend, SkipsUnrelated, Watch, open_watch

Watched: TypeAlias = StreamItem | ScopeConfirmed
"""What a watch sends. An encoder turns it into WatchEvents."""


@stream
async def watch_list(context: Context, call: Call, request: pb.WatchListRequest) -> AsyncGenerator[Watched, None]:
    """Yield a snapshot of a type, its end, and then every change, each as far as the caller may read it."""
    backend, access = context.backend, context.access
    type = resolve(access, request.type, "type")
    within = admit_within(type, request.tenancy, request.name_prefix, absent_is_any=True)
    access.check_list(type.name, within, "watch")
    within = within._replace(metadata=check_selector(request.metadata_filter))
    interval = bookmark_interval(request.bookmark_interval_ms)
    check_position(request.resume_after, "resume_after")
    check_position(request.known, "known")
    if request.snapshot_only and request.resume_after is not None:
        raise InvalidArgument("snapshot_only must be false with resume_after: a resumed watch has no snapshot")
    # A client that does not know bookmarks would take each for an event without content.
    bookmarks = request.bookmarks or request.resume_after is not None
    version, form = type.name.version, context.forms.of(type)
    contained = access.contained(type.name, form.contained)
    resume_after = position(request.resume_after)
    watch = await _opened(backend, form, within, contained, resume_after)
    # Check after opening the watch: if the history has been replaced by now, that also ends the watch.
    await check_known(backend, type.kind, position(request.known))

    behind: list[StreamItem] = []
    reader = Reader(access, form.view, resumed=resume_after is not None)
    as_listed = context.as_listed if type.kind == TOMBSTONE.kind else None
    here = Position("", "", 0)

    def visible(item: StreamItem) -> list[StreamItem]:
        nonlocal here
        items = [item]
        if isinstance(item, SnapshotChunk | Changes):
            items = reader.items(item, here)
            if as_listed is not None:
                items = [_in_form(each, as_listed) for each in items]
        elif isinstance(item, EndOfSnapshot | Bookmark):
            here = item.position
            if contained:
                here = here._replace(versions=contained)
                items = [replace(item, position=here)]
        return items if bookmarks else [each for each in items if not isinstance(each, Bookmark)]

    shown = partial(form.items, visible)
    skipping = watch if isinstance(watch, SkipsUnrelated) else None
    next_change = watch.next if skipping is None else skipping.next_change
    asked = watch if bookmarks and call.asks and not call.wrapped and isinstance(watch, Asked) else None
    # A caller who asks, or is sent no bookmarks, receives nothing for a commit that changes nothing for it.
    next_item = watch.next if bookmarks and asked is None else next_change

    async def next_visible(upcoming: Callable[[], Awaitable[StreamItem]] = next_item) -> StreamItem:
        while not behind:
            behind[:] = reversed(await shown(await upcoming()))
        return behind.pop()

    def poll_visible() -> StreamItem | None:
        if not behind and skipping is not None and (item := skipping.poll()) is not None:
            behind[:] = reversed(visible(item))
        return behind.pop() if behind else None

    # A caller who sees everything and asks for no interval reads the watch directly: another coroutine would slow
    # down every event.
    directly = not access.restricted and not interval and as_listed is None
    upcoming = next_item if directly else next_visible
    if interval:
        change = partial(next_visible, next_change)
        upcoming = SpacedBookmarks(next_visible, interval, change=change, poll=poll_visible).next
    snapshot_only = request.snapshot_only
    # Of a store that decodes its resources for each reader, a snapshot for the network is held as bytes while its
    # client reads, as lists are. Others share their resources with every watch.
    encode = call.encode if resume_after is None and context.reads is not None else None

    async def next_encoded(encode: Callable[[StreamItem], Awaitable[Any]]) -> tuple[list[Any], bool]:
        """Return the next item as it is sent, and True if it ends the snapshot."""
        async with context.reads or nullcontext():
            item = await upcoming()
            items = [item] if not directly or is_stored_as(item, version) else await shown(item)
            return [await encode(each) for each in items], isinstance(item, EndOfSnapshot)

    if asked is not None:
        call.ask = lambda wanted: None if (found := asked.ask(wanted)) is None else visible(found)[0]
    try:
        if within.metadata:
            yield ScopeConfirmed(request.metadata_filter)
        while encode is not None:
            encoded, ended = await next_encoded(encode)
            for each in encoded:
                yield each
            if ended:
                if snapshot_only:
                    return
                break
        while True:
            item = await upcoming()
            if not directly or is_stored_as(item, version):
                yield item
            else:
                for each in await shown(item):
                    yield each
            if snapshot_only and isinstance(item, EndOfSnapshot):
                break
    finally:
        call.ask = None
        watch.close()


async def _opened(backend: Backend, form: Form, within: Within, contained: str, resume_after: Position | None) -> Watch:
    """Open a watch of a type. Raise HistoryCompacted if it would resume one that contained other resources."""
    # First, because the store refuses a position of another store, whose revision and versions mean nothing here.
    watch = await open_watch(backend, form.type.kind, within, resume_after)
    if resume_after is None:
        return watch
    try:
        check_versions(form.type.name, contained, resume_after)
        return form.resumed(watch, resume_after)
    except BaseException:
        watch.close()
        raise


def _in_form(item: StreamItem, form: Callable[[pb.Resource], pb.Resource]) -> StreamItem:
    if isinstance(item, SnapshotChunk):
        return SnapshotChunk([form(each) for each in item.resources])
    if isinstance(item, Changes):
        return Changes([each._replace(resource=form(each.resource)) for each in item.changes])
    return item
