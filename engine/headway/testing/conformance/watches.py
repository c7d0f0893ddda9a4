"""Checks of watches: snapshot, tail, bookmarks, `more`, cancellation (promises 5 and 7)."""

from __future__ import annotations

import trio

from headway.protobuf import copy_message
from headway.resource import Bookmark, Changes, EndOfSnapshot, SnapshotChunk
from headway.storage import Backend, Within
from headway.testing.conformance._reader import Reader, held, reading, summary
from headway.testing.conformance._tools import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    fill,
    must,
    name_of,
    put,
    putting,
    read_back,
    remove,
    text_of,
    thing,
    uid_of,
)
from headway.testing.conformance._truth import Truth


async def a_watch_of_an_empty_store_ends_its_snapshot_at_once(backend: Backend) -> None:
    """In an empty store, the first item of a watch is the end of the snapshot, at the store's position."""
    here = backend.position
    watch = await backend.watch(KIND, EVERYTHING)
    must(
        await watch.next() == EndOfSnapshot(here),
        "a watch of an empty store did not begin with the end of its snapshot",
    )


async def a_snapshot_of_any_size_has_an_end(backend: Backend) -> None:
    """A snapshot of any size is followed by its end, with the revision of the read."""
    await fill(backend, 2500)
    here = await put(backend, thing("one more"))
    found, _ = await backend.list(KIND, EVERYTHING)
    reader = await reading(backend)
    at = await reader.until_snapshot()
    must(reader.items > 2, "a large snapshot came in one piece")
    must(reader.held == held(found), "a snapshot differs from a list")
    must(at == here, "a snapshot's position is not the store's")


async def every_write_and_deletion_is_delivered_once_in_order(backend: Backend) -> None:
    """After the snapshot each commit is delivered once and in order, a deletion with the resource's last state."""
    reader = await reading(backend)
    await reader.until_snapshot()
    first = await put(backend, resource := thing("a", "first"))
    second = await put(backend, thing("a", "second", uid=uid_of(resource)), str(first.revision))
    third = await put(backend, thing("b"))
    gone = await remove(backend, resource, str(second.revision))
    await reader.until(gone.revision)
    wanted = [
        (first.revision, "a", False),
        (second.revision, "a", False),
        (third.revision, "b", False),
        (gone.revision, "a", True),
    ]
    must(summary(reader.changes) == wanted, "the changes are not exactly the commits in their order")
    must(
        [text_of(each.resource) for each in reader.changes] == ["first", "second", "", "second"],
        "the changes have wrong contents",
    )
    must(reader.changes[-1].resource.version == str(second.revision), "a deletion does not have the last version")


async def a_delivered_change_is_read(backend: Backend) -> None:
    """After a change was delivered, a read returns it or something newer."""
    reader = await reading(backend)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write_and_delete, backend, 15)
        while len(reader.changes) < 30:
            before = len(reader.changes)
            await reader.next()
            for change in reader.changes[before:]:
                found = await read_back(backend, change.resource)
                if change.deleted:
                    must(found is None, "a read returned a resource whose deletion was already delivered")
                elif found is not None:
                    must(int(found.version) >= change.revision, "a read was older than a change already delivered")


async def _write_and_delete(backend: Backend, count: int) -> None:
    for index in range(count):
        at = await put(backend, resource := thing(f"n{index}"))
        await remove(backend, resource, str(at.revision))


async def a_commit_over_two_kinds_gives_each_watcher_its_part(backend: Backend) -> None:
    """A commit over two kinds gives each kind's watcher all changes of its kind, at the one revision."""
    readers = {kind: await reading(backend, kind=kind) for kind in (KIND, OTHER_KIND)}
    things = [thing(name, kind=kind) for name in ("a", "b") for kind in (KIND, OTHER_KIND)]
    at = await backend.commit([putting(resource) for resource in (*things, thing("c"))])
    wanted = {KIND: ["a", "b", "c"], OTHER_KIND: ["a", "b"]}
    for kind, reader in readers.items():
        await reader.until(at.revision)
        must(
            sorted(name_of(each.resource) for each in reader.changes) == wanted[kind],
            "a watcher did not receive its part of a commit",
        )
        flags = [each.more for each in reader.changes]
        must(flags == [True] * (len(flags) - 1) + [False], f"the part of a commit in {kind} is not marked as one")


async def more_is_right_under_a_filter(backend: Backend) -> None:
    """Under a filter, too, `more` is false for the last change of each commit and for no other."""
    reader = await reading(backend, Within(name_prefix="in"))
    await reader.until_snapshot()
    await backend.commit([putting(thing(name)) for name in ("in1", "out1", "in2", "out2")])
    await backend.commit([putting(thing(name)) for name in ("out3", "in3")])
    at = await backend.commit([putting(thing(name)) for name in ("in4", "out4", "out5")])
    await reader.until(at.revision)
    must(
        [name for _, name, _ in summary(reader.changes)] == ["in1", "in2", "in3", "in4"],
        "the filter let other names pass",
    )
    must([each.more for each in reader.changes] == [True, False, False, False], "`more` is wrong under a filter")


async def a_commit_elsewhere_becomes_a_bookmark(backend: Backend) -> None:
    """A commit outside a watch's kind or filter, including a fence, becomes a bookmark."""
    readers = [await reading(backend), await reading(backend, Within(partition="p"))]
    for reader in readers:
        await reader.until_snapshot()
    at = [await put(backend, thing("a", kind=OTHER_KIND)), (await backend.raise_fence("c", "m", 1, 0)).position]
    for reader in readers:
        # A store that learns of its commits from elsewhere may deliver a bookmark for each, or only for the last.
        await reader.until(at[-1].revision)
        must(reader.changes == [], "a change of another kind was delivered")
        must(reader.bookmarks[-1].position == at[-1], "a bookmark is not at the last commit")
        must(all(each.position in at for each in reader.bookmarks), "a bookmark is not at a commit")
    position = await put(backend, thing("a"))
    await readers[1].until(position.revision)
    must(
        readers[1].changes == [] and readers[1].bookmarks[-1].position == position, "no bookmark for a filtered commit"
    )


async def a_bookmark_is_never_ahead_of_the_changes(backend: Backend) -> None:
    """While others write, a bookmark is never above what the watch has delivered."""
    async with trio.open_nursery() as nursery:
        reader = await reading(backend, Within(namespace="mine"))
        for index in range(4):
            nursery.start_soon(_write_both, backend, index)
        while len(reader.changes) < 60:
            # The reader rejects a change at or below a bookmark that it has received.
            await reader.next()
    await reader.until(backend.position.revision)
    must(len(reader.changes) == 60, "a watch delivered more changes than there were")
    must(backend.position.revision >= (reader.frontier or 0), "a bookmark is above the store's position")


async def _write_both(backend: Backend, writer: int) -> None:
    for index in range(15):
        await put(backend, thing(f"n{writer}-{index}", namespace="mine"))
        await put(backend, thing(f"n{writer}-{index}", namespace="not-mine"))
        await put(backend, thing(f"n{writer}-{index}", kind=OTHER_KIND))


async def all_watchers_receive_the_same(backend: Backend) -> None:
    """Two watches of the same kind deliver the same commits."""
    readers = [await reading(backend) for _ in range(2)]
    truth, begun = Truth(), backend.position
    await truth.write(backend, "w")
    for reader in readers:
        await reader.until(backend.position.revision)
        must(summary(reader.changes) == truth.after(begun), "a watcher missed a commit or received it twice")


# Turns of the event loop before a call is canceled. Each number comes several times, as the progress within them is
# random.
_TURNS = [*range(8)] * 3


async def a_canceled_next_consumes_nothing(backend: Backend) -> None:
    """A call of next() that is canceled at any moment either returns an item or leaves it to the next call."""
    await fill(backend, 2500)
    reader = await reading(backend)
    for turns in _TURNS:
        await _next_cancelled_after(reader, turns)
    await reader.until_snapshot()
    must(len(reader.held) == 2500, "a canceled call took a part of the snapshot")
    await reader.until(backend.position.revision)
    wanted = [f"late{number}" for number in range(len(_TURNS))]
    for turns, name in zip(_TURNS, wanted, strict=True):
        await _next_cancelled_after(reader, 20)
        at = await put(backend, thing(name))
        await _next_cancelled_after(reader, turns)
    await reader.until(at.revision)
    must([name for _, name, _ in summary(reader.changes)] == wanted, "a canceled call took a change")


async def _next_cancelled_after(reader: Reader, turns: int) -> None:
    """Call for an item, and cancel the call after some turns of the event loop."""

    async def call() -> None:
        with scope:
            await reader.next()

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(call)
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        scope.cancel()


async def a_waiting_watch_is_woken_by_a_commit(backend: Backend) -> None:
    """A waiting watch is woken by a commit of its kind and by one of another kind."""
    watch = await backend.watch(KIND, EVERYTHING)
    await watch.next()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(put, backend, thing("a"))
        item = await watch.next()
        must(
            isinstance(item, Changes) and summary(item.changes)[0][1] == "a",
            "a waiting watch did not deliver the change",
        )
        nursery.start_soon(put, backend, thing("a", kind=OTHER_KIND))
        must(
            isinstance(await watch.next(), Bookmark),
            "a waiting watch did not deliver a bookmark for a commit elsewhere",
        )


async def a_returned_resource_is_never_changed(backend: Backend) -> None:
    """A resource returned by a watch, a read or a list stays as it was when the stored one changes or is deleted."""
    first = await put(backend, resource := thing("a", "first"))
    watch = await backend.watch(KIND, EVERYTHING)
    chunk = await watch.next()
    shown = [await read_back(backend, resource), *(await backend.list(KIND, EVERYTHING))[0]]
    shown += chunk.resources if isinstance(chunk, SnapshotChunk) else []
    before = [copy_message(each) for each in shown if each is not None]
    second = await put(backend, thing("a", "second", uid=uid_of(resource)), str(first.revision))
    await remove(backend, resource, str(second.revision))
    must(len(before) == 3 and shown == before, "a returned resource was changed afterwards")


async def a_watch_may_be_closed_twice(backend: Backend) -> None:
    """Closing a watch is idempotent and does not affect others."""
    watch, reader = await backend.watch(KIND, EVERYTHING), await reading(backend)
    watch.close()
    watch.close()
    await reader.until((await put(backend, thing("a"))).revision)
    must(len(reader.changes) == 1, "closing a watch closed another one")
