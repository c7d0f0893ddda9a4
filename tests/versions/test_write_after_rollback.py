"""Writes after a rollback, when the storage version is older than the version of a stored resource."""

from __future__ import annotations

from typing import Any

import pytest
from grpclib.const import Status

from headway.protobuf import encode
from headway.resource import AnyMessage, ResourceType, pb
from headway.storage import Backend, SqliteBackend, version_of
from headway.versions import migrate
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import an_id
from tests.helpers.versions import V1, V2, V3, Band, Member, Tint, a_team, crew, data_of, roster, versions
from tests.versions.test_write_versions import UNKNOWN, read, stored

BAND = Band(members=[Member(name="ada", role="lead")], tint=Tint(name="red", shade=7), room="B12", notes={"a": "b"})


async def rolled_back(backend: Backend, storage: ResourceType[Any], payload: Any = BAND) -> Calls:
    """Return a service with the older storage version, on a store with a resource of the newer program."""
    await Calls(backend, versions()).write(a_team(V3, payload))
    return Calls(backend, versions(storage))


@pytest.mark.parametrize("storage", [V1, V2])
async def test_fields_missing_from_the_writers_version_survive(backend: Backend, storage: ResourceType[Any]) -> None:
    """The storage version lacks these fields too, so the resource stays in its version. Migration reports it."""
    calls = await rolled_back(backend, storage)
    answer = await calls.stored(a_team(V1, roster("ada", "bea", color="blue")))
    assert data_of(answer, V1) == roster("ada", "bea", color="blue")
    assert version_of(await stored(calls)) == "v3"
    assert await read(calls, V3) == Band(
        members=[Member(name="ada", role="lead"), Member(name="bea")],
        tint=Tint(name="blue", shade=7),
        room="B12",
        notes={"a": "b"},
    )
    done = await migrate(backend, versions(storage))
    assert (done.rewritten, [id.name for id, _ in done.left]) == (0, ["one"])


@pytest.mark.parametrize("written", [V1, V2, V3])
async def test_resource_that_fits_the_storage_version_is_stored_in_it(
    backend: Backend, written: ResourceType[Any]
) -> None:
    """In this way, writes lead back to the storage version, also writes in the writer's own version."""
    calls = await rolled_back(backend, V1, Band(members=[Member(name="ada")], tint=Tint(name="red")))
    payload: Any = {V1: roster("bea"), V2: crew(("bea", "")), V3: Band(members=[Member(name="bea")], tint=Tint())}
    await calls.write(a_team(written, payload[written]))
    assert version_of(await stored(calls)) == "v1"
    assert await read(calls, V1) == roster("bea")


async def test_removing_fields_that_the_storage_version_lacks_completes_the_rollback(backend: Backend) -> None:
    calls = await rolled_back(backend, V1)
    kept = Band(members=[Member(name="ada", role="bass")], room="B12")
    await calls.write(a_team(V3, kept))
    assert (version_of(await stored(calls)), await read(calls, V3)) == ("v3", kept)
    await calls.write(a_team(V3, Band(members=[Member(name="ada")], tint=Tint())))
    assert version_of(await stored(calls)) == "v1"


async def test_write_in_an_intermediate_version_is_merged_with_the_stored_resource(backend: Backend) -> None:
    """The writer sees the room field and not the shade field. The storage version has neither."""
    calls = await rolled_back(backend, V1)
    await calls.write(a_team(V2, crew(("ada", "bass"), color="red", room="B13")))
    assert await read(calls, V3) == Band(
        members=[Member(name="ada", role="bass")], tint=Tint(name="red", shade=7), room="B13", notes={"a": "b"}
    )


async def test_unknown_fields_survive(backend: Backend) -> None:
    resource = a_team(V3, BAND)
    resource.data = AnyMessage(type_url=V3.type_url, value=encode(BAND) + UNKNOWN)
    await Calls(backend, versions()).write(resource)
    calls = Calls(backend, versions(V1))
    await calls.write(a_team(V1, roster("bea")))
    data = (await stored(calls)).data
    assert data is not None
    assert UNKNOWN in data.value
    again = a_team(V1, roster("cyd"))
    assert again.data is not None
    again.data.value += UNKNOWN
    await refused(calls.write(again), Status.FAILED_PRECONDITION, "does not know", "write version v3")


async def test_new_resource_is_stored_in_the_storage_version(backend: Backend) -> None:
    calls = await rolled_back(backend, V1)
    text = "room would not be read back as written, because the resource is stored as tests.v1.Team: write values"
    await refused(calls.write(a_team(V2, crew(room="B12"), "two")), Status.INVALID_ARGUMENT, text)
    await calls.write(a_team(V2, crew(("bea", "")), "two"))
    found = (await calls.read(an_id("two", V1))).resource
    assert isinstance(found, pb.Resource)


async def test_rollback_works_over_two_openings_of_one_file(tmp_path: Any) -> None:
    async with SqliteBackend(str(tmp_path / "staff.db")) as store:
        await Calls(store, versions()).write(a_team(V3, BAND))
    async with SqliteBackend(str(tmp_path / "staff.db")) as store:
        calls = Calls(store, versions(V1))
        await calls.write(a_team(V1, roster("ada", color="red")))
        await calls.write(a_team(V1, roster("ada", color="blue")))
        assert (await read(calls, V3)).room == "B12"
