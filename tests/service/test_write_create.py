"""Write: what is refused, what a new resource is given, its owner, and its type's hooks."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway.resource import DELETION_TIMESTAMP, AnyMessage, Hooks, Resource, ResourceType, copy_message, pb
from headway.service import NOTHING_WRITTEN
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
async def test_a_wrong_resource_is_refused_by_a_sentence_that_names_the_field(
    in_memory: Calls, resource: pb.Resource | None, said: str
) -> None:
    """Nothing of it is stored. Unlike the origin, a cluster-scoped type with a tenancy too
    is refused here and not stored where no Read finds it.
    """
    await refused(in_memory.write(resource), Status.INVALID_ARGUMENT, said)
    assert in_memory.revision == 0


@pytest.mark.parametrize("type", TYPES, ids=lambda each: f"{each.name.version}{each.name.kind}")
async def test_the_server_gives_a_new_resource_its_uid_generation_and_version(
    calls: Calls, type: ResourceType[Any]
) -> None:
    """Whole as stored, in the default tenancy of its scope."""
    stored = await calls.stored(a_note("one", "x", type))
    assert len(uid_of(stored)) == len(stored.generation) == 26
    assert stored.version == str(calls.revision)
    assert (await calls.read(id_of(stored))).resource == stored


async def test_a_resource_without_data_is_stored(calls: Calls) -> None:
    """No payload is the payload of all defaults."""
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
async def test_what_may_not_be_created_is_refused(
    calls: Calls, resource: pb.Resource, status: Status, said: str
) -> None:
    """A version of nothing, a status, a mark, an owner that nobody can find."""
    await refused(calls.write(resource), status, said)
    assert calls.revision == 0


async def test_the_uid_of_a_deleted_incarnation_does_not_recreate_it(calls: Calls) -> None:
    """The origin makes a new incarnation; here "update it if it is still alive" can be said, by its uid."""
    stored = await calls.stored(a_note())
    await calls.delete(an_id())
    late = a_note(uid=uid_of(stored))
    await refused(calls.write(late), Status.FAILED_PRECONDITION, "Note one with uid", "no longer exists")
    assert await calls.names(NOTE) == []


@pytest.mark.parametrize("prefix", ["", "/", "example.com/", "https://example.com/some/", "type.googleapis.com/"])
async def test_type_url_is_compared_by_its_name_and_stored_in_canonical_form(calls: Calls, prefix: str) -> None:
    """Only what follows the last slash names a message: Consul's command line sends nothing else."""
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


async def test_an_owner_is_found_by_name_and_kept_by_uid(calls: Calls) -> None:
    """Without a uid the owner's own is filled in, on creation and as a matter of course later."""
    boss = await calls.stored(a_note("boss"))
    first = await calls.stored(a_note("one", type=CHILD, owner=an_id("boss")))
    assert first.owner == boss.id
    again = await calls.stored(a_note("one", type=CHILD, owner=an_id("boss")))
    assert again.owner == boss.id
    assert (await calls.stored(a_note("one", type=CHILD, owner=boss.id))).owner == boss.id


async def test_an_owner_with_a_uid_must_be_there_too(calls: Calls) -> None:
    """The origin takes any uid, and what is created under one that has gone is owned by nobody for ever."""
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
async def test_an_owner_that_goes_before_the_commit_refuses_the_child(
    calls: Calls,
    racing: Calls,
    interrupted: Interrupted,
    autojump_clock: trio.testing.MockClock,
    with_uid: bool,
) -> None:
    """Whether it is there is asked in the child's own commit, so that no child comes too late to be found."""
    boss = await calls.stored(a_note("boss"))
    interrupted.before_commit = [lambda: calls.delete(an_id("boss"))]
    owner = an_id("boss", uid=uid_of(boss) if with_uid else "")
    await refused(racing.write(a_note(owner=owner)), Status.INVALID_ARGUMENT, "resource.owner: Note boss", "not found")
    assert await calls.names(NOTE) == []
    assert autojump_clock.current_time() < 0.2


async def test_an_owner_is_set_at_creation_only(calls: Calls) -> None:
    """Neither added, nor removed, nor replaced, and the answer says what it is."""
    boss = await calls.stored(a_note("boss"))
    await calls.write(a_note("other"))
    await calls.write(a_note("owned", owner=an_id("boss")))
    await calls.write(a_note("free"))
    uid = uid_of(boss)
    for resource, said in (
        (a_note("owned"), f"it is Note boss with uid {uid}, not none"),
        (a_note("owned", owner=an_id("other")), f"it is Note boss with uid {uid}, not Note other with uid (any)"),
        (
            a_note("owned", owner=an_id("boss", uid=ULID)),
            f"it is Note boss with uid {uid}, not Note boss with uid {ULID}",
        ),
        (a_note("free", owner=an_id("boss", uid=uid)), f"it is none, not Note boss with uid {uid}"),
    ):
        await refused(calls.write(resource), Status.INVALID_ARGUMENT, "owner can only be set at creation", said)


async def test_hooks_fill_in_and_refuse(calls: Calls) -> None:
    """What mutate leaves is validated and stored; what validate does to its own copy is not."""
    stored = await calls.stored(a_note("one", "", HOOKED))
    assert text_of(stored) == "untitled"
    assert stored.metadata == {}
    await refused(
        calls.write(a_note("one", "bad", HOOKED)),
        Status.INVALID_ARGUMENT,
        "Hooked one: data.text 'bad' must be something good",
    )


def _broken(resource: Resource[Note]) -> None:
    raise RuntimeError(f"the password of {resource.id.name} is broken")


@pytest.mark.parametrize("how", ["in process", "network"])
@pytest.mark.parametrize("hook", ["mutate", "validate"])
async def test_what_breaks_in_a_hook_is_reported_and_not_told(how: str, hook: str) -> None:
    """The text of an exception that is no refusal is for the operator."""
    broken = ResourceType("tests", "v1", "Broken", Note, hooks=Hooks(**{hook: _broken}))
    known = registry()
    known.register(broken)
    async with reached(how, MemoryBackend(), types=known) as calls:
        for call in (calls.write, calls.mutate_and_validate, calls.as_origin().write):
            said = await refused(call(a_note(type=broken)), Status.INTERNAL)
            # A write says besides, to whoever knows the word, that its outcome is known.
            assert said.removeprefix(NOTHING_WRITTEN) == f"the {hook} hook of tests.v1.Broken failed"
            assert said.startswith(NOTHING_WRITTEN) is (call != calls.mutate_and_validate)
            assert [repr(each) for each in calls.unexpected] == ["RuntimeError('the password of one is broken')"]
            calls.unexpected.clear()
        assert calls.revision == 0


async def test_hooks_see_an_empty_message_where_there_is_no_data(calls: Calls) -> None:
    """In the origin one that changes it crashes."""
    stored = await calls.stored(pb.Resource(id=an_id(type=HOOKED)))
    assert text_of(stored) == "untitled"


async def test_data_that_hooks_cannot_look_at_is_the_callers_fault(calls: Calls) -> None:
    """Bytes that are no payload are named as such, not as a broken hook."""
    resource = a_note("one", "", HOOKED)
    resource.data = AnyMessage(type_url=HOOKED.type_url, value=b"\xff\xff")
    await refused(calls.write(resource), Status.INVALID_ARGUMENT, "resource.data of Hooked one: not a valid Note")


async def test_what_no_bytes_can_hold_is_refused_before_it_is_stored(calls: Calls) -> None:
    """A request made in this process may hold what no wire would have carried; SQLite's store says so by name."""
    resource = a_note(metadata={"broken": "\ud800"})
    if isinstance(calls.backend, MemoryBackend):
        await calls.write(resource)  # which needs no bytes
    else:
        await refused(calls.write(resource), Status.INVALID_ARGUMENT, "metadata")
        assert calls.revision == 0
