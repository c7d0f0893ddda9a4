"""Versions of a kind with converters: the answer of each verb for a resource that is stored in another version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from grpclib.const import Status

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
from headway.storage import Backend, MemoryBackend, version_of
from tests.helpers.calls import Calls, refused, take
from tests.helpers.declared import NOTE, ULID, a_note, a_status, a_type, an_id, id_of, uid_of
from tests.helpers.versions import (
    ALONE,
    V1,
    V2,
    V3,
    a_team,
    crew,
    data_of,
    roster,
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


async def test_owner_is_the_same_in_every_version_of_its_kind(teams: Calls) -> None:
    """A writer names the version that it knows. Another incarnation, name or kind is another owner."""
    owner = await teams.stored(a_team(V1, roster("ada")))
    child = await teams.stored(a_note("child", owner=owner.id))
    for type in (V1, V2, V3):
        for uid in ("", uid_of(owner)):
            written = await teams.stored(a_note("child", type.name.version, owner=an_id("one", type, uid=uid)))
            assert written.owner == child.owner
    for other in (an_id("one", V2, uid=ULID), an_id("two", V2), an_id("one", NOTE), None):
        await refused(
            teams.write(a_note("child", owner=other)), Status.INVALID_ARGUMENT, "owner can only be set at creation"
        )
