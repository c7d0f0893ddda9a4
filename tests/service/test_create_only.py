"""Write with create_only: it creates, or reports that the name is taken. It never replaces a resource."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing
from grpclib.const import Status
from ulid_transform import ulid_now

from headway.api import Reason
from headway.resource import pb
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, Interrupted, refused
from tests.helpers.declared import CHILD, NOTE_V2, a_note, an_id, id_of, text_of, uid_of
from tests.helpers.versions import ALONE, V1, V3, a_team, data_of, roster, versions
from tests.service.conftest import reached
from tests.service.test_discretion import SECRET, WriteOnly


async def create(calls: Calls, resource: pb.Resource, token: str = "", **rest: Any) -> pb.Resource:
    return await calls.stored(resource, create_only=True, create_token=token, **rest)


async def test_taken_name_is_refused(anywhere: Calls) -> None:
    """The content, the version of the type and the given uid make no difference. Nothing is written."""
    first = await create(anywhere, a_note("one", "a"))
    at = anywhere.revision
    for again in (a_note("one", "a"), a_note("one", "b"), a_note("one", "", NOTE_V2)):
        await refused(create(anywhere, again), Status.ALREADY_EXISTS, "Note one already exists")
        await refused(create(anywhere.as_consul(), again), Status.ALREADY_EXISTS, "Note one already exists")
    assert anywhere.revision == at
    assert (await anywhere.read(id_of(first))).resource == first
    await anywhere.delete(id_of(first))
    assert text_of(await create(anywhere, a_note("one", "c"))) == "c"


async def test_creator_that_loses_the_race_is_refused(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock
) -> None:
    """The name was free when the creator read it, and is taken at the time of the commit."""
    assert autojump_clock.autojump_threshold == 0
    interrupted.before_commit = [lambda: calls.write(a_note("one", "winner"))]
    await refused(create(racing, a_note("one", "loser")), Status.ALREADY_EXISTS, "Note one already exists")
    assert text_of((await calls.read(an_id("one"))).resource) == "winner"


async def test_repeated_creation_gets_the_first_answer(anywhere: Calls) -> None:
    """The token identifies the creation, also after other writers have changed the resource.

    Another token, name or type does not match.
    """
    first = await create(anywhere, a_note("one", "a"), "token")
    at = anywhere.revision
    assert await create(anywhere, a_note("one", "a"), "token") == first
    assert anywhere.revision == at
    changed = await anywhere.stored(a_note("one", "b"))
    assert await create(anywhere, a_note("one", "a"), "token") == changed
    await refused(create(anywhere, a_note("one", "a"), "other"), Status.ALREADY_EXISTS)
    await refused(create(anywhere, a_note("one", "a")), Status.ALREADY_EXISTS)
    other = await create(anywhere, a_note("two"), "token")
    child = await create(anywhere, a_note("one", "", CHILD), "token")
    assert len({uid_of(each)[-16:] for each in (first, other, child)}) == 3
    assert all(len(uid_of(each)) == 26 for each in (first, other, child))


async def test_recreation_after_a_deletion_is_another_incarnation(calls: Calls) -> None:
    """A uid never returns, not even for the same token."""
    first = await create(calls, a_note("one"), "token")
    await calls.delete(id_of(first))
    # The first ten characters of a ULID are its millisecond.
    while ulid_now()[:10] == uid_of(first)[:10]:
        pass
    again = await create(calls, a_note("one"), "token")
    assert uid_of(again)[10:] == uid_of(first)[10:]
    assert uid_of(again) > uid_of(first)


async def test_invalid_creation_is_refused(calls: Calls) -> None:
    """The invalid creations have a version, a token without create_only, or a token that is too long."""
    resource = a_note("one")
    resource.version = "7"
    await refused(
        create(calls, resource), Status.INVALID_ARGUMENT, "resource.version '7' must be empty with create_only"
    )
    await refused(
        calls.write(a_note(), create_token="x"), Status.INVALID_ARGUMENT, "create_token must be empty without"
    )
    await refused(create(calls, a_note(), "x" * 256), Status.INVALID_ARGUMENT, "create_token")
    assert calls.revision == 0


async def test_superseded_run_is_fenced_even_if_the_name_is_taken(calls: Calls) -> None:
    """An answer that the creation exists would let the run continue."""
    await create(calls, a_note("one"), "token")
    old = pb.Fence(controller="app/c", member="", term=1, number=0)
    for _ in range(2):
        await calls.raise_fence("app/c")
    await refused(create(calls, a_note("one"), "token", fence=old), Status.FAILED_PRECONDITION, reason=Reason.FENCED)


@pytest.mark.parametrize("how", ["in process", "network"])
async def test_caller_without_read_permission_learns_only_that_the_name_is_taken(how: str) -> None:
    """The refusal contains no uid, version or content."""
    backend = MemoryBackend()
    async with reached(how, backend) as calls:
        await calls.write(a_note("one", SECRET))
    async with reached(how, backend, WriteOnly("name")) as calls:
        said = await refused(create(calls, a_note("one")), Status.ALREADY_EXISTS)
        replace = "replace it by a Write without create_only (in Python client.write)"
        assert said == f"Note one already exists; read it, or {replace}"


async def test_repeated_creation_is_not_answered_in_an_unconvertible_version() -> None:
    """Another writer has replaced the resource by a version without a converter.

    A resource in a version with a converter is converted.
    """
    calls = Calls(MemoryBackend(), versions())
    await create(calls, a_team(V1, roster("ada")), "token")
    await calls.write(a_team(V3, V3.payload()))
    assert data_of(await create(calls, a_team(V1, roster("ada")), "token"), V1) == roster()
    await calls.write(a_team(ALONE, roster(SECRET)))
    again = create(calls, a_team(V1, roster("ada")), "token")
    await refused(again, Status.INVALID_ARGUMENT, "stored as tests.v9.Team", "requested as version 'v1'")
    blind = Calls(calls.backend, versions(), WriteOnly("name"))
    told = await refused(create(blind, a_team(V1, roster("ada")), "token"), Status.INVALID_ARGUMENT)
    assert told == "Team one: the stored resource forbids it, and you may not read it"
    await create(calls, a_note("two"), "token")
    await calls.write(a_note("two", "", NOTE_V2))
    again = create(calls, a_note("two"), "token")
    await refused(again, Status.INVALID_ARGUMENT, "stored as tests.v2.Note", "requested as version 'v1'")
