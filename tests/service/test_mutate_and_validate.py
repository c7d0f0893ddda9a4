"""MutateAndValidate: what Write would store, as far as that can be said without the store."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from headway.resource import DELETION_TIMESTAMP, AnyMessage, copy_message, pb, resource_key
from headway.storage import MemoryBackend, Put
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import HOOKED, NOTE_V2, ULID, a_note, a_status, an_id, id_of, text_of
from tests.helpers.versions import ALONE, V1, V2, a_team, crew, roster, versions
from tests.service.wrong_resources import wrong_resources


@pytest.mark.parametrize(("resource", "said"), wrong_resources())
async def test_what_write_refuses_at_sight_is_refused(
    in_memory: Calls, resource: pb.Resource | None, said: str
) -> None:
    """The same checks, the same sentences."""
    await refused(in_memory.mutate_and_validate(resource), Status.INVALID_ARGUMENT, said)


async def test_hooks_run_and_nothing_is_stored(calls: Calls) -> None:
    """The answer is filled in by defaults and mutate, and has no uid, version or generation."""
    reply = await calls.mutate_and_validate(a_note("one", "", HOOKED))
    assert reply.resource is not None
    assert text_of(reply.resource) == "untitled"
    assert id_of(reply.resource).tenancy == pb.Tenancy(partition="default", namespace="default")
    assert (id_of(reply.resource).uid, reply.resource.version, reply.resource.generation) == ("", "", "")
    assert calls.revision == 0
    bad = a_note("one", "bad", HOOKED)
    await refused(calls.mutate_and_validate(bad), Status.INVALID_ARGUMENT, "Hooked one: data.text 'bad' must be")


@pytest.mark.parametrize("mark", ["", "soon", "2024-02-02T10:00:00"])
async def test_a_mark_that_is_no_time_is_refused(calls: Calls, mark: str) -> None:
    """As Write refuses it, whether or not the resource is there."""
    await calls.write(a_note("there"))
    for name in ("there", "absent"):
        said = f"metadata.deletionTimestamp {mark!r} must be a timestamp such as"
        marked = a_note(name, metadata={DELETION_TIMESTAMP: mark})
        await refused(calls.mutate_and_validate(marked), Status.INVALID_ARGUMENT, said)


async def test_what_depends_on_the_store_is_not_asked(calls: Calls) -> None:
    """No owner is looked up, no uid, version or status compared."""
    await calls.write(a_note("one", type=NOTE_V2))
    resource = a_note("one", uid=ULID, version="7", owner=an_id("nobody"), status={"mine": a_status()})
    reply = await calls.mutate_and_validate(resource)
    assert reply.resource is not None
    assert reply.resource.owner is not None
    assert reply.resource.owner.uid == ""
    assert reply.resource.version == "7"


async def test_a_payload_that_could_not_be_converted_is_refused() -> None:
    """Nothing can be said of it, as of one that does not decode."""
    calls = Calls(MemoryBackend(), versions())
    for type, said in ((V1, "could not be converted"), (ALONE, "not headway.resource.v1.Unconverted")):
        resource = a_team(type, roster())
        resource.data = AnyMessage(type_url="type.googleapis.com/headway.resource.v1.Unconverted")
        await refused(calls.mutate_and_validate(resource), Status.INVALID_ARGUMENT, said)


async def test_an_older_name_of_the_payload_is_judged_as_by_write() -> None:
    """By what is stored as the version of the request: another version's older name is none of this one's."""
    calls = Calls(MemoryBackend(), versions())
    stored = a_team(V1, roster("ada"))
    assert stored.id is not None
    assert stored.data is not None
    stored.id.uid, stored.generation, stored.id.tenancy = ULID, ULID, V1.tenancy
    stored.data.type_url = "type.googleapis.com/older.Roster"
    await calls.backend.commit((Put(V1.kind, resource_key(stored), stored, ""),))
    resource = a_team(V2, crew(("ada", "")))
    assert resource.data is not None
    resource.data.type_url = "type.googleapis.com/older.Roster"
    said = "resource.data of tests.v2.Team must be tests.v2.Crew, not older.Roster"
    await refused(calls.mutate_and_validate(copy_message(resource)), Status.INVALID_ARGUMENT, said)
    await refused(calls.write(resource), Status.INVALID_ARGUMENT, said)
    assert stored.data.type_url == "type.googleapis.com/older.Roster"
    same = a_team(V1, roster("ada"))
    same.data = stored.data
    await calls.mutate_and_validate(copy_message(same))
    await calls.write(copy_message(same))
