"""Write in another version of the kind than the stored one: stored content, preserved fields, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from grpclib.const import Status

from headway.protobuf import encode, field, message
from headway.resource import AnyMessage, Registry, ResourceType, pb, resource_key
from headway.storage import Backend, Put, version_of
from headway.versions import add_converter
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import ULID, an_id
from tests.helpers.versions import (
    ALONE,
    V1,
    V2,
    V3,
    Band,
    Crew,
    Member,
    Roster,
    Tint,
    a_team,
    crew,
    data_of,
    roster,
    versions,
    without_converters,
)
from tests.service.test_discretion import WriteOnly
from tests.versions.test_failing_converters import reporting

UNKNOWN = b"\x7a\x03new"
"""Field 15, which no class here has."""


@pytest.fixture
def teams(backend: Backend) -> Calls:
    return Calls(backend, versions())


async def read(calls: Calls, type: ResourceType[Any]) -> Any:
    return data_of((await calls.read(an_id("one", type))).resource, type)


async def stored(calls: Calls) -> pb.Resource:
    found, _ = await calls.backend.read(V1.kind, ("default", "default", "one"))
    assert found is not None
    return found


async def test_fields_missing_from_the_writers_version_survive(teams: Calls) -> None:
    """The fields are those of the resource, of list elements, of a message in an element, and maps."""
    band = Band(
        members=[Member(name="ada", role="lead"), Member(name="bea", role="bass")],
        tint=Tint(name="red", shade=7),
        room="B12",
        notes={"a": "b"},
    )
    await teams.write(a_team(V3, band))
    answer = await teams.stored(a_team(V1, roster("bea", "cyd", color="red")))
    assert data_of(answer, V1) == roster("bea", "cyd", color="red")
    assert await read(teams, V3) == Band(
        members=[Member(name="bea", role="bass"), Member(name="cyd")],
        tint=Tint(name="red", shade=7),
        room="B12",
        notes={"a": "b"},
    )
    await teams.write(a_team(V2, crew(("bea", "drums"), ("cyd", ""), color="blue", room="B13")))
    assert await read(teams, V3) == Band(
        members=[Member(name="bea", role="drums"), Member(name="cyd")],
        tint=Tint(name="blue", shade=7),
        room="B13",
        notes={"a": "b"},
    )


async def test_next_write_stores_another_programs_resource_in_the_storage_version(teams: Calls) -> None:
    old = Calls(teams.backend, without_converters())
    await old.write(a_team(V1, roster("ada", color="red")))
    await teams.write(a_team(V2, crew(("ada", "lead"), color="red", room="B12")))
    assert version_of(await stored(teams)) == "v3"
    assert await read(teams, V3) == Band(members=[Member(name="ada", role="lead")], tint=Tint(name="red"), room="B12")


@pytest.mark.parametrize("storage", [V1, V2, V3])
@pytest.mark.parametrize("written", [V1, V2, V3])
async def test_every_version_can_be_written_over_every_stored_version(
    backend: Backend, storage: ResourceType[Any], written: ResourceType[Any]
) -> None:
    """A resource that fits all versions is created, changed and read back, with every storage version."""
    calls = Calls(backend, versions(storage))
    for names in (["ada"], ["ada", "bea"], []):
        payload = V1.payload(names=names)
        if written is not V1:
            payload = written.payload(members=[Member(name=name) for name in names])
        answer = await calls.stored(a_team(written, payload))
        assert data_of(answer, written) == payload
        assert version_of(await stored(calls)) == storage.name.version
        assert (await read(calls, V1)).names == names


async def test_write_that_does_not_fit_the_storage_version_is_refused(backend: Backend) -> None:
    """Creations and updates are refused. The error names the fields, and nothing is stored."""
    calls = Calls(backend, versions(V1))
    await refused(
        calls.write(a_team(V2, crew(("ada", "lead"), room="B12"))),
        Status.INVALID_ARGUMENT,
        "members, room would not be read back as written, because the resource is stored as tests.v1.Team",
    )
    assert calls.revision == 0
    await calls.write(a_team(V2, crew(("ada", ""))))
    before = await stored(calls)
    await refused(
        calls.write(a_team(V2, crew(("ada", ""), room="B12"))),
        Status.INVALID_ARGUMENT,
        "room would not be read back as written, because the resource is stored as tests.v1.Team: write values that "
        "tests.v1.Team can hold",
    )
    assert await stored(calls) == before


async def test_refused_write_names_the_field_of_a_nested_message(backend: Backend) -> None:
    calls = Calls(backend, versions(V2))
    text = "one: tint.shade would not be read back as written"
    await refused(calls.write(a_team(V3, Band(tint=Tint(name="red", shade=7)))), Status.INVALID_ARGUMENT, text)


@pytest.mark.parametrize("written", [V1, V2, V3])
async def test_write_without_changes_in_its_version_keeps_the_generation(
    teams: Calls, written: ResourceType[Any]
) -> None:
    """Every write makes a version. Only a change of metadata or payload makes a generation."""
    first = await teams.stored(a_team(V3, Band(members=[Member(name="ada", role="lead")], room="B12")))
    seen = (await teams.read(an_id("one", written))).resource
    again = await teams.stored(a_team(written, data_of(seen, written)))
    assert again.generation == first.generation
    assert int(again.version) > int(first.version)
    assert await read(teams, V3) == data_of(first, V3)
    named = await teams.stored(a_team(written, data_of(seen, written), metadata={"color": "red"}))
    assert named.generation > first.generation
    changed = await teams.stored(a_team(V1, roster("bea")))
    assert changed.generation > named.generation


async def test_write_without_changes_moves_the_resource_to_the_storage_version(teams: Calls) -> None:
    """The generation stays. The resource is not moved if that would lose fields."""
    old = Calls(teams.backend, without_converters())
    first = await old.stored(a_team(V1, roster("ada")))
    again = await teams.stored(a_team(V1, roster("ada")))
    assert again.generation == first.generation
    assert version_of(await stored(teams)) == "v3"
    losing = Calls(teams.backend, losing_color())
    await old.write(a_team(V1, roster("ada", color="red")))
    again = await losing.stored(a_team(V1, roster("ada", color="red"), metadata={"a": "b"}))
    assert version_of(await stored(teams)) == "v1"
    assert data_of(again, V1).color == "red"


def losing_color() -> Registry:
    known = without_converters()
    add_converter(
        known,
        V1,
        V2,
        lambda old: crew(*((name, "") for name in old.names)),
        lambda new: roster(*(member.name for member in new.members)),
    )
    return known


async def test_unknown_stored_fields_survive(teams: Calls) -> None:
    """A newer program of the storage version wrote these fields."""
    resource = a_team(V3, Band(room="B12"))
    resource.data = AnyMessage(type_url=V3.type_url, value=encode(Band(room="B12")) + UNKNOWN)
    await teams.write(resource)
    await teams.write(a_team(V1, roster("ada")))
    data = (await stored(teams)).data
    assert data is not None
    assert UNKNOWN in data.value
    assert (await read(teams, V3)).room == "B12"


async def test_payload_with_unknown_fields_is_never_stored_converted(teams: Calls) -> None:
    """The payload stays in its version, or the write is refused."""
    resource = a_team(V1, roster("ada"))
    assert resource.data is not None
    resource.data.value += UNKNOWN
    await teams.write(resource)
    assert version_of(await stored(teams)) == "v1"
    await refused(
        teams.write(a_team(V2, crew(("bea", "")))), Status.FAILED_PRECONDITION, "does not know", "write version v1"
    )
    await teams.write(a_team(V1, roster("bea")))
    assert version_of(await stored(teams)) == "v1"
    await teams.write(a_team(V2, crew(("cyd", "lead"))))
    assert version_of(await stored(teams)) == "v3"
    again = a_team(V1, roster("dot"))
    assert again.data is not None
    again.data.value += UNKNOWN
    await refused(teams.write(again), Status.FAILED_PRECONDITION, "does not know")


async def test_version_read_in_one_version_of_the_kind_is_valid_in_another(teams: Calls) -> None:
    """The version identifies the stored resource, in every version of the kind."""
    first = await teams.stored(a_team(V1, roster("ada")))
    second = await teams.stored(a_team(V2, crew(("ada", "lead")), version=first.version))
    await refused(teams.write(a_team(V3, Band(), version=first.version)), Status.ABORTED, "read it again")
    await teams.write(a_team(V3, Band(), version=second.version))


async def test_write_replaces_a_version_without_converter(teams: Calls) -> None:
    """The rule is the same as for types without converters. The resource is then stored in the storage version."""
    await teams.write(a_team(ALONE, roster("ada")))
    await teams.write(a_team(V1, roster("bea")))
    assert version_of(await stored(teams)) == "v3"
    assert await read(teams, V1) == roster("bea")


async def test_write_keeps_elements_hidden_from_its_version(backend: Backend) -> None:
    """A converter may leave elements of a list out.

    A writer that cannot see them removes neither them nor the roles of the others.
    """
    calls = Calls(backend, hiding())
    await calls.write(a_team(V2, crew(("ada", "lead"), ("zoe", "hidden"))))
    assert await read(calls, V1) == roster("ada")
    await calls.write(a_team(V1, roster("ada", "bea")))
    assert await read(calls, V2) == crew(("ada", "lead"), ("zoe", "hidden"), ("bea", ""))
    await calls.write(a_team(V1, roster()))
    assert await read(calls, V2) == crew(("zoe", "hidden"))


async def test_write_that_would_remove_hidden_content_is_refused(backend: Backend) -> None:
    """Two elements look equal to the writer, so its request does not say which of them it removes."""
    calls = Calls(backend, hiding(lambda new: roster(*dict.fromkeys(each.name for each in new.members))))
    await calls.write(a_team(V2, crew(("ada", "lead"), ("ada", "bass"))))
    before = await stored(calls)
    await refused(calls.write(a_team(V1, roster())), Status.INVALID_ARGUMENT, "names would not be read back as written")
    assert await stored(calls) == before
    await calls.write(a_team(V1, roster("ada", "bea")))
    assert await read(calls, V2) == crew(("ada", "lead"), ("ada", "bass"), ("bea", ""))


def visible(new: Crew) -> Roster:
    return roster(*(member.name for member in new.members if member.role != "hidden"))


def hiding(down: Callable[[Crew], Roster] = visible) -> Registry:
    known = without_converters()
    add_converter(known, V1, V2, lambda old: crew(*((name, "") for name in old.names)), down)
    return known


# --- payloads that do not decode, and payloads that could not be converted ---


async def put_garbage(calls: Calls, type: ResourceType[Any], **metadata: str) -> pb.Resource:
    """Store a payload that no Write would store, like an older program or another writer of the store."""
    resource = a_team(type, type.payload(), metadata=metadata)
    assert resource.id is not None
    resource.id.uid, resource.generation, resource.id.tenancy = ULID, ULID, V1.tenancy
    resource.data = AnyMessage(type_url=type.type_url, value=b"\x0a\x0asecret\xff\xff\xff\xff")
    await calls.backend.commit((Put(type.kind, resource_key(resource), resource, ""),))
    return await stored(calls)


@pytest.mark.parametrize("storage", [None, V1])
@pytest.mark.parametrize(("there", "payload"), [(V1, roster("ada")), (V3, Band(members=[Member(name="ada")]))])
async def test_undecodable_payload_is_replaced_by_a_write_in_its_version(
    backend: Backend, storage: ResourceType[Any] | None, there: ResourceType[Any], payload: Any
) -> None:
    """A write in another version is refused with that advice. The new payload is stored in the storage version."""
    calls = Calls(backend, versions(storage))
    garbage = await put_garbage(calls, there)
    other = V3 if there is V1 else V1
    await refused(
        calls.write(a_team(other, other.payload())),
        Status.FAILED_PRECONDITION,
        f"stored as {there.name}",
        f"write it as {there.name}",
    )
    mended = await calls.stored(a_team(there, payload, version=garbage.version))
    assert data_of(mended, there) == payload
    assert mended.generation > garbage.generation
    assert version_of(await stored(calls)) == ("v3" if storage is None else "v1")
    assert (await read(calls, V1)).names == ["ada"]
    assert calls.unexpected == []


async def test_undecodable_payload_is_frozen_while_it_is_marked(teams: Calls) -> None:
    await put_garbage(teams, V3, finalizers="hold")
    marked = (await teams.delete(an_id("one", V3))).resource
    assert marked is not None
    await refused(
        teams.write(a_team(V3, Band(), metadata={**marked.metadata, "finalizers": ""})),
        Status.INVALID_ARGUMENT,
        "changes data",
    )


@pytest.mark.parametrize("type", [V1, V2, V3])
async def test_refusals_reveal_no_stored_bytes_without_read_permission(
    backend: Backend, type: ResourceType[Any]
) -> None:
    calls = Calls(backend, versions())
    garbage = await put_garbage(calls, V3)
    blind = Calls(backend, versions(), WriteOnly("name"))
    resource = a_team(type, type.payload())
    assert resource.id is not None
    resource.id.uid = ULID
    if type is V3:
        await blind.write(resource)
        assert await read(calls, V3) == Band()
    else:
        said = await refused(blind.write(resource), Status.FAILED_PRECONDITION)
        assert said == "Team one: the stored resource forbids it, and you may not read it"
        assert await stored(calls) == garbage


@message(name="tests.Nest")
class Nest:
    inner: Nest | None = field(1)
    name: str = field(2)


async def test_conversion_that_cannot_be_read_back_is_refused_without_its_content(backend: Backend) -> None:
    """The converter nests deeper than a message may, which shows only when the result is decoded."""
    old: ResourceType[Nest] = ResourceType("tests", "v1", "Nest", Nest)
    new: ResourceType[Nest] = ResourceType("tests", "v2", "Nest", Nest)

    def deep(given: Nest) -> Nest:  # noqa: ARG001 - a converter's
        nest = Nest(name="secret")
        for _ in range(120):
            nest = Nest(inner=nest)
        return nest

    plain, known = Registry(), Registry()
    for each in (plain, known):
        each.register(old)
        each.register(new)
    add_converter(known, old, new, deep, deep)
    await Calls(backend, plain).write(a_team(old, Nest(name="ada")))
    calls, events = reporting(backend, known)
    blind = Calls(backend, known, WriteOnly("name"))
    resource = a_team(new, Nest())
    uid = (await calls.read(an_id("one", old))).resource.id.uid  # type: ignore[union-attr]  # it exists
    await refused(calls.write(a_team(new, Nest())), Status.FAILED_PRECONDITION, "stored as tests.v1.Nest, and")
    assert ["nested" in str(event.error) for event in events] == [True]
    resource.id.uid = uid  # type: ignore[union-attr]  # it has one
    told = await refused(blind.write(resource), Status.FAILED_PRECONDITION)
    assert told == "Nest one: the stored resource forbids it, and you may not read it"


def unconverted(type: ResourceType[Any], **metadata: str) -> pb.Resource:
    """Return a resource from a writer that could not read the payload."""
    resource = a_team(type, type.payload(), metadata=metadata)
    resource.data = AnyMessage(type_url="type.googleapis.com/headway.resource.v1.Unconverted", value=b"tests.v1.Team")
    return resource


@pytest.mark.parametrize("type", [V1, V2, V3])
async def test_unconverted_payload_is_refused_if_it_can_be_converted(backend: Backend, type: ResourceType[Any]) -> None:
    """Hooks do not see an unconverted payload, so a writer could bypass them."""
    calls = Calls(backend, versions(V2))
    await calls.write(a_team(V2, crew(("ada", "lead"))))
    before = await stored(calls)
    await refused(
        calls.write(unconverted(type, bad="1")), Status.FAILED_PRECONDITION, f"as {type.name}", "read it again"
    )
    assert await stored(calls) == before
    await put_garbage_over(calls, V2)
    if type is V2:
        await refused(calls.write(unconverted(type)), Status.FAILED_PRECONDITION, "read it again")
    else:
        assert (await calls.stored(unconverted(type, color="red"))).metadata == {"color": "red"}


async def put_garbage_over(calls: Calls, type: ResourceType[Any]) -> None:
    await calls.delete(an_id("one", type))
    await put_garbage(calls, type)


async def test_unconverted_payload_is_refused_for_a_version_without_converter(teams: Calls) -> None:
    """Other versions of the kind have converters."""
    await refused(teams.write(unconverted(ALONE)), Status.INVALID_ARGUMENT, "not headway.resource.v1.Unconverted")
    await teams.write(a_team(ALONE, roster("ada")))
    await refused(teams.write(unconverted(ALONE)), Status.INVALID_ARGUMENT, "not headway.resource.v1.Unconverted")
    assert await read(teams, ALONE) == roster("ada")
