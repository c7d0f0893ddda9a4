"""MutateAndValidate: the resource that Write would store, as far as it can be computed without the store."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from headway.protobuf import copy_message
from headway.resource import DELETION_TIMESTAMP, AnyMessage, pb, resource_key
from headway.storage import MemoryBackend, Put
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import HOOKED, NOTE_V2, ULID, a_note, a_status, an_id, id_of, text_of
from tests.helpers.versions import ALONE, V1, V2, a_team, crew, roster, versions, without_converters
from tests.service.test_discretion import WriteOnly
from tests.service.wrong_resources import wrong_resources


@pytest.mark.parametrize(("resource", "said"), wrong_resources())
async def test_request_that_write_refuses_without_the_store_is_refused(
    in_memory: Calls, resource: pb.Resource | None, said: str
) -> None:
    """The checks and the messages are the same."""
    await refused(in_memory.mutate_and_validate(resource), Status.INVALID_ARGUMENT, said)


async def test_hooks_run_and_nothing_is_stored(calls: Calls) -> None:
    """The answer has the changes of defaults and mutate, and has no uid, version or generation."""
    reply = await calls.mutate_and_validate(a_note("one", "", HOOKED))
    assert reply.resource is not None
    assert text_of(reply.resource) == "untitled"
    assert id_of(reply.resource).tenancy == pb.Tenancy(partition="default", namespace="default")
    assert (id_of(reply.resource).uid, reply.resource.version, reply.resource.generation) == ("", "", "")
    assert calls.revision == 0
    bad = a_note("one", "bad", HOOKED)
    await refused(calls.mutate_and_validate(bad), Status.INVALID_ARGUMENT, "Hooked one: data.text 'bad' must be")


@pytest.mark.parametrize("mark", ["", "soon", "2024-02-02T10:00:00"])
async def test_invalid_mark_is_refused(calls: Calls, mark: str) -> None:
    """Write refuses the mark as well, whether or not the resource exists."""
    await calls.write(a_note("there"))
    for name in ("there", "absent"):
        said = f"metadata.deletionTimestamp {mark!r} must be a timestamp such as"
        marked = a_note(name, metadata={DELETION_TIMESTAMP: mark})
        await refused(calls.mutate_and_validate(marked), Status.INVALID_ARGUMENT, said)


async def test_checks_that_need_the_store_are_skipped(calls: Calls) -> None:
    """No owner is looked up, and no uid, version or status is compared."""
    await calls.write(a_note("one", type=NOTE_V2))
    resource = a_note("one", uid=ULID, version="7", owner=an_id("nobody"), status={"mine": a_status()})
    reply = await calls.mutate_and_validate(resource)
    assert reply.resource is not None
    assert reply.resource.owner is not None
    assert reply.resource.owner.uid == ""
    assert reply.resource.version == "7"


async def test_unconverted_payload_is_refused() -> None:
    """An unconverted payload cannot be checked, and neither can one that does not decode."""
    calls = Calls(MemoryBackend(), versions())
    for type, said in ((V1, "could not be converted"), (ALONE, "not headway.resource.v1.Unconverted")):
        resource = a_team(type, roster())
        resource.data = AnyMessage(type_url="type.googleapis.com/headway.resource.v1.Unconverted")
        await refused(calls.mutate_and_validate(resource), Status.INVALID_ARGUMENT, said)


async def test_older_payload_name_is_checked_as_by_write() -> None:
    """Only older names of the request's own version are valid."""
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


async def test_payload_that_the_storage_version_cannot_hold_is_refused() -> None:
    """The answer is that of a write, of a new resource and of a stored one."""
    calls = Calls(MemoryBackend(), versions(V1))
    wide = a_team(V2, crew(("ada", "lead"), room="B12"))
    for name in ("new", "stored"):
        if name == "stored":
            await calls.write(a_team(V2, crew(("ada", ""))))
        for answer in (calls.mutate_and_validate, calls.write):
            await refused(
                answer(copy_message(wide)),
                Status.INVALID_ARGUMENT,
                "would not be read back as written, because the resource is stored as tests.v1.Team",
            )
    reply = await calls.mutate_and_validate(a_team(V2, crew(("bea", ""))))
    assert reply.resource is not None


async def test_stored_resource_that_converts_no_more_is_refused() -> None:
    """A write in another version is merged with what is stored, so validate finds that, too."""
    calls = Calls(MemoryBackend(), versions())
    await Calls(calls.backend, without_converters()).write(a_team(V1, roster("ada", color="raise")))
    for answer in (calls.mutate_and_validate, calls.write):
        await refused(answer(a_team(V2, crew(("ada", "")))), Status.FAILED_PRECONDITION, "converting it from")
    blind = Calls(calls.backend, versions(), WriteOnly("name"))
    for answer in (blind.mutate_and_validate, blind.write):
        await refused(answer(a_team(V2, crew(("ada", "")))), Status.FAILED_PRECONDITION, "you may not read it")
