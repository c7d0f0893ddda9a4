"""Data stored under an older name of its message: reads, changes, finalizers, deletions, and the rename by a Write."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from grpclib.const import Status

from headway.client import Client
from headway.protobuf import copy_message, encode, field, message
from headway.resource import FINALIZERS, AnyMessage, Registry, ResourceType, pb, resource_key
from headway.storage import Backend, MemoryBackend, Put
from tests.helpers.calls import Calls, over_the_network, refused
from tests.helpers.declared import ULID, a_status
from tests.service.test_discretion import WriteOnly


@message(name="__main__.Crew")
class Crew:
    members: list[str] = field(1)


@message
class Team:
    members: list[str] = field(1)


FORMER = ResourceType("staff", "v1", "Team", Crew)
PRESENT = ResourceType("staff", "v1", "Team", Team)
OLD_URL = "type.googleapis.com/__main__.Crew"
SAID = "resource.data of staff.v1.Team must be staff.v1.Team, not __main__.Crew"


def registry(type: ResourceType[Crew] | ResourceType[Team]) -> Registry:
    made = Registry()
    made.register(type)
    return made


@pytest.fixture(params=["in process", "network", "network, as Consul's"])
async def calls(request: pytest.FixtureRequest, backend: Backend) -> AsyncIterator[Calls]:
    """Return a program with the present name, on a store that was written by a program with the older name."""
    former = Calls(backend, registry(FORMER))
    await former.write(FORMER.new("core", Crew(members=["ada"]), metadata={FINALIZERS: "one"}).message())
    if request.param == "in process":
        yield Calls(backend, registry(PRESENT))
        return
    async with over_the_network(backend, registry(PRESENT)) as service:
        yield service.as_consul() if "Consul" in request.param else service


async def core(calls: Calls) -> pb.Resource:
    found = (await calls.read(PRESENT.id("core").message())).resource
    assert found is not None
    assert found.data is not None
    # In process, the resource that was read is shared with the store.
    return copy_message(found)


async def test_finalizer_of_a_resource_with_an_older_name_can_be_removed(calls: Calls) -> None:
    """The resource is written back with the older name, as it was read, and stored with the present name."""
    found = await core(calls)
    assert found.data is not None
    assert (PRESENT.view(found).data.members, found.data.type_url) == (["ada"], OLD_URL)
    assert found.id is not None
    status = a_status()
    status.observed_generation = found.generation
    await calls.write_status(found.id, status)
    marked = (await calls.delete(found.id)).resource
    assert marked is not None
    assert marked.data == found.data
    marked = copy_message(marked)
    del marked.metadata[FINALIZERS]
    stored = (await calls.write(marked)).resource
    assert stored is not None
    assert stored.data is not None
    assert (stored.data.type_url, stored.data.value) == (PRESENT.type_url, found.data.value)
    assert (await calls.delete(found.id)).resource is None


async def test_older_name_is_checked_and_replaced(calls: Calls) -> None:
    """MutateAndValidate and a Write without a version check and replace it.

    A second Write by the older name is refused.
    """
    found = await core(calls)
    found.version = ""
    checked = (await calls.mutate_and_validate(copy_message(found))).resource
    assert checked is not None
    assert checked.data is not None
    assert checked.data.type_url == PRESENT.type_url
    await calls.write(copy_message(found))
    assert (await core(calls)).data == checked.data
    await refused(calls.write(copy_message(found)), Status.INVALID_ARGUMENT, SAID)
    await refused(calls.mutate_and_validate(found), Status.INVALID_ARGUMENT, SAID)


async def test_creation_by_an_older_name_is_refused(calls: Calls) -> None:
    """Any other name is refused, too, except the name of this class in earlier versions: its module and name."""
    made = FORMER.new("tools", Crew(members=["bob"])).message()
    await refused(calls.write(copy_message(made)), Status.INVALID_ARGUMENT, SAID)
    found = await core(calls)
    assert found.data is not None
    found.data.type_url = "type.googleapis.com/acme.Else"
    await refused(calls.write(found), Status.INVALID_ARGUMENT, "must be staff.v1.Team, not acme.Else")
    assert made.data is not None
    made.data.type_url = f"type.googleapis.com/{__name__}.Team"
    stored = (await calls.write(made)).resource
    assert stored is not None
    assert stored.data is not None
    assert stored.data.type_url == PRESENT.type_url


async def test_caller_without_read_permission_learns_nothing_from_a_name(backend: Backend) -> None:
    """The refusal is the same as for a free name."""
    await Calls(backend, registry(FORMER)).write(FORMER.new("core", Crew()).message())
    blind = Calls(backend, registry(PRESENT), WriteOnly("name"))
    for name in ("core", "free"):
        await refused(blind.write(FORMER.new(name, Crew()).message()), Status.INVALID_ARGUMENT, SAID)


async def test_client_changes_a_resource_stored_under_an_older_name(calls: Calls) -> None:
    """The client uses the calls that programs use: apply, write and delete."""
    client = Client(calls.channel, registry(PRESENT))
    applied = await client.apply(PRESENT.new("core", Team(members=["ada", "bob"])))
    assert applied.data.members == ["ada", "bob"]
    assert encode(applied.data) == encode(Crew(members=["ada", "bob"]))
    applied.finalizers = set()
    await client.write(applied)
    assert await client.delete(applied) is None


GARBAGE = b"\x0a\x30" + b"\xff" * 48


@pytest.mark.parametrize("name", ["__main__.Crew", f"{__name__}.Team", "staff.v1.Team"])
async def test_undecodable_resource_is_released_under_any_stored_name(name: str) -> None:
    """The writer returns the data that it read.

    The present name of the payload does not count as a change of the data.
    """
    calls = Calls(MemoryBackend(), registry(PRESENT))
    await put(calls, f"type.googleapis.com/{name}", GARBAGE)
    marked = (await calls.delete(PRESENT.id("core").message())).resource
    assert marked is not None
    assert marked.data is not None
    assert marked.data.value == GARBAGE
    for left in ("two", ""):
        marked = copy_message(marked)
        marked.metadata[FINALIZERS] = left
        marked = await calls.stored(marked)
    assert (await calls.delete(PRESENT.id("core").message())).resource is None


async def put(calls: Calls, type_url: str, data: bytes) -> pb.Resource:
    """Store a resource that no Write of this program would store."""
    resource = PRESENT.new("core", Team(), metadata={FINALIZERS: "one two"}).message()
    assert resource.id is not None
    resource.id.uid, resource.generation, resource.id.tenancy = ULID, ULID, PRESENT.tenancy
    resource.data = AnyMessage(type_url=type_url, value=data)
    await calls.backend.commit((Put(PRESENT.kind, resource_key(resource), resource, ""),))
    return await core(calls)


async def test_stale_version_under_an_older_name_is_a_conflict() -> None:
    """The first of two writers has stored the present name. The second must read again, as after any lost race."""
    calls = Calls(MemoryBackend(), registry(PRESENT))
    first = await put(calls, OLD_URL, encode(Team(members=["ada"])))
    second, blanket = copy_message(first), copy_message(first)
    await calls.write(first)
    await refused(calls.write(second), Status.ABORTED, "is stored at version 2, not 1; read it again")
    blanket.version = ""
    await refused(calls.write(blanket), Status.INVALID_ARGUMENT, SAID)
    gone = copy_message(second)
    assert gone.id is not None
    gone.id.name, gone.id.uid = "gone", ""
    await refused(calls.write(gone), Status.ABORTED, "does not exist, so it cannot be at version")
