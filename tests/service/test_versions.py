"""Versions of a kind with converters: the answer of each verb for a resource that is stored in another version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from grpclib.const import Status

from headway.errors import ConversionFailed
from headway.events import ConversionFailed as Reported
from headway.protobuf import copy_message
from headway.resource import (
    FINALIZERS,
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Registry,
    ResourceType,
    SnapshotChunk,
    StreamItem,
    is_marked,
    pb,
)
from headway.rpc import InProcessChannel
from headway.service import ConsulService, ResourceService, Versions
from headway.storage import Backend, MemoryBackend, version_of
from tests.helpers.calls import Calls, refused, take
from tests.helpers.declared import NOTE, a_note, a_status, a_type, an_id, id_of, uid_of
from tests.helpers.versions import (
    ALONE,
    V1,
    V2,
    V3,
    a_team,
    crew,
    data_of,
    down,
    down_again,
    roster,
    up,
    up_again,
    versions,
    without_converters,
)
from tests.service.conftest import reached
from tests.service.test_list import within

EVERYWHERE = within("*", "*")


@pytest.fixture(params=["in process", "network"])
async def teams(request: pytest.FixtureRequest, backend: Backend) -> AsyncIterator[Calls]:
    """Return a service with three versions and converters, over each kind of store and channel."""
    async with reached(request.param, backend, types=versions()) as service:
        yield service
        assert service.unexpected == []


def over(backend: Backend, types: Registry) -> Calls:
    """Return the service of another program over the same store."""
    return Calls(backend, types)


async def stored_as(calls: Calls, name: str = "one") -> str:
    stored, _ = await calls.backend.read(V1.kind, ("default", "default", name))
    assert stored is not None
    return version_of(stored)


async def test_every_resource_can_be_read_in_each_version(teams: Calls) -> None:
    """Read and List convert the resource from any version that it was written in. Only the payload differs."""
    await teams.write(a_team(V1, roster("ada"), "a", metadata={"color": "red"}))
    await teams.write(a_team(V2, crew(("bea", "lead")), "b"))
    await over(teams.backend, without_converters()).write(a_team(V1, roster("cyd"), "c"))
    assert [await stored_as(teams, name) for name in "abc"] == ["v3", "v3", "v1"]
    for type in (V1, V2, V3):
        found = (await teams.list_type(a_type(type), EVERYWHERE)).resources
        names = [(data.names if type is V1 else [each.name for each in data.members]) for data in _all(found, type)]
        assert names == [["ada"], ["bea"], ["cyd"]]
        for each in found:
            assert (await teams.read(an_id(id_of(each).name, type))).resource == each
    (first, *_) = (await teams.list_type(a_type(V1), EVERYWHERE)).resources
    (again, *_) = (await teams.list_type(a_type(V3), EVERYWHERE)).resources
    assert (first.version, first.generation, first.metadata, uid_of(first)) == (
        again.version,
        again.generation,
        {"color": "red"},
        uid_of(again),
    )
    page = await teams.list_type(a_type(V2), EVERYWHERE, page_size=2)
    rest = await teams.list_type(a_type(V2), EVERYWHERE, page_size=2, page_token=page.next_page_token)
    assert [id_of(each).name for each in [*page.resources, *rest.resources]] == ["a", "b", "c"]
    assert {id_of(each).type.group_version for each in [*page.resources, *rest.resources]} == {"v2"}  # type: ignore[union-attr]


def _all(found: list[pb.Resource], type: ResourceType[Any]) -> list[Any]:
    return [data_of(each, type) for each in found]


async def test_owned_resources_are_listed_in_the_storage_version(teams: Calls) -> None:
    """The request names no version. A resource that an older program stored is converted."""
    owner = await teams.stored(a_note("owner"))
    await over(teams.backend, without_converters()).write(a_team(V1, roster("ada"), owner=owner.id))
    (owned,) = (await teams.list_by_owner(owner.id)).resources
    assert [each.name for each in data_of(owned, V3).members] == ["ada"]


async def test_version_without_converter_is_separate(teams: Calls) -> None:
    """Lists leave out a version without a converter, Read refuses it, and a write replaces it."""
    await teams.write(a_team(ALONE, roster("ada")))
    assert (await teams.list_type(a_type(V1), EVERYWHERE)).resources == []
    await refused(teams.read(an_id("one", V1)), Status.INVALID_ARGUMENT, "tests.v9.Team", "declare a converter")
    await teams.write(a_team(V1, roster("bea")))
    assert (await teams.list_type(a_type(ALONE), EVERYWHERE)).resources == []
    assert (await stored_as(teams)) == "v3"


# --- watches ---


async def heard(items: AsyncIterator[StreamItem], revision: int) -> list[Change]:
    """Return the changes of a stream up to a revision."""
    found: list[Change] = []
    told = 0
    while told < revision:
        item = await anext(items)
        if isinstance(item, Changes):
            found += item.changes
            told = found[-1].revision
        elif isinstance(item, Bookmark):
            told = item.position.revision
    return found


async def rewritten(calls: Calls) -> None:
    """Store one resource in its versions by several programs, and delete it."""
    for storage in (V1, V2, V3):
        writer = over(calls.backend, versions(storage))
        await writer.write(a_team(V1, roster("ada", color=f"from {storage.name.version}")))
    await over(calls.backend, without_converters()).write(a_team(V1, roster("ada", color="old program")))
    await calls.delete(an_id("one", V2))


@pytest.mark.parametrize("resumed", [False, True])
async def test_watch_of_each_version_reports_updates_and_one_deletion(teams: Calls, resumed: bool) -> None:
    """A change of the stored version is an update, also for a resumed stream."""
    begun = teams.backend.position._replace(versions="v1,v2,v3")
    if resumed:
        await rewritten(teams)
    for type in (V1, V2, V3):
        async with teams.watch(a_type(type), resume_after=begun.message() if resumed else None) as items:
            if not resumed:
                await take(items, 1)
                await rewritten(teams)
            changes = await heard(items, teams.revision)
        colors = [_color(change.resource, type) for change in changes]
        assert colors == ["from v1", "from v2", "from v3", "old program", "old program"]
        assert [change.deleted for change in changes] == [False] * 4 + [True]
        assert [change.more for change in changes] == [False] * 5
        revisions = [change.revision for change in changes]
        assert revisions == sorted(set(revisions))


def _color(resource: pb.Resource, type: ResourceType[Any]) -> str:
    data = data_of(resource, type)
    return str(data.tint.name if type is V3 else data.color)


async def test_snapshot_of_each_version_is_complete(teams: Calls) -> None:
    await teams.write(a_team(V3, V3.payload(), "a"))
    await over(teams.backend, without_converters()).write(a_team(V1, roster("ada"), "b"))
    await teams.write(a_team(ALONE, roster(), "c"))
    for type in (V1, V2, V3):
        async with teams.watch(a_type(type)) as items:
            found: list[pb.Resource] = []
            while not isinstance(item := await anext(items), EndOfSnapshot):
                assert isinstance(item, SnapshotChunk)
                found += item.resources
        assert sorted((id_of(each).name, version_of(each)) for each in found) == [
            ("a", type.name.version),
            ("b", type.name.version),
        ]


async def test_watch_reports_moves_between_versions_without_a_converter(teams: Calls) -> None:
    """Such a resource is deleted in one version and created in the other."""
    async with teams.watch(a_type(V1)) as items:
        await take(items, 1)
        await teams.write(a_team(V2, crew(("ada", ""))))
        await teams.write(a_team(ALONE, roster("ada")))
        await teams.write(a_team(V3, V3.payload()))
        changes = await heard(items, teams.revision)
    assert [(change.deleted, data_of(change.resource, V1).names) for change in changes] == [
        (False, ["ada"]),
        (True, ["ada"]),
        (False, []),
    ]


async def test_watchers_of_one_version_share_one_conversion() -> None:
    """The resource is converted once and encoded once, whatever the number of watchers is."""
    backend = MemoryBackend()
    calls = Calls(backend, versions())
    async with calls.watch(a_type(V1)) as one, calls.watch(a_type(V1)) as two:
        for items in (one, two):
            await take(items, 1)
        await calls.write(a_team(V3, V3.payload()))
        (first,) = await heard(one, calls.revision)
        (second,) = await heard(two, calls.revision)
    assert first.resource is second.resource


# --- the other verbs ---


async def test_status_and_deletion_do_not_change_the_stored_version(teams: Calls) -> None:
    """Either can be requested in any version, and the answer has that version."""
    old = over(teams.backend, without_converters())
    first = await old.stored(a_team(V1, roster("ada"), metadata={FINALIZERS: "hold"}))
    written = (await teams.write_status(an_id("one", V2, uid=uid_of(first)), a_status())).resource
    assert data_of(written, V2).members[0].name == "ada"
    same = (await teams.write_status(an_id("one", V3, uid=uid_of(first)), a_status())).resource
    assert data_of(same, V3).members[0].name == "ada"
    marked = (await teams.delete(an_id("one", V2))).resource
    assert marked is not None
    assert data_of(marked, V2).members[0].name == "ada"
    assert is_marked(marked.metadata)
    assert await stored_as(teams) == "v1"
    assert (await teams.delete(an_id("one", V3))).resource == (await teams.read(an_id("one", V3))).resource
    bare = await teams.stored(a_team(V2, data_of(marked, V2), metadata={**marked.metadata, FINALIZERS: ""}))
    assert data_of(bare, V2).members[0].name == "ada"
    await teams.delete(an_id("one", V2))
    assert (await teams.list_type(a_type(V1), EVERYWHERE)).resources == []


async def test_marked_resource_is_frozen_in_every_version(teams: Calls) -> None:
    await teams.write(a_team(V3, V3.payload(room="B12"), metadata={FINALIZERS: "hold"}))
    marked = (await teams.delete(an_id("one", V1))).resource
    assert marked is not None
    await refused(
        teams.write(a_team(V1, roster("ada"), metadata={**marked.metadata, FINALIZERS: ""})),
        Status.INVALID_ARGUMENT,
        "changes data",
    )
    await teams.write(a_team(V1, roster(), metadata={**marked.metadata, FINALIZERS: ""}))
    assert data_of((await teams.read(an_id("one", V3))).resource, V3).room == "B12"


async def test_client_made_for_consul_gets_a_plain_stream_of_its_version(teams: Calls) -> None:
    """The stream has upserts with the whole resource in the requested version, then a deletion, and no bookmarks."""
    consul = teams.as_consul()
    async with consul.watch(a_type(V2), bookmarks=False) as items:
        assert isinstance(await anext(items), EndOfSnapshot)
        await rewritten(teams)
        changes: list[Change] = []
        while len(changes) < 5:
            item = await anext(items)
            assert isinstance(item, Changes)
            changes += item.changes
    assert [(data_of(change.resource, V2).color, change.deleted) for change in changes] == [
        ("from v1", False),
        ("from v2", False),
        ("from v3", False),
        ("old program", False),
        ("old program", True),
    ]
    stored = await consul.stored(a_team(V2, crew(("ada", "lead"))))
    assert data_of((await consul.read(an_id("one", V1))).resource, V1).names == ["ada"]
    assert data_of(stored, V2).members[0].role == "lead"


# --- failing converters ---


class Failing:
    """A service whose store has several resources. One of them cannot be converted."""

    def __init__(self, color: str) -> None:
        self.events: list[Reported] = []
        backend = MemoryBackend()
        known = versions()
        shared = Versions(known, self._hear)
        self.old = Calls(backend, without_converters())
        self.calls = Calls(
            backend,
            known,
            channel=InProcessChannel(
                ResourceService(backend, known, versions=shared), ConsulService(backend, known, versions=shared)
            ),
        )
        self.color = color

    def _hear(self, event: object) -> None:
        assert isinstance(event, Reported)
        self.events.append(event)


@pytest.mark.parametrize(
    ("color", "why"),
    [
        ("raise", "up= of tests.v1.Team → tests.v2.Team raised KeyError: 'no such color'"),
        ("garbage", "up= of tests.v1.Team → tests.v2.Team returned None; return a Crew(...)"),
    ],
)
async def test_failing_converter_affects_only_the_payload_of_one_resource(color: str, why: str) -> None:
    """Lists and watches contain the resource and continue. Its payload raises, with one event per version."""
    failing = Failing(color)
    calls = failing.calls
    for name, written in (("a", ""), ("b", color), ("c", "")):
        await failing.old.write(a_team(V1, roster(color=written), name))
    async with calls.watch(a_type(V3)) as items:
        there, _ = await take(items, 2)
        assert isinstance(there, SnapshotChunk)
        for found in (there.resources, (await calls.list_type(a_type(V3), EVERYWHERE)).resources):
            assert [id_of(each).name for each in found] == ["a", "b", "c"]
            assert data_of(found[0], V3).tint.name == data_of(found[2], V3).tint.name == ""
            with pytest.raises(
                ConversionFailed,
                match=r"^Team b is stored as tests\.v1\.Team, and converting it to tests\.v3\.Team failed",
            ):
                data_of(found[1], V3)
        assert [(event.id.name, event.wanted, str(event.error)) for event in failing.events] == [("b", "v3", why)]
        await failing.old.write(a_team(V1, roster("ada", color=color), "b"))
        await failing.old.write(a_team(V1, roster("ada"), "c"))
        changes = await heard(items, calls.revision)
    assert [id_of(change.resource).name for change in changes] == ["b", "c"]
    assert len(failing.events) == 2
    assert data_of((await calls.read(an_id("b", V1))).resource, V1).names == ["ada"]


def ends(_: Any) -> Any:
    raise SystemExit(3)


async def test_converter_that_exits_does_not_stop_the_server(backend: Backend) -> None:
    """The resource loses its payload, and a write is refused."""
    known = without_converters()
    known.add_converter(V1, V2, ends, down)
    await over(backend, without_converters()).write(a_team(V1, roster("ada")))
    calls = Calls(backend, known)
    with pytest.raises(ConversionFailed):
        data_of((await calls.read(an_id("one", V2))).resource, V2)
    await refused(calls.write(a_team(V1, roster("bea"), "two")), Status.INVALID_ARGUMENT, "to tests.v2.Team failed")


async def test_unconvertible_resource_can_be_written_in_its_version_released_and_deleted() -> None:
    """A write that would have to convert the payload is refused.

    A write that returns the payload leaves it unchanged.
    """
    failing = Failing("raise")
    calls = failing.calls
    stored = await failing.old.stored(a_team(V1, roster("ada", color="raise"), metadata={FINALIZERS: "hold"}))
    await refused(calls.write(a_team(V2, crew())), Status.FAILED_PRECONDITION, "stored as tests.v1.Team")
    await calls.write_status(an_id("one", V3, uid=uid_of(stored)), a_status())
    marked = (await calls.delete(an_id("one", V3))).resource
    assert marked is not None
    bare = pb.Resource(
        id=marked.id, version=marked.version, metadata={**marked.metadata, FINALIZERS: ""}, data=marked.data
    )
    await calls.write(bare)
    assert data_of((await calls.read(an_id("one", V1))).resource, V1).names == ["ada"]
    assert await stored_as(calls) == "v1"
    await calls.delete(an_id("one", V3))
    await refused(calls.write(a_team_again(bare)), Status.INVALID_ARGUMENT, "cannot be created")


def a_team_again(resource: pb.Resource) -> pb.Resource:
    return pb.Resource(id=an_id("one", V3), data=resource.data)


async def test_unconverted_payload_is_refused_for_a_kind_without_converters(in_memory: Calls) -> None:
    failing = Failing("raise")
    await failing.old.write(a_team(V1, roster(color="raise")))
    (found,) = (await failing.calls.list_type(a_type(V3), EVERYWHERE)).resources
    note = a_note()
    note.data = found.data
    await refused(in_memory.write(note), Status.INVALID_ARGUMENT, f"resource.data of {NOTE.name} must be")


async def test_unconverted_payload_is_refused_for_a_version_without_converters() -> None:
    """Other versions of the kind have converters. The payload cannot come from a read, and would be stored as data."""
    failing = Failing("raise")
    await failing.old.write(a_team(V1, roster(color="raise")))
    (found,) = (await failing.calls.list_type(a_type(V3), EVERYWHERE)).resources
    apart = a_team(ALONE, roster(), "two")
    apart.data = found.data
    await refused(failing.calls.write(apart), Status.INVALID_ARGUMENT, f"resource.data of {ALONE.name} must be")


async def test_unconvertible_write_is_refused_and_its_cause_reported() -> None:
    """The caller does not get the converter's error, which may contain a secret of the program."""
    failing = Failing("raise")
    message = await refused(
        failing.calls.write(a_team(V1, roster(color="raise"))), Status.INVALID_ARGUMENT, "ConversionFailed event"
    )
    assert "KeyError" not in message
    assert ["KeyError" in str(event.error) for event in failing.events] == [True]


def reporting(backend: Backend, known: Registry) -> tuple[Calls, list[Any]]:
    """Return a service, and its events."""
    events: list[Any] = []
    service = ResourceService(backend, known, versions=Versions(known, events.append))
    return Calls(backend, known, channel=InProcessChannel(service)), events


@pytest.mark.parametrize(("color", "source", "wanted"), [("raise", V1, V2), ("raise down", V2, V1)])
async def test_refused_write_and_its_event_name_the_direction_that_failed(
    color: str, source: ResourceType[Any], wanted: ResourceType[Any]
) -> None:
    """The new payload is converted to the storage version, and back to compare it."""
    calls, events = reporting(MemoryBackend(), versions())
    await refused(
        calls.write(a_team(V1, roster(color=color))),
        Status.INVALID_ARGUMENT,
        f"resource.data of Team one would be stored as tests.v3.Team, and converting it from {source.name} to "
        f"{wanted.name} failed: the server's ConversionFailed event says why",
    )
    assert [(event.type, event.wanted) for event in events] == [(source.name, wanted.name.version)]


@pytest.mark.parametrize(
    ("stored", "written", "source", "wanted"),
    [
        (a_team(V1, roster(color="raise")), V3, V1, V3),
        (a_team(V2, crew(color="break")), V1, V2, V3),
    ],
    ids=["to the writer's version", "to the version in which they are merged"],
)
async def test_refused_merge_and_its_event_name_the_direction_that_failed(
    stored: pb.Resource, written: ResourceType[Any], source: ResourceType[Any], wanted: ResourceType[Any]
) -> None:
    def up_unless_broken(old: Any) -> Any:
        return None if old.color == "break" else up_again(old)

    backend = MemoryBackend()
    await over(backend, without_converters()).write(stored)
    known = versions(newest=V2)
    known.add_converter(V2, V3, up_unless_broken, down_again)
    calls, events = reporting(backend, known)
    there = V1 if stored.data is not None and stored.data.type_url == V1.type_url else V2
    await refused(
        calls.write(a_team(written, written.payload())),
        Status.FAILED_PRECONDITION,
        f"Team one is stored as {there.name}, and converting it from {source.name} to {wanted.name} failed, so this "
        f"write cannot be merged with it: the server's ConversionFailed event says why; write it as {there.name}",
    )
    assert [(event.type, event.wanted) for event in events] == [(source.name, wanted.name.version)]


async def test_write_whose_converter_returns_an_invalid_payload_is_reported(backend: Backend) -> None:
    """The fault is the converter's, so the writer is not told to write other values."""
    known = without_converters()
    known.add_converter(V1, V2, up, lambda _: roster(color=cast("Any", 7)))
    calls, events = reporting(backend, known)
    said = await refused(calls.write(a_team(V1, roster("ada"))), Status.INVALID_ARGUMENT, "ConversionFailed event")
    assert "write values" not in said
    assert ["down= of tests.v1.Team → tests.v2.Team returned" in str(each.error) for each in events] == [True]


async def test_failure_is_reported_once_for_repeated_reads_of_the_store() -> None:
    """A store on disk makes a new message at each read."""
    failing = Failing("raise")
    stored = await failing.old.stored(a_team(V1, roster(color="raise")))
    events: list[object] = []
    view = Versions(versions(), events.append).view(V3)
    for _ in range(3):
        assert view(copy_message(stored)) is not None
    assert len(events) == 1
