"""WatchList: a snapshot, its end, and then every change in order."""

from __future__ import annotations

import pytest
import trio
from grpclib.const import Status

from headway.resource import (
    FINALIZERS,
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
)
from tests.helpers.calls import Calls, at, refused, take
from tests.helpers.declared import (
    NOTE,
    NOTE_V2,
    PLANET,
    a_note,
    a_status,
    a_type,
    an_id,
    id_of,
)
from tests.service.test_list import WRONG
from tests.versions.test_shown import heard


async def snapshot(calls: Calls, type: pb.Type, tenancy: pb.Tenancy | None = None, prefix: str = "") -> list[str]:
    """Return the names in the snapshot of a new watch."""
    names: list[str] = []
    async with calls.watch(type, tenancy, prefix) as items:
        async for item in items:
            if isinstance(item, EndOfSnapshot):
                break
            assert isinstance(item, SnapshotChunk)
            names += [id_of(each).name for each in item.resources]
    return sorted(names)


def changes(items: list[StreamItem]) -> list[Change]:
    found: list[Change] = []
    for item in items:
        assert isinstance(item, Changes)
        found += item.changes
    return found


@pytest.mark.parametrize(("type", "tenancy", "prefix", "said"), WRONG)
async def test_invalid_request_is_refused_with_the_field(
    in_memory: Calls, type: pb.Type | None, tenancy: pb.Tenancy, prefix: str, said: str
) -> None:
    """The refusal comes with the first item, as it does from a server."""
    async with in_memory.watch(type, tenancy, prefix) as items:
        await refused(anext(items), Status.INVALID_ARGUMENT, said)


async def test_stream_has_a_snapshot_its_end_and_every_change(calls: Calls) -> None:
    """Changes come in order and are never merged. A deletion has the resource as it was last stored."""
    first = await calls.stored(a_note("one", metadata={FINALIZERS: "a"}))
    async with calls.watch(a_type()) as items:
        there, end = await take(items, 2)
        assert there == SnapshotChunk([first])
        assert end == EndOfSnapshot(calls.backend.position)
        stored = [await calls.stored(a_note("one", str(number))) for number in range(3)]
        written = await calls.write_status(id_of(first), a_status())
        marked = await calls.delete(an_id("one"))
        bare = await calls.stored(a_note("one", "2", metadata={FINALIZERS: ""}))
        gone = await calls.delete(an_id("one"))
        heard: list[Change] = []
        while len(heard) < 7:
            heard += changes(await take(items, 1))
        expected = [*stored, written.resource, marked.resource, bare, bare]
        assert [change.resource for change in heard] == expected
        assert [change.deleted for change in heard] == [False] * 6 + [True]
        assert [change.revision for change in heard[:6]] == [int(each.version) for each in expected[:6] if each]
        assert heard[6].revision == at(gone.position).revision
        assert not any(change.more for change in heard)


async def test_empty_snapshot_has_exactly_one_end(calls: Calls) -> None:
    await calls.write(a_note(type=PLANET))
    async with calls.watch(a_type()) as items:
        assert await take(items, 1) == [EndOfSnapshot(calls.backend.position)]
        await calls.write(a_note("one"))
        (item,) = await take(items, 1)
        assert isinstance(item, Changes)


async def test_changes_of_other_kinds_advance_a_stream_by_bookmarks_alone(calls: Calls) -> None:
    """The bookmarks show a watcher its frontier although its own type has no changes."""
    async with calls.watch(a_type()) as items:
        await take(items, 1)
        await calls.write(a_note(type=PLANET))
        assert await anext(items) == Bookmark(calls.backend.position)


async def test_snapshot_omits_other_versions_of_the_kind(calls: Calls) -> None:
    """Each watcher gets only resources that it can decode."""
    await calls.write(a_note("one", type=NOTE))
    await calls.write(a_note("two", type=NOTE_V2))
    assert await snapshot(calls, a_type(NOTE)) == ["one"]
    assert await snapshot(calls, a_type(NOTE_V2)) == ["two"]


@pytest.mark.parametrize("resumed", [False, True])
async def test_watch_of_one_version_reports_only_resources_that_it_delivered(anywhere: Calls, resumed: bool) -> None:
    """A resource that leaves the version is deleted, with its last content in that version.

    No other change is reported.
    """
    calls = anywhere
    begun = calls.backend.position
    kept = await calls.stored(a_note("kept", "a", NOTE))
    old = await calls.stored(a_note("one", "a", NOTE, metadata={"color": "red"}))
    at = begun if resumed else None
    if resumed:
        new, back, last = await _through_versions(calls)
    async with (
        calls.watch(a_type(NOTE), resume_after=at and at.message()) as before,
        calls.watch(a_type(NOTE_V2), resume_after=at and at.message()) as after,
    ):
        expected_before = [(kept, False), (old, False)] if resumed else []
        if not resumed:
            await take(before, 2)
            await take(after, 1)
            new, back, last = await _through_versions(calls)
        expected_before += [(old, True), (back, False), (back, True)]
        expected_after = [(new[0], False), (new[1], False), (new[1], True), (last, False), (last, True)]
        changes = await heard(before, calls.revision)
        assert [(each.resource, each.deleted) for each in changes] == expected_before
        assert [each.revision for each in changes[-3:]] == [
            int(new[0].version),
            int(back.version),
            int(last.version),
        ]
        assert not any(each.more for each in changes)
        others = {"other-1", "other-2"}
        changes = await heard(after, calls.revision)
        assert [
            (each.resource, each.deleted) for each in changes if id_of(each.resource).name not in others
        ] == expected_after


async def _through_versions(calls: Calls) -> tuple[list[pb.Resource], pb.Resource, pb.Resource]:
    """Write a resource as v1, as v2 twice, as v1 and as v2, and delete it. Two others are v2 throughout."""
    await calls.write(a_note("other-1", type=NOTE_V2))
    await calls.write(a_note("other-1", "again", type=NOTE_V2))
    new = [await calls.stored(a_note("one", text, NOTE_V2)) for text in "bc"]
    back = await calls.stored(a_note("one", "d", NOTE))
    last = await calls.stored(a_note("one", "e", NOTE_V2))
    await calls.write(a_note("other-2", type=NOTE_V2))
    await calls.delete(an_id("one", NOTE_V2))
    return new, back, last


async def test_bookmarks_reach_only_clients_that_ask_for_them(anywhere: Calls) -> None:
    """Other clients get nothing for changes of other types, of other versions, or outside the watch."""
    calls = anywhere
    async with calls.watch(a_type(), name_prefix="in-", bookmarks=False, bookmark_interval_ms=1) as items:
        assert await anext(items) == EndOfSnapshot(calls.backend.position)
        for _ in range(20):
            await calls.write(a_note(type=PLANET))
            await calls.write(a_note("out-one"))
            await calls.write(a_note("in-two", type=NOTE_V2))
        stored = await calls.stored(a_note("in-one"))
        item = await anext(items)
        assert isinstance(item, Changes)
        assert [change.resource for change in item.changes] == [stored]


async def test_resume_after_requests_bookmarks(anywhere: Calls) -> None:
    """Only a client that knows positions can resume, and the stream must report that it is resumed."""
    calls = anywhere
    seen = calls.backend.position
    async with calls.watch(a_type(), resume_after=seen.message(), bookmarks=False) as items:
        assert await anext(items) == Bookmark(seen, resumed=True)
        await calls.write(a_note(type=PLANET))
        assert await anext(items) == Bookmark(calls.backend.position)


async def test_stream_resumes_after_a_position_without_a_snapshot(calls: Calls) -> None:
    """The first item of the stream reports that it is resumed."""
    await calls.write(a_note("one"))
    seen = calls.backend.position
    two = await calls.stored(a_note("two"))
    await calls.delete(an_id("one"))
    async with calls.watch(a_type(), resume_after=seen.message()) as items:
        assert await anext(items) == Bookmark(seen, resumed=True)
        heard = changes(await take(items, 1))
        assert [(change.deleted, id_of(change.resource).name) for change in heard] == [(False, "two"), (True, "one")]
        assert heard[0].resource == two


@pytest.mark.parametrize(
    ("store_id", "ahead", "status"),
    [("elsewhere", 0, Status.DATA_LOSS), ("", 5, Status.OUT_OF_RANGE)],
)
async def test_unknown_position_is_refused(calls: Calls, store_id: str, ahead: int, status: Status) -> None:
    """Positions of another store are meaningless here, and so are future positions."""
    here = calls.backend.position
    asked = Position(store_id or here.store_id, here.session, here.revision + ahead)
    async with calls.watch(a_type(), resume_after=asked.message()) as items:
        await refused(anext(items), status, f"position {asked.revision}")


@pytest.mark.parametrize("resuming", [True, False])
async def test_stream_begins_only_if_the_callers_position_is_in_the_history(calls: Calls, resuming: bool) -> None:
    """Both kinds of stream are refused if the caller's last position is not of this store's history.

    A position above the store's own is left to the caller, which gets the store's position.
    """
    here = calls.backend.position
    after = here.message() if resuming else None
    for known in (here, here._replace(revision=here.revision + 5)):
        async with calls.watch(a_type(), resume_after=after, known=known.message()) as items:
            assert isinstance(await anext(items), Bookmark if resuming else EndOfSnapshot)
    for lost in (here._replace(store_id="elsewhere"), here._replace(session="lost")):
        async with calls.watch(a_type(), resume_after=after, known=lost.message()) as items:
            await refused(anext(items), Status.DATA_LOSS, f"position {lost.revision}")


async def test_events_arrive_only_when_they_can_be_read(calls: Calls) -> None:
    """The resource of an event is stored when the event arrives."""

    async def write() -> None:
        for number in range(10):
            await calls.write(a_note("one", str(number)))

    async with trio.open_nursery() as nursery, calls.watch(a_type()) as items:
        await take(items, 1)
        nursery.start_soon(write)
        last = 0
        while last < 10:
            for change in changes(await take(items, 1)):
                reply = await calls.read(an_id(), min_revision=change.revision)
                assert reply.resource is not None
                assert int(reply.resource.version) >= change.revision > last
                last = change.revision
