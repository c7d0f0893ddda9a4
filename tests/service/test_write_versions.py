"""Write in another version of the kind than the stored one: what is stored, what survives, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from grpclib.const import Status

from headway.resource import AnyMessage, Registry, ResourceType, encode, field, message, pb, resource_key
from headway.storage import Backend, Put, version_of
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import NOTE, ULID, a_note, an_id, uid_of
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
    roster,
    said,
    versions,
    without_converters,
)
from tests.service.test_discretion import WriteOnly

UNKNOWN = b"\x7a\x03new"
"""Field 15, which no class here has."""


@pytest.fixture
def teams(backend: Backend) -> Calls:
    return Calls(backend, versions())


async def read(calls: Calls, type: ResourceType[Any]) -> Any:
    return said((await calls.read(an_id("one", type))).resource, type)


async def stored(calls: Calls) -> pb.Resource:
    found, _ = await calls.backend.read(V1.kind, ("default", "default", "one"))
    assert found is not None
    return found


async def test_fields_that_the_writers_version_lacks_survive(teams: Calls) -> None:
    """Of the resource, of the elements of a list, of a message in it; and maps."""
    band = Band(
        members=[Member(name="ada", role="lead"), Member(name="bea", role="bass")],
        tint=Tint(name="red", shade=7),
        room="B12",
        notes={"a": "b"},
    )
    await teams.write(a_team(V3, band))
    answer = await teams.stored(a_team(V1, roster("bea", "cyd", color="red")))
    assert said(answer, V1) == roster("bea", "cyd", color="red")
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


async def test_what_another_program_stored_becomes_the_storage_version_at_its_next_write(teams: Calls) -> None:
    old = Calls(teams.backend, without_converters())
    await old.write(a_team(V1, roster("ada", color="red")))
    await teams.write(a_team(V2, crew(("ada", "lead"), color="red", room="B12")))
    assert version_of(await stored(teams)) == "v3"
    assert await read(teams, V3) == Band(members=[Member(name="ada", role="lead")], tint=Tint(name="red"), room="B12")


@pytest.mark.parametrize("storage", [V1, V2, V3])
@pytest.mark.parametrize("written", [V1, V2, V3])
async def test_every_version_is_written_whatever_is_stored(
    backend: Backend, storage: ResourceType[Any], written: ResourceType[Any]
) -> None:
    """Created, changed and read back, in every storage version, by what all of them can hold."""
    calls = Calls(backend, versions(storage))
    for names in (["ada"], ["ada", "bea"], []):
        payload = V1.payload(names=names)
        if written is not V1:
            payload = written.payload(members=[Member(name=name) for name in names])
        answer = await calls.stored(a_team(written, payload))
        assert said(answer, written) == payload
        assert version_of(await stored(calls)) == storage.name.version
        assert (await read(calls, V1)).names == names


async def test_what_the_storage_version_cannot_hold_is_refused(backend: Backend) -> None:
    """Created and updated alike; the refusal names the fields, and nothing is stored."""
    calls = Calls(backend, versions(V1))
    await refused(
        calls.write(a_team(V2, crew(("ada", "lead"), room="B12"))),
        Status.INVALID_ARGUMENT,
        "members, room would not be read back as written, because the resource is stored as tests.v1.Team",
    )
    assert calls.revision == 0
    await calls.write(a_team(V2, crew(("ada", ""))))
    before = await stored(calls)
    await refused(calls.write(a_team(V2, crew(("ada", ""), room="B12"))), Status.INVALID_ARGUMENT, "room would not be")
    assert await stored(calls) == before


@pytest.mark.parametrize("written", [V1, V2, V3])
async def test_a_write_that_changes_nothing_in_its_version_makes_no_generation(
    teams: Calls, written: ResourceType[Any]
) -> None:
    """It makes a version, as every write does; metadata and payload each make a generation."""
    first = await teams.stored(a_team(V3, Band(members=[Member(name="ada", role="lead")], room="B12")))
    seen = (await teams.read(an_id("one", written))).resource
    again = await teams.stored(a_team(written, said(seen, written)))
    assert again.generation == first.generation
    assert int(again.version) > int(first.version)
    assert await read(teams, V3) == said(first, V3)
    named = await teams.stored(a_team(written, said(seen, written), metadata={"color": "red"}))
    assert named.generation > first.generation
    changed = await teams.stored(a_team(V1, roster("bea")))
    assert changed.generation > named.generation


async def test_a_write_that_changes_nothing_moves_what_is_stored_to_the_storage_version(teams: Calls) -> None:
    """With the same generation; unless that would lose something."""
    old = Calls(teams.backend, without_converters())
    first = await old.stored(a_team(V1, roster("ada")))
    again = await teams.stored(a_team(V1, roster("ada")))
    assert again.generation == first.generation
    assert version_of(await stored(teams)) == "v3"
    losing = Calls(teams.backend, losing_color())
    await old.write(a_team(V1, roster("ada", color="red")))
    again = await losing.stored(a_team(V1, roster("ada", color="red"), metadata={"a": "b"}))
    assert version_of(await stored(teams)) == "v1"
    assert said(again, V1).color == "red"


def losing_color() -> Registry:
    known = without_converters()
    known.add_converter(
        V1,
        V2,
        lambda old: crew(*((name, "") for name in old.names)),
        lambda new: roster(*(member.name for member in new.members)),
    )
    return known


async def test_unknown_fields_of_what_is_stored_survive(teams: Calls) -> None:
    """A newer program of the storage version wrote them."""
    resource = a_team(V3, Band(room="B12"))
    resource.data = AnyMessage(type_url=V3.type_url, value=encode(Band(room="B12")) + UNKNOWN)
    await teams.write(resource)
    await teams.write(a_team(V1, roster("ada")))
    data = (await stored(teams)).data
    assert data is not None
    assert UNKNOWN in data.value
    assert (await read(teams, V3)).room == "B12"


async def test_unknown_fields_are_never_converted_to_be_stored(teams: Calls) -> None:
    """A payload that has them stays in its version, or the write is refused."""
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


async def test_a_version_that_was_read_in_one_version_of_the_kind_holds_in_another(teams: Calls) -> None:
    """Compare and swap is about the resource, whichever version of the kind it is seen as."""
    first = await teams.stored(a_team(V1, roster("ada")))
    second = await teams.stored(a_team(V2, crew(("ada", "lead")), version=first.version))
    await refused(teams.write(a_team(V3, Band(), version=first.version)), Status.ABORTED, "read it again")
    await teams.write(a_team(V3, Band(), version=second.version))


async def test_a_write_replaces_a_version_without_converter(teams: Calls) -> None:
    """As before there were converters; what is stored is in the storage version."""
    await teams.write(a_team(ALONE, roster("ada")))
    await teams.write(a_team(V1, roster("bea")))
    assert version_of(await stored(teams)) == "v3"
    assert await read(teams, V1) == roster("bea")


async def test_a_write_keeps_elements_that_its_version_hides(backend: Backend) -> None:
    """A converter may leave elements of a list out; nobody who cannot see them removes them, or the others' roles."""
    calls = Calls(backend, hiding())
    await calls.write(a_team(V2, crew(("ada", "lead"), ("zoe", "hidden"))))
    assert await read(calls, V1) == roster("ada")
    await calls.write(a_team(V1, roster("ada", "bea")))
    assert await read(calls, V2) == crew(("ada", "lead"), ("zoe", "hidden"), ("bea", ""))
    await calls.write(a_team(V1, roster()))
    assert await read(calls, V2) == crew(("zoe", "hidden"))


async def test_a_write_that_would_remove_what_it_cannot_see_is_refused(backend: Backend) -> None:
    """Two elements are one to the writer: nothing says which of them it removes."""
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
    known.add_converter(V1, V2, lambda old: crew(*((name, "") for name in old.names)), down)
    return known


# --- payloads that do not decode, and payloads that could not be converted ---


async def put_garbage(calls: Calls, type: ResourceType[Any], **metadata: str) -> pb.Resource:
    """Store what no Write stores, as an older program or another writer of the store has."""
    resource = a_team(type, type.payload(), metadata=metadata)
    assert resource.id is not None
    resource.id.uid, resource.generation, resource.id.tenancy = ULID, ULID, V1.tenancy
    resource.data = AnyMessage(type_url=type.type_url, value=b"\x0a\x0asecret\xff\xff\xff\xff")
    await calls.backend.commit((Put(type.kind, resource_key(resource), resource, ""),))
    return await stored(calls)


@pytest.mark.parametrize("storage", [None, V1])
@pytest.mark.parametrize(("there", "payload"), [(V1, roster("ada")), (V3, Band(members=[Member(name="ada")]))])
async def test_what_does_not_decode_is_replaced_by_a_write_in_its_version(
    backend: Backend, storage: ResourceType[Any] | None, there: ResourceType[Any], payload: Any
) -> None:
    """A write in another version is told so; the new payload is stored in the storage version."""
    calls = Calls(backend, versions(storage))
    garbage = await put_garbage(calls, there)
    other = V3 if there is V1 else V1
    await refused(
        calls.write(a_team(other, other.payload())),
        Status.FAILED_PRECONDITION,
        f"stored as version {there.name.version}",
        "write it as that version",
    )
    mended = await calls.stored(a_team(there, payload, version=garbage.version))
    assert said(mended, there) == payload
    assert mended.generation > garbage.generation
    assert version_of(await stored(calls)) == ("v3" if storage is None else "v1")
    assert (await read(calls, V1)).names == ["ada"]
    assert calls.unexpected == []


async def test_what_does_not_decode_is_frozen_while_it_is_marked(teams: Calls) -> None:
    await put_garbage(teams, V3, finalizers="hold")
    marked = (await teams.delete(an_id("one", V3))).resource
    assert marked is not None
    await refused(
        teams.write(a_team(V3, Band(), metadata={**marked.metadata, "finalizers": ""})),
        Status.INVALID_ARGUMENT,
        "changes data",
    )


@pytest.mark.parametrize("type", [V1, V2, V3])
async def test_no_refusal_tells_stored_bytes_to_a_caller_who_may_not_read(
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


async def test_a_conversion_that_cannot_be_read_back_is_refused_without_what_it_says(backend: Backend) -> None:
    """Its converter nests deeper than any message may, which shows only as the result is decoded."""
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
    known.add_converter(old, new, deep, deep)
    await Calls(backend, plain).write(a_team(old, Nest(name="ada")))
    calls, blind = Calls(backend, known), Calls(backend, known, WriteOnly("name"))
    resource = a_team(new, Nest())
    uid = (await calls.read(an_id("one", old))).resource.id.uid  # type: ignore[union-attr]  # it is there
    await refused(calls.write(a_team(new, Nest())), Status.FAILED_PRECONDITION, "stored as version v1, and converting")
    resource.id.uid = uid  # type: ignore[union-attr]  # it has one
    told = await refused(blind.write(resource), Status.FAILED_PRECONDITION)
    assert told == "Nest one: the stored resource forbids it, and you may not read it"


def unconverted(type: ResourceType[Any], **metadata: str) -> pb.Resource:
    """A write by a writer who says that it could not read the payload."""
    resource = a_team(type, type.payload(), metadata=metadata)
    resource.data = AnyMessage(type_url="type.googleapis.com/headway.resource.v1.Unconverted", value=b"tests.v1.Team")
    return resource


@pytest.mark.parametrize("type", [V1, V2, V3])
async def test_a_payload_that_converts_is_not_carried_on_unread(backend: Backend, type: ResourceType[Any]) -> None:
    """Hooks see no such payload, so a writer could get anything past them."""
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


async def test_an_unconverted_payload_is_none_of_a_version_without_converter(teams: Calls) -> None:
    """Of the same kind as versions that have converters."""
    await refused(teams.write(unconverted(ALONE)), Status.INVALID_ARGUMENT, "not headway.resource.v1.Unconverted")
    await teams.write(a_team(ALONE, roster("ada")))
    await refused(teams.write(unconverted(ALONE)), Status.INVALID_ARGUMENT, "not headway.resource.v1.Unconverted")
    assert await read(teams, ALONE) == roster("ada")


# --- owners ---


async def test_an_owner_is_the_same_one_in_every_version_of_its_kind(teams: Calls) -> None:
    """A writer names the version that it knows; another incarnation, name or kind is another owner."""
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
