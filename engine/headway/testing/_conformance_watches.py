"""Checks of watches: snapshot, tail, bookmarks, `more`, cancellation (promises 5 and 7)."""

from __future__ import annotations

import trio

from headway.resource import Bookmark, Changes, EndOfSnapshot, SnapshotChunk, copy_message
from headway.storage import Backend, Within
from headway.testing._conformance_tools import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    Reader,
    fill,
    held,
    must,
    name_of,
    put,
    putting,
    reading,
    remove,
    stored,
    text_of,
    thing,
    told,
    uid_of,
)
from headway.testing._conformance_truth import Truth


async def a_watch_of_nothing_says_so_at_once(backend: Backend) -> None:
    """Where nothing is stored, the first item is the end of the snapshot, at the store's position."""
    here = backend.position
    watch = await backend.watch(KIND, EVERYTHING)
    must(await watch.next() == EndOfSnapshot(here), "a watch of nothing began otherwise than with its snapshot's end")


async def a_watch_says_what_is_there_and_that_this_was_all(backend: Backend) -> None:
    """A snapshot, whatever its size, comes before its end, which stands at the revision it was read at."""
    await fill(backend, 2500)
    here = await put(backend, thing("one more"))
    found, _ = await backend.list(KIND, EVERYTHING)
    reader = await reading(backend)
    at = await reader.until_snapshot()
    must(reader.items > 2, "a large snapshot came in one piece")
    must(reader.held == held(found), "a snapshot is not what a list finds")
    must(at == here, "a snapshot stands elsewhere than the store")


async def every_write_and_deletion_follows_once_in_order(backend: Backend) -> None:
    """After the snapshot each commit is said once, a deletion with the resource as it last was."""
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
    must(told(reader.changes) == wanted, "not exactly the commits were said, in their order")
    must([text_of(each.resource) for each in reader.changes] == ["first", "second", "", "second"], "wrong contents")
    must(reader.changes[-1].resource.version == str(second.revision), "a deletion has not the last version it deleted")


async def what_a_watch_has_said_is_read(backend: Backend) -> None:
    """Right after a change is heard, a read finds it or something newer."""
    reader = await reading(backend)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write_and_delete, backend, 15)
        while len(reader.changes) < 30:
            before = len(reader.changes)
            await reader.next()
            for change in reader.changes[before:]:
                found = await stored(backend, change.resource)
                if change.deleted:
                    must(found is None, "what a watch said to be deleted was read")
                elif found is not None:
                    must(int(found.version) >= change.revision, "a read was older than what a watch had said")


async def _write_and_delete(backend: Backend, count: int) -> None:
    for index in range(count):
        at = await put(backend, resource := thing(f"n{index}"))
        await remove(backend, resource, str(at.revision))


async def a_commit_over_two_kinds_gives_each_watcher_its_part(backend: Backend) -> None:
    """Each kind's watcher hears what the commit did in its kind, whole, at the one revision."""
    readers = {kind: await reading(backend, kind=kind) for kind in (KIND, OTHER_KIND)}
    things = [thing(name, kind=kind) for name in ("a", "b") for kind in (KIND, OTHER_KIND)]
    at = await backend.commit([putting(resource) for resource in (*things, thing("c"))])
    wanted = {KIND: ["a", "b", "c"], OTHER_KIND: ["a", "b"]}
    for kind, reader in readers.items():
        await reader.until(at.revision)
        must(sorted(name_of(each.resource) for each in reader.changes) == wanted[kind], "not each watcher its part")
        flags = [each.more for each in reader.changes]
        must(flags == [True] * (len(flags) - 1) + [False], f"a commit's part in {kind} is not marked as one whole")


async def more_is_true_of_what_a_filter_leaves(backend: Backend) -> None:
    """Under a filter too the last change of each commit, and no other, says that no more follows."""
    reader = await reading(backend, Within(name_prefix="in"))
    await reader.until_snapshot()
    await backend.commit([putting(thing(name)) for name in ("in1", "out1", "in2", "out2")])
    await backend.commit([putting(thing(name)) for name in ("out3", "in3")])
    at = await backend.commit([putting(thing(name)) for name in ("in4", "out4", "out5")])
    await reader.until(at.revision)
    must([name for _, name, _ in told(reader.changes)] == ["in1", "in2", "in3", "in4"], "the filter let others through")
    must([each.more for each in reader.changes] == [True, False, False, False], "`more` is not true under a filter")


async def a_commit_elsewhere_becomes_a_bookmark(backend: Backend) -> None:
    """Where nothing of its own happened, a watch says how far it stands: other kinds, other names, fences."""
    readers = [await reading(backend), await reading(backend, Within(partition="p"))]
    for reader in readers:
        await reader.until_snapshot()
    at = [await put(backend, thing("a", kind=OTHER_KIND)), (await backend.raise_fence("c", "m", 1, 0)).position]
    for reader in readers:
        # One that hears of its store's commits from elsewhere may say each, or the last alone.
        await reader.until(at[-1].revision)
        must(reader.changes == [], "a change of another kind was said")
        must(reader.bookmarks[-1].position == at[-1], "a bookmark is not at the last commit")
        must(all(each.position in at for each in reader.bookmarks), "a bookmark is at no commit")
    position = await put(backend, thing("a"))
    await readers[1].until(position.revision)
    must(
        readers[1].changes == [] and readers[1].bookmarks[-1].position == position, "no bookmark for a filtered commit"
    )


async def bookmarks_are_true(backend: Backend) -> None:
    """While others write, a watch never says that it is further than what it has said."""
    async with trio.open_nursery() as nursery:
        reader = await reading(backend, Within(namespace="mine"))
        for index in range(4):
            nursery.start_soon(_write_both, backend, index)
        while len(reader.changes) < 60:
            # The reader refuses a change at or below a bookmark that it has heard.
            await reader.next()
    await reader.until(backend.position.revision)
    must(len(reader.changes) == 60, "a watch said more changes than there were")
    must(backend.position.revision >= (reader.frontier or 0), "a bookmark stood above the store")


async def _write_both(backend: Backend, writer: int) -> None:
    for index in range(15):
        await put(backend, thing(f"n{writer}-{index}", namespace="mine"))
        await put(backend, thing(f"n{writer}-{index}", namespace="not-mine"))
        await put(backend, thing(f"n{writer}-{index}", kind=OTHER_KIND))


async def all_watchers_hear_the_same(backend: Backend) -> None:
    """Two watches of the same begin differently and say the same commits."""
    readers = [await reading(backend) for _ in range(2)]
    truth, begun = Truth(), backend.position
    await truth.write(backend, "w")
    for reader in readers:
        await reader.until(backend.position.revision)
        must(told(reader.changes) == truth.after(begun), "a watcher missed a commit or heard it twice")


# Turns of the event loop after which a call is cancelled, each several times: how far a call comes in them is chance.
_TURNS = [*range(8)] * 3


async def a_cancelled_next_has_taken_nothing(backend: Backend) -> None:
    """Cancelled at any moment, while an item is there or while none is, a call returns it or leaves it to the next."""
    await fill(backend, 2500)
    reader = await reading(backend)
    for turns in _TURNS:
        await _next_cancelled_after(reader, turns)
    await reader.until_snapshot()
    must(len(reader.held) == 2500, "a cancelled call took a part of the snapshot")
    await reader.until(backend.position.revision)
    wanted = [f"late{number}" for number in range(len(_TURNS))]
    for turns, name in zip(_TURNS, wanted, strict=True):
        await _next_cancelled_after(reader, 20)
        at = await put(backend, thing(name))
        await _next_cancelled_after(reader, turns)
    await reader.until(at.revision)
    must([name for _, name, _ in told(reader.changes)] == wanted, "a cancelled call took a change")


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


async def a_waiting_watch_hears_what_comes(backend: Backend) -> None:
    """A watch that waits is woken by a commit of its kind and by one of another."""
    watch = await backend.watch(KIND, EVERYTHING)
    await watch.next()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(put, backend, thing("a"))
        item = await watch.next()
        must(isinstance(item, Changes) and told(item.changes)[0][1] == "a", "a waiting watch heard something else")
        nursery.start_soon(put, backend, thing("a", kind=OTHER_KIND))
        must(isinstance(await watch.next(), Bookmark), "a waiting watch was not told of a commit elsewhere")


async def what_was_handed_out_is_not_written_to(backend: Backend) -> None:
    """What a watch, a read or a list has handed out stays as it was when the resource changes or goes."""
    first = await put(backend, resource := thing("a", "first"))
    watch = await backend.watch(KIND, EVERYTHING)
    chunk = await watch.next()
    shown = [await stored(backend, resource), *(await backend.list(KIND, EVERYTHING))[0]]
    shown += chunk.resources if isinstance(chunk, SnapshotChunk) else []
    before = [copy_message(each) for each in shown if each is not None]
    second = await put(backend, thing("a", "second", uid=uid_of(resource)), str(first.revision))
    await remove(backend, resource, str(second.revision))
    must(len(before) == 3 and shown == before, "what had been handed out was changed afterwards")


async def a_watch_may_be_closed_twice(backend: Backend) -> None:
    """Closing is idempotent, and the store goes on for the others."""
    watch, reader = await backend.watch(KIND, EVERYTHING), await reading(backend)
    watch.close()
    watch.close()
    await reader.until((await put(backend, thing("a"))).revision)
    must(len(reader.changes) == 1, "a closed watch closed another one")


CHECKS = [
    a_watch_of_nothing_says_so_at_once,
    a_watch_says_what_is_there_and_that_this_was_all,
    every_write_and_deletion_follows_once_in_order,
    what_a_watch_has_said_is_read,
    a_commit_over_two_kinds_gives_each_watcher_its_part,
    more_is_true_of_what_a_filter_leaves,
    a_commit_elsewhere_becomes_a_bookmark,
    bookmarks_are_true,
    all_watchers_hear_the_same,
    a_cancelled_next_has_taken_nothing,
    a_waiting_watch_hears_what_comes,
    what_was_handed_out_is_not_written_to,
    a_watch_may_be_closed_twice,
]
