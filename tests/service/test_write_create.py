"""Write of a new resource: refusals, the server's fields, the owner, and the type's hooks."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway.api import Reason
from headway.protobuf import copy_message
from headway.resource import DELETION_TIMESTAMP, AnyMessage, Hooks, Resource, ResourceType, pb
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, Interrupted, refused
from tests.helpers.declared import (
    CHILD,
    HOOKED,
    NOTE,
    TYPES,
    ULID,
    Note,
    a_note,
    a_status,
    an_id,
    id_of,
    registry,
    text_of,
    uid_of,
)
from tests.service.conftest import reached
from tests.service.wrong_resources import wrong_resources

OWNER = an_id("boss")


MARK = "2024-02-02T10:00:00Z"


@pytest.mark.parametrize(("resource", "said"), wrong_resources())
async def test_invalid_resource_is_refused_with_the_field(
    in_memory: Calls, resource: pb.Resource | None, said: str
) -> None:
    """Nothing is stored.

    Unlike in Consul, a cluster-scoped type with a tenancy is refused, too. Stored, it could not be read by any Read.
    """
    await refused(in_memory.write(resource), Status.INVALID_ARGUMENT, said)
    assert in_memory.revision == 0


@pytest.mark.parametrize("type", TYPES, ids=lambda each: f"{each.name.version}{each.name.kind}")
async def test_new_resource_gets_its_uid_generation_and_version_from_the_server(
    calls: Calls, type: ResourceType[Any]
) -> None:
    """The resource is returned as stored, in the default tenancy of its scope."""
    stored = await calls.stored(a_note("one", "x", type))
    assert len(uid_of(stored)) == len(stored.generation) == 26
    assert stored.version == str(calls.revision)
    assert (await calls.read(id_of(stored))).resource == stored


async def test_resource_without_data_is_stored(calls: Calls) -> None:
    """A missing payload means a payload of all defaults."""
    stored = await calls.stored(pb.Resource(id=an_id()))
    assert stored.data is None
    assert text_of(stored) == ""


@pytest.mark.parametrize(
    ("resource", "status", "said"),
    [
        (a_note(version="7"), Status.ABORTED, "Note one does not exist, so it cannot be at version '7'"),
        (
            a_note(status={"mine": a_status()}),
            Status.INVALID_ARGUMENT,
            "status must be empty on creation, not have mine",
        ),
        (
            a_note(metadata={DELETION_TIMESTAMP: MARK}),
            Status.INVALID_ARGUMENT,
            "deletionTimestamp cannot be set on crea",
        ),
        (a_note(owner=OWNER), Status.INVALID_ARGUMENT, "resource.owner: Note boss not found; create it first"),
    ],
)
async def test_invalid_creation_is_refused(calls: Calls, resource: pb.Resource, status: Status, said: str) -> None:
    """The refused resources have a version, a status, a mark, or an owner that does not exist."""
    await refused(calls.write(resource), status, said)
    assert calls.revision == 0


async def test_uid_of_a_deleted_incarnation_does_not_recreate_it(calls: Calls) -> None:
    """Consul makes a new incarnation. Here, a writer can use the uid to update the resource only if it still exists."""
    stored = await calls.stored(a_note())
    await calls.delete(an_id())
    late = a_note(uid=uid_of(stored))
    await refused(calls.write(late), Status.FAILED_PRECONDITION, "Note one with uid", "no longer exists")
    assert await calls.names(NOTE) == []


@pytest.mark.parametrize("prefix", ["", "/", "example.com/", "https://example.com/some/", "type.googleapis.com/"])
async def test_type_url_is_compared_by_its_name_and_stored_in_canonical_form(calls: Calls, prefix: str) -> None:
    """Only the part after the last slash names a message. Consul's command line sends nothing else."""
    resource = a_note("one", "mine")
    assert resource.data is not None
    resource.data.type_url = prefix + "tests.Note"
    checked = await calls.mutate_and_validate(copy_message(resource))
    stored = await calls.stored(resource)
    read = (await calls.read(an_id("one"))).resource
    for answered in (checked.resource, stored, read):
        assert answered is not None
        assert answered.data is not None
        assert (answered.data.type_url, text_of(answered)) == (NOTE.type_url, "mine")


async def test_owner_is_looked_up_by_name_and_stored_with_its_uid(calls: Calls) -> None:
    """If the uid is missing, the owner's own uid is filled in, on creation and in later writes."""
    boss = await calls.stored(a_note("boss"))
    first = await calls.stored(a_note("one", type=CHILD, owner=an_id("boss")))
    assert first.owner == boss.id
    again = await calls.stored(a_note("one", type=CHILD, owner=an_id("boss")))
    assert again.owner == boss.id
    assert (await calls.stored(a_note("one", type=CHILD, owner=boss.id))).owner == boss.id


async def test_owner_with_a_uid_must_exist(calls: Calls) -> None:
    """Consul accepts any uid. There, a resource that is created under a deleted owner is never collected."""
    for owner in (an_id("boss", uid=ULID), an_id("boss")):
        await refused(
            calls.write(a_note(owner=owner)), Status.INVALID_ARGUMENT, "resource.owner: Note boss", "not found"
        )
    boss = await calls.stored(a_note("boss"))
    said = f"resource.owner: Note boss with uid {ULID} not found"
    await refused(calls.write(a_note(owner=an_id("boss", uid=ULID))), Status.INVALID_ARGUMENT, said)
    assert (await calls.stored(a_note(owner=boss.id))).owner == boss.id
    assert await calls.names(NOTE) == ["boss", "one"]


@pytest.mark.parametrize("with_uid", [False, True])
async def test_owner_deleted_before_the_commit_refuses_the_child(
    calls: Calls,
    racing: Calls,
    interrupted: Interrupted,
    autojump_clock: trio.testing.MockClock,
    with_uid: bool,
) -> None:
    """The commit of the child verifies the owner, so no child is created too late to be found."""
    boss = await calls.stored(a_note("boss"))
    interrupted.before_commit = [lambda: calls.delete(an_id("boss"))]
    owner = an_id("boss", uid=uid_of(boss) if with_uid else "")
    await refused(racing.write(a_note(owner=owner)), Status.INVALID_ARGUMENT, "resource.owner: Note boss", "not found")
    assert await calls.names(NOTE) == []
    assert autojump_clock.current_time() < 0.2


async def test_hooks_change_and_refuse_resources(calls: Calls) -> None:
    """The result of mutate is validated and stored. Changes that validate makes to its own copy are not."""
    stored = await calls.stored(a_note("one", "", HOOKED))
    assert text_of(stored) == "untitled"
    assert stored.metadata == {}
    await refused(
        calls.write(a_note("one", "bad", HOOKED)),
        Status.INVALID_ARGUMENT,
        "Hooked one: data.text 'bad' must be something good",
    )


async def test_validate_receives_the_payload_that_mutate_has_changed() -> None:
    """Without a change by mutate, it receives the payload of the request."""
    seen: list[str] = []

    def corrected(resource: Resource[Note]) -> None:
        if resource.data.text == "bad":
            resource.data.text = "good"

    hooks = Hooks(mutate=corrected, validate=lambda resource: seen.append(resource.data.text))
    corrects = ResourceType("tests", "v1", "Corrected", Note, hooks=hooks)
    known = registry()
    known.register(corrects)
    async with reached("in process", MemoryBackend(), types=known) as calls:
        for text in ("bad", "fine"):
            await calls.write(a_note("one", text, corrects))
    assert seen == ["good", "fine"]


def _broken(resource: Resource[Note]) -> None:
    raise RuntimeError(f"the password of {resource.id.name} is broken")


@pytest.mark.parametrize("how", ["in process", "network"])
@pytest.mark.parametrize("hook", ["mutate", "validate"])
async def test_exception_in_a_hook_is_reported_but_not_sent(how: str, hook: str) -> None:
    """The text of an exception is for the operator, unless the exception is a refusal."""
    hooks = Hooks(mutate=_broken) if hook == "mutate" else Hooks(validate=_broken)
    broken = ResourceType("tests", "v1", "Broken", Note, hooks=hooks)
    known = registry()
    known.register(broken)
    async with reached(how, MemoryBackend(), types=known) as calls:
        for call in (calls.write, calls.mutate_and_validate, calls.as_consul().write):
            # The reason shows a client that the outcome of the write is known.
            said = await refused(call(a_note(type=broken)), Status.INTERNAL, reason=Reason.NOTHING_WRITTEN)
            assert said == f"the {hook} hook of tests.v1.Broken failed"
            assert [repr(each) for each in calls.unexpected] == ["RuntimeError('the password of one is broken')"]
            calls.unexpected.clear()
        assert calls.revision == 0


async def test_hooks_get_an_empty_message_if_there_is_no_data(calls: Calls) -> None:
    """In Consul, a hook that changes the missing data crashes."""
    stored = await calls.stored(pb.Resource(id=an_id(type=HOOKED)))
    assert text_of(stored) == "untitled"


async def test_data_that_hooks_cannot_decode_is_a_caller_error(calls: Calls) -> None:
    """The error names the payload and not the hook."""
    resource = a_note("one", "", HOOKED)
    resource.data = AnyMessage(type_url=HOOKED.type_url, value=b"\xff\xff")
    await refused(calls.write(resource), Status.INVALID_ARGUMENT, "resource.data of Hooked one: not a valid Note")


async def test_unencodable_resource_is_refused_before_it_is_stored(calls: Calls) -> None:
    """A request made in this process may hold values that cannot be sent over a wire. Every store refuses them."""
    resource = a_note(metadata={"broken": "\ud800"})
    await refused(calls.write(resource), Status.INVALID_ARGUMENT, "metadata")
    assert calls.revision == 0
