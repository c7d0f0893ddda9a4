"""A channel whose streams are read at intervals, tested in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from grpclib import GRPCError
from grpclib.const import Status

from headway.builtin import PacedChannel
from headway.resource import Bookmark, Changes, EndOfSnapshot, SnapshotChunk, StreamItem, pb
from headway.service import WATCH_LIST
from headway.storage import MemoryBackend, Put
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import CHILD, NOTE, PLANET, a_note, a_type, an_id, id_of, registry, text_of
from tests.helpers.resources import STORE, bookmark, end
from tests.helpers.scripted_channel import Line, Pause, ScriptedChannel

SECONDS = 0.5
Received = list[tuple[float, StreamItem]]


@pytest.fixture
def plain() -> Calls:
    return Calls(MemoryBackend(), registry())


@pytest.fixture
def paced(plain: Calls) -> Calls:
    """Return the same service, through the channel under test."""
    return Calls(plain.backend, registry(), channel=PacedChannel(plain.channel, SECONDS))


async def receive(items: AsyncIterator[StreamItem], received: Received) -> None:
    async for item in items:
        received.append((round(trio.current_time(), 3), item))


def texts(item: StreamItem) -> list[str]:
    assert isinstance(item, Changes)
    return [text_of(change.resource) for change in item.changes]


async def test_calls_are_not_delayed(plain: Calls, paced: Calls, autojump_clock: trio.testing.MockClock) -> None:
    """Only streams are paced. The inner channel's guarantees about writes still hold."""
    for number in range(5):
        await paced.write(a_note("one", str(number)))
    await refused(paced.read(an_id("none")), Status.NOT_FOUND, "Note none not found")
    assert autojump_clock.current_time() == 0
    assert paced.channel.knows_outcomes is plain.channel.knows_outcomes is True


async def test_changes_within_an_interval_are_delivered_together(
    plain: Calls, paced: Calls, autojump_clock: trio.testing.MockClock
) -> None:
    """Each change is delivered, in order and unmerged. The first one after an idle interval is not delayed."""
    received: Received = []
    async with paced.watch(a_type()) as items, trio.open_nursery() as nursery:
        nursery.start_soon(receive, items, received)
        await trio.sleep(10)
        for number in range(12):
            await plain.write(a_note("one", str(number)))
            await trio.sleep(0.12)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert [(when, texts(item)) for when, item in received[1:]] == [
        (10, ["0"]),
        (10.5, ["1", "2", "3", "4"]),
        (11, ["5", "6", "7", "8"]),
        (11.5, ["9", "10", "11"]),
    ]
    assert autojump_clock.current_time() > 15


async def test_bookmark_paces_a_stream_like_a_change(
    plain: Calls, paced: Calls, autojump_clock: trio.testing.MockClock
) -> None:
    """The channel exists for bookmarks: many commits of other kinds cost the stream one bookmark."""
    received: Received = []
    async with paced.watch(a_type()) as items, trio.open_nursery() as nursery:
        nursery.start_soon(receive, items, received)
        await trio.sleep(1)
        for _ in range(100):
            await plain.write(a_note(type=PLANET))
            await trio.sleep(0.01)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    bookmarks = [(when, item.position.revision) for when, item in received if isinstance(item, Bookmark)]
    assert (bookmarks[0], bookmarks[-1][1], len(bookmarks)) == ((1, 1), 100, 3)
    assert autojump_clock.current_time() > 6


async def test_snapshot_is_not_delayed(plain: Calls, paced: Calls, autojump_clock: trio.testing.MockClock) -> None:
    """This holds however many pieces it has, and for the items directly after it."""
    puts = []
    for number in range(2500):
        resource = a_note(f"n{number}", partition="default", namespace="default", uid=f"n{number}")
        puts.append(Put(NOTE.kind, ("default", "default", f"n{number}"), resource, ""))
    await plain.backend.commit(puts)
    async with paced.watch(a_type()) as items:
        said: list[StreamItem] = [await anext(items) for _ in range(4)]
        await plain.write(a_note("one"))
        said.append(await anext(items))
    assert [type(item) for item in said] == [SnapshotChunk, SnapshotChunk, SnapshotChunk, EndOfSnapshot, Changes]
    assert autojump_clock.current_time() == 0


async def test_each_stream_has_its_own_pace(plain: Calls, paced: Calls, autojump_clock: trio.testing.MockClock) -> None:
    """A stream that has just been read, or is not read at all, delays no other stream."""
    async with (
        paced.watch(a_type(NOTE)) as notes,
        paced.watch(a_type(CHILD)) as children,
        paced.watch(a_type(PLANET)) as unread,
    ):
        for items in (notes, children, unread):
            assert isinstance(await anext(items), EndOfSnapshot)
        await plain.write(a_note("one", "a"))
        assert texts(await anext(notes)) == ["a"]
        await plain.write(a_note("two", "b", CHILD))
        assert texts(await anext(children)) == ["b"]
        assert autojump_clock.current_time() == 0
        await plain.write(a_note("one", "c"))
        assert texts(await anext(notes)) == ["c"]
        assert autojump_clock.current_time() == SECONDS


async def test_canceled_reader_loses_nothing(
    plain: Calls, paced: Calls, autojump_clock: trio.testing.MockClock
) -> None:
    """The delay comes before the read, so the item is still available, and the stream continues."""
    async with paced.watch(a_type()) as items:
        await anext(items)
        await plain.write(a_note("one", "a"))
        await anext(items)
        await plain.write(a_note("one", "b"))
        with trio.move_on_after(SECONDS / 2) as scope:
            await anext(items)
        assert scope.cancelled_caught
        assert texts(await anext(items)) == ["b"]
        assert autojump_clock.current_time() == SECONDS


async def test_stream_is_closed_when_its_block_ends(autojump_clock: trio.testing.MockClock) -> None:
    """It is closed at once, by leaving the block and by a cancellation."""
    script: list[Line] = [end(1), bookmark(2), bookmark(3)]
    inner = ScriptedChannel([list(script), list(script)])
    channel = PacedChannel(inner, 60.0)
    request = pb.WatchListRequest(type=a_type())
    async with channel.stream(WATCH_LIST, request) as items:
        assert inner.open == 1
        assert await anext(items) == end(1)
    assert inner.open == 0
    with trio.move_on_after(1):
        async with channel.stream(WATCH_LIST, request) as items:
            async for _ in items:
                pass
    assert inner.open == 0
    assert autojump_clock.current_time() == 1


async def test_end_of_the_inner_stream_ends_the_paced_one(autojump_clock: trio.testing.MockClock) -> None:
    """A rejection, a later error and a normal end all pass unchanged, after the items before them."""
    gone = GRPCError(Status.OUT_OF_RANGE, "too far behind")
    scripts: list[list[Line]] = [[GRPCError(Status.PERMISSION_DENIED, "not you")], [bookmark(2), Pause(0.1), gone], []]
    channel = PacedChannel(ScriptedChannel(scripts), SECONDS)
    request = pb.WatchListRequest(type=a_type())
    async with channel.stream(WATCH_LIST, request) as items:
        await refused(anext(items), Status.PERMISSION_DENIED, "not you")
    async with channel.stream(WATCH_LIST, request) as items:
        said = await anext(items)
        assert isinstance(said, Bookmark)
        assert said.position.store_id == STORE
        await refused(anext(items), Status.OUT_OF_RANGE, "too far behind")
        assert autojump_clock.current_time() == pytest.approx(SECONDS + 0.1)
    async with channel.stream(WATCH_LIST, request) as items:
        assert [item async for item in items] == []


async def test_unknown_method_fails_when_the_stream_is_opened(paced: Calls) -> None:
    """The inner channel does the same."""
    with pytest.raises(GRPCError) as caught:
        async with paced.channel.stream("/no.Such/Method", pb.WatchListRequest()):
            pass
    assert caught.value.status is Status.UNIMPLEMENTED
    assert id_of((await paced.write(a_note())).resource).name == "one"
