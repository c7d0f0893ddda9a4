"""The rate of a watch's bookmarks, measured in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Position,
    Resource,
    ResourceId,
    StreamItem,
    TypeName,
    pb,
)
from headway.service import Decision, SpacedBookmarks
from headway.storage import Backend, MemoryBackend
from tests.helpers.calls import PLACES, Calls, refused
from tests.helpers.declared import PLANET, a_note, a_type, registry
from tests.helpers.steps import Steps
from tests.service.conftest import reached


class Log:
    """The items of a watch, each with the time at which it arrived."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock
        self.items: list[tuple[float, StreamItem]] = []

    async def follow(self, items: AsyncIterator[StreamItem]) -> None:
        async for item in items:
            self.items.append((round(self._clock.current_time(), 3), item))

    def said(self) -> list[tuple[float, str, int]]:
        """Return (time, kind, position) of each item after the snapshot."""
        return [
            (when, type(item).__name__, item.position.revision if isinstance(item, Bookmark) else item.changes[-1][0])
            for when, item in self.items
            if isinstance(item, Bookmark | Changes)
        ]


@pytest.mark.parametrize("interval", [0, 1000])
async def test_bookmarks_come_at_most_once_per_interval(autojump_clock: trio.testing.MockClock, interval: int) -> None:
    """The first bookmark comes at once. Later ones come when they are due, with the latest position.

    Changes are never delayed.
    """
    calls = Calls(MemoryBackend(), registry())
    log = Log(autojump_clock)
    async with calls.watch(a_type(), bookmark_interval_ms=interval) as items, trio.open_nursery() as nursery:
        nursery.start_soon(log.follow, items)
        await trio.sleep(10)
        for pause in (0, 0.25, 0.25, 1.0, 1.125):
            await trio.sleep(pause)
            await calls.write(a_note(type=PLANET))
        await trio.sleep(0.125)
        await calls.write(a_note())
        await trio.sleep(0.25)
        await calls.write(a_note(type=PLANET))
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    at_once = [
        (10, "Bookmark", 1),
        (10.25, "Bookmark", 2),
        (10.5, "Bookmark", 3),
        (11.5, "Bookmark", 4),
        (12.625, "Bookmark", 5),
        (12.75, "Changes", 6),
        (13, "Bookmark", 7),
    ]
    spaced = [
        (10, "Bookmark", 1),
        (11, "Bookmark", 3),
        (12, "Bookmark", 4),
        (12.75, "Changes", 6),
        (13, "Bookmark", 7),
    ]
    assert log.said() == (spaced if interval else at_once)


@pytest.mark.parametrize(("bookmarks", "interval", "most"), [(False, 0, 0), (False, 1000, 0), (True, 1000, 6)])
async def test_unrelated_commits_do_not_wake_a_watcher(
    autojump_clock: trio.testing.MockClock, bookmarks: bool, interval: int, most: int
) -> None:
    """A watcher with bookmarks is woken for the first commit after each bookmark, and when the next one is due."""
    calls, log, steps = Calls(MemoryBackend(), registry()), Log(autojump_clock), Steps()
    red, blue = ({"color": color} for color in ("red", "blue"))
    rest: dict[str, Any] = {"bookmarks": bookmarks, "bookmark_interval_ms": interval, "metadata_filter": "color=red"}
    async with calls.watch(a_type(), **rest) as items, trio.open_nursery() as nursery:
        nursery.start_soon(log.follow, items, name="watcher")
        await trio.sleep(1)
        trio.lowlevel.add_instrument(steps)
        for number in range(100):
            await calls.write(a_note(f"note-{number}", metadata=blue))
            await calls.write(a_note(f"planet-{number}", type=PLANET, metadata=red))
            await trio.sleep(0.025)
        trio.lowlevel.remove_instrument(steps)
        assert steps.count["watcher"] <= most
        assert len([each for _, each in log.items if isinstance(each, Bookmark)]) == (3 if bookmarks else 0)
        # What enters and leaves the part is delivered.
        await calls.write(a_note("note-0", metadata=red))
        await calls.write(a_note("note-0", metadata=blue))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    changes = [change for _, item in log.items if isinstance(item, Changes) for change in item.changes]
    assert [(change.resource.metadata["color"], change.deleted) for change in changes] == [
        ("red", False),
        ("red", True),
    ]


async def test_stream_without_progress_sends_no_bookmarks(autojump_clock: trio.testing.MockClock) -> None:
    """The interval is not a heartbeat."""
    calls = Calls(MemoryBackend(), registry())
    log = Log(autojump_clock)
    async with calls.watch(a_type(), bookmark_interval_ms=1) as items, trio.open_nursery() as nursery:
        nursery.start_soon(log.follow, items)
        await trio.sleep(3600)
        assert [type(item) for _, item in log.items] == [EndOfSnapshot]
        nursery.cancel_scope.cancel()


async def test_bookmark_of_a_resumed_stream_is_immediate(autojump_clock: trio.testing.MockClock) -> None:
    """The changes after the bookmark are immediate, too."""
    calls = Calls(MemoryBackend(), registry())
    seen = calls.backend.position
    await calls.write(a_note())
    await calls.write(a_note(type=PLANET))
    async with calls.watch(a_type(), resume_after=seen.message(), bookmark_interval_ms=1000) as items:
        begun = autojump_clock.current_time()
        assert await anext(items) == Bookmark(seen, resumed=True)
        assert isinstance(await anext(items), Changes)
        assert await anext(items) == Bookmark(calls.backend.position)
        assert autojump_clock.current_time() == begun
        await calls.write(a_note(type=PLANET))
        assert await anext(items) == Bookmark(calls.backend.position)
        assert autojump_clock.current_time() == begun + 1


async def test_bookmark_of_another_session_is_immediate(autojump_clock: trio.testing.MockClock) -> None:
    """Later items belong to the new session, so a later bookmark cannot replace the one that announces it."""
    first, second = Position("store", "first", 0), Position("store", "second", 0)
    said: list[StreamItem] = [
        EndOfSnapshot(first),
        *(Bookmark(at._replace(revision=revision)) for revision, at in enumerate([first, first, second], 1)),
        Changes([Change(4, pb.Resource(), False, False)]),
    ]
    coming = iter(said)

    async def upcoming() -> StreamItem:
        await trio.lowlevel.checkpoint()
        return next(coming)

    spaced = SpacedBookmarks(upcoming, 1000.0)
    # The second bookmark of the first session has to wait, and the bookmark of the second session replaces it.
    assert [await spaced.next() for _ in range(4)] == [*said[:2], *said[3:]]
    assert autojump_clock.current_time() == 0


class NothingToSee:
    """An authorizer that hides everything."""

    def may_know(self, type: TypeName) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_read(self, id: ResourceId, resource: Resource[object] | None) -> Decision:  # type: ignore[type-var]  # noqa: ARG002
        return Decision.DENIED

    def may_write(self, id: ResourceId, resource: object) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_delete(self, id: ResourceId) -> bool:  # noqa: ARG002 - likewise
        return True

    def may_take_lease(self, name: str) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:  # noqa: ARG002 - likewise
        return True


async def test_unreadable_changes_send_bookmarks_at_the_usual_rate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A change without any visible part becomes a bookmark, which waits like any other bookmark."""
    calls = Calls(MemoryBackend(), registry(), NothingToSee())
    log = Log(autojump_clock)
    async with calls.watch(a_type(), bookmark_interval_ms=1000) as items, trio.open_nursery() as nursery:
        nursery.start_soon(log.follow, items)
        for _ in range(8):
            await trio.sleep(0.3)
            await calls.write(a_note())
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert log.said() == [(0.3, "Bookmark", 1), (1.3, "Bookmark", 4), (2.3, "Bookmark", 7), (3.3, "Bookmark", 8)]


async def test_bookmark_of_an_unreadable_change_names_the_announced_session() -> None:
    """The store may have begun another session since. The bookmark names the session that was announced."""
    backend = MemoryBackend()
    calls = Calls(backend, registry(), NothingToSee())
    async with calls.watch(a_type()) as items:
        end = await anext(items)
        assert isinstance(end, EndOfSnapshot)
        await calls.write(a_note())
        backend._position = backend.position._replace(session="another")
        assert await anext(items) == Bookmark(end.position._replace(revision=1))


@pytest.mark.parametrize("milliseconds", [3_600_001, 2**32 - 1])
async def test_invalid_interval_is_refused(anywhere: Calls, milliseconds: int) -> None:
    """The error names the bound."""
    async with anywhere.watch(a_type(), bookmark_interval_ms=milliseconds) as items:
        said = f"bookmark_interval_ms {milliseconds} must be from 0 (send each at once) to 3600000 (one an hour)"
        await refused(anext(items), Status.INVALID_ARGUMENT, said)


@pytest.mark.parametrize(("backend", "how"), PLACES, indirect=["backend"])
async def test_interval_applies_in_process_and_over_the_network(
    backend: Backend, mock_clock: trio.testing.MockClock, how: str
) -> None:
    """One bookmark and all changes arrive while the clock stands still.

    The next bookmark arrives after the interval.
    """
    async with reached(how, backend) as calls, calls.watch(a_type(), bookmark_interval_ms=60_000) as items:
        assert isinstance(await anext(items), EndOfSnapshot)
        await calls.write(a_note(type=PLANET))
        assert await anext(items) == Bookmark(calls.backend.position)
        for _ in range(3):
            await calls.write(a_note(type=PLANET))
        await calls.write(a_note())
        assert isinstance(await anext(items), Changes)
        await calls.write(a_note(type=PLANET))
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def hear() -> None:
                assert await anext(items) == Bookmark(calls.backend.position)
                nursery.cancel_scope.cancel()

            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(60)


async def test_bookmarks_that_are_held_in_turn_share_a_cancel_scope(autojump_clock: trio.testing.MockClock) -> None:
    """A watcher of a quiet part of a busy store sees a bookmark for each commit, and a scope costs more than that."""
    scopes: list[object] = []

    async def upcoming() -> StreamItem:
        scope = trio.lowlevel.current_task()._cancel_status
        if scope not in scopes:
            scopes.append(scope)
        await trio.sleep(0.01)
        return Bookmark(Position("store", "session", int(trio.current_time() * 100)))

    spaced = SpacedBookmarks(upcoming, 1.0)
    await spaced.next()  # announces the session, and does not count
    first, last = await spaced.next(), await spaced.next()
    assert isinstance(first, Bookmark)
    assert isinstance(last, Bookmark)
    assert last.position.revision - first.position.revision > 50
    # The first bookmarks are read in the scope of the test, and all that follow in another one.
    assert len(scopes) == 2
