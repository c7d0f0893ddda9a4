"""Callers that may write but not read: no reply and no refusal reveals stored content."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from grpclib.const import Status

from headway.errors import HeadwayError
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, Hooks, Resource, ResourceId, ResourceType, TypeName, pb
from headway.service import Decision
from headway.storage import Backend, MemoryBackend
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import NOTE, NOTE_V2, ULID, Note, a_note, a_status, an_id, id_of, registry, text_of, uid_of
from tests.helpers.service_errors import status_of
from tests.service.conftest import reached

SECRET = "secret"
"""A text in everything stored below and in no request."""


class WriteOnly:
    """An authorizer that allows every write and denies reads.

    It denies by name or, given the resource, if the content says "secret".
    """

    def __init__(self, by: str, *, deletes: bool = True) -> None:
        self._by = by
        self._deletes = deletes

    def may_know(self, type: TypeName) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_read(self, id: ResourceId, resource: Resource[Any] | None) -> Decision:
        if self._by == "name":
            return Decision.ALLOWED if id.name == "boss" else Decision.DENIED
        if resource is None:
            return Decision.NEEDS_RESOURCE
        return Decision.DENIED if SECRET in str(resource.metadata) else Decision.ALLOWED

    def may_write(self, id: ResourceId, resource: Resource[Any] | None) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_delete(self, id: ResourceId) -> bool:  # noqa: ARG002 - likewise
        return self._deletes

    def may_take_lease(self, name: str) -> bool:  # noqa: ARG002 - likewise
        return True

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:  # noqa: ARG002 - likewise
        return True


@pytest.fixture(params=["name in process", "name network", "content in process"])
async def blind(request: pytest.FixtureRequest, backend: Backend) -> AsyncIterator[Calls]:
    """Return a service over the same store as ``calls``, for a caller without read permission."""
    by, how = request.param.split(" ", 1)
    async with reached(how, backend, WriteOnly(by)) as service:
        yield service
        assert service.unexpected == []


async def a_secret(calls: Calls, **metadata: str) -> pb.Resource:
    """Store a resource that has a secret in each of its parts."""
    await calls.write(a_note("boss"))
    stored = await calls.stored(a_note("one", SECRET, metadata={"plan": SECRET, **metadata}, owner=an_id("boss")))
    status = a_status(stored.generation)
    status.conditions[0].message = SECRET
    reply = await calls.write_status(id_of(stored), status, key="secret-key")
    assert reply.resource is not None
    return reply.resource


async def test_write_returns_the_content_sent_by_its_writer(calls: Calls, blind: Calls) -> None:
    """The answer also has the state that the write made, but not the stored status and finalizers."""
    stored = await a_secret(calls, finalizers="secret.cleanup")
    own = a_note("one", "mine", metadata={"plan": "mine, no more secret"}, owner=an_id("boss"))
    reply = await blind.write(own)
    kept = (await calls.read(an_id())).resource
    assert kept is not None
    assert reply.resource is not None
    answered = pb.Resource(
        id=stored.id,
        owner=an_id("boss", partition="default", namespace="default"),
        version=kept.version,
        generation=kept.generation,
        metadata=own.metadata,
        data=own.data,
    )
    assert reply.resource == answered
    assert (kept.metadata[FINALIZERS], text_of(kept)) == ("secret.cleanup", "mine")
    assert kept.status == stored.status


async def test_creation_returns_the_content_sent_by_its_writer(calls: Calls, blind: Calls) -> None:
    """The answer has all of the content, and the position."""
    reply = await blind.write(a_note("one", "mine", metadata={"plan": SECRET}))
    kept = (await calls.read(an_id())).resource
    assert reply.resource == kept


def _reveal(resource: Resource[Note]) -> None:
    resource.data.text += " and a secret"
    resource.metadata["plan"] = SECRET


@pytest.mark.parametrize("by", ["name", "content"])
async def test_additions_of_a_hook_are_redacted(by: str) -> None:
    """Write and MutateAndValidate return only the request's own content, at creation and later."""
    hooked = ResourceType("tests", "v1", "Revealing", Note, hooks=Hooks(mutate=_reveal))
    known = registry()
    known.register(hooked)
    backend = MemoryBackend()
    calls, blind = Calls(backend, known), Calls(backend, known, WriteOnly(by))
    for _ in range(2):
        for call in (blind.mutate_and_validate, blind.write):
            reply = await call(a_note("one", "mine", hooked, metadata={"own": "mine"}))
            assert reply.resource is not None
            assert (text_of(reply.resource), reply.resource.metadata) == ("mine", {"own": "mine"})
    kept = (await calls.read(an_id("one", hooked))).resource
    assert kept is not None
    assert kept.metadata == {"own": "mine", "plan": SECRET}


async def test_status_write_returns_only_that_status(calls: Calls, blind: Calls) -> None:
    """The answer omits other statuses, the data and the metadata.

    It also hides whether the status was stored already.
    """
    stored = await a_secret(calls)
    for _ in range(2):
        reply = await blind.write_status(id_of(stored), a_status(stored.generation))
        kept = (await calls.read(an_id())).resource
        assert kept is not None
        answered = pb.Resource(
            id=stored.id, version=kept.version, generation=kept.generation, status={"mine": kept.status["mine"]}
        )
        assert reply.resource == answered


async def test_deletion_returns_the_mark_without_finalizers(calls: Calls, blind: Calls) -> None:
    """The owners of the finalizers are redacted. A second delete is answered like a delete of a free name."""
    stored = await a_secret(calls, finalizers="secret.cleanup")
    reply = await blind.delete(an_id())
    kept = (await calls.read(an_id())).resource
    assert kept is not None
    mark = {DELETION_TIMESTAMP: kept.metadata[DELETION_TIMESTAMP]}
    assert reply.resource == pb.Resource(id=stored.id, version=kept.version, generation=kept.generation, metadata=mark)
    for wanted in (an_id(), id_of(stored)):
        assert (await blind.delete(wanted)).resource is None
    assert (await calls.delete(an_id())).resource == kept


async def test_guessed_version_of_a_marked_resource_reveals_nothing() -> None:
    """The right version is refused like a wrong one."""
    backend = MemoryBackend()
    calls, blind = Calls(backend, registry()), Calls(backend, registry(), WriteOnly("name"))
    await a_secret(calls, finalizers="secret.cleanup")
    kept = (await calls.delete(an_id())).resource
    assert kept is not None
    for version in (kept.version, "1"):
        await refused(blind.delete(an_id(), version=version), Status.ABORTED, f"not stored at version {version}")


async def test_status_in_another_version_of_the_kind_reveals_nothing(calls: Calls, blind: Calls) -> None:
    """The right uid is refused like a wrong one. A caller with read permission gets the stored version."""
    stored = await a_secret(calls)
    said = "not found"
    for uid in (uid_of(stored), ULID):
        call = blind.write_status(an_id("one", NOTE_V2, uid=uid), a_status(stored.generation))
        await refused(call, Status.NOT_FOUND, f"with uid {uid} {said}")
    call = calls.write_status(an_id("one", NOTE_V2, uid=uid_of(stored)), a_status(stored.generation))
    await refused(call, Status.INVALID_ARGUMENT, "v1")


async def test_uid_does_not_reveal_a_taken_name_under_consuls_name(calls: Calls, blind: Calls) -> None:
    """A Write with the uid of a deleted resource creates a new one for callers with read permission.

    Other callers get the same refusal whether or not the name is taken.
    """
    await a_secret(calls)
    for name in ("one", "free"):
        said = f"{name} with uid {ULID} no longer exists"
        await refused(blind.as_consul().write(a_note(name, uid=ULID)), Status.FAILED_PRECONDITION, said)


def owned(**metadata: str) -> pb.Resource:
    """Return the stored content that the owner reads."""
    return a_note(metadata=metadata, owner=an_id("boss"))


Attempt = Callable[[Calls, pb.Resource], Awaitable[object]]
REFUSED: dict[str, tuple[Attempt, Status]] = {
    "another version": (
        lambda calls, stored: calls.write(a_note(uid=id_of(stored).uid, version="999")),
        Status.ABORTED,
    ),
    "a status at another version": (
        lambda calls, stored: calls.write_status(id_of(stored), a_status(), version="999"),
        Status.ABORTED,
    ),
    "an older status": (
        lambda calls, stored: calls.write_status(id_of(stored), a_status("0" + ULID[1:]), key="secret-key"),
        Status.ABORTED,
    ),
    "a deletion at another version": (
        lambda calls, stored: calls.delete(an_id(uid=id_of(stored).uid), version="999"),
        Status.ABORTED,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_refusal_reveals_nothing_stored(calls: Calls, blind: Calls, what: str) -> None:
    """A caller that knows the uid learns only that stored content conflicts with the write."""
    stored = await a_secret(calls)
    attempt, status = REFUSED[what]
    with pytest.raises(HeadwayError) as seeing:
        await attempt(calls, stored)
    assert status_of(seeing.value) is status
    said = await refused(attempt(blind, stored), status)
    assert said == "Note one: the stored resource forbids it, and you may not read it"
    assert said != str(seeing.value)


GUESSES: dict[str, Callable[[Calls], Awaitable[object]]] = {
    "a write with another uid": lambda calls: calls.write(a_note(uid=ULID)),
    "a write at another version": lambda calls: calls.write(a_note(version="999")),
    "a write of both": lambda calls: calls.write(a_note(uid=ULID, version="999")),
    "a write of a status": lambda calls: calls.write(a_note(status={"x": a_status()})),
    "a write with an owner that is gone": lambda calls: calls.write(a_note(owner=an_id("boss", uid=ULID))),
    "a write of a mark": lambda calls: calls.write(
        a_note(metadata={DELETION_TIMESTAMP: "2024-02-02T10:00:00Z"}, owner=an_id("boss"))
    ),
    "a status with another uid": lambda calls: calls.write_status(an_id(uid=ULID), a_status()),
    "a deletion with another uid": lambda calls: calls.delete(an_id(uid=ULID)),
    "a deletion with an invalid uid": lambda calls: calls.delete(an_id(uid="anything")),
    "a deletion with another uid and version": lambda calls: calls.delete(an_id(uid=ULID), version="999"),
    "a deletion at another version": lambda calls: calls.delete(an_id(), version="999"),
    "a deletion of another version of the kind": lambda calls: calls.delete(an_id(type=NOTE_V2)),
    "the same at a version": lambda calls: calls.delete(an_id(type=NOTE_V2), version="999"),
    "the same with another uid": lambda calls: calls.delete(an_id(type=NOTE_V2, uid=ULID)),
}


async def outcome(call: Awaitable[object]) -> tuple[object, ...]:
    """Return the answer without its position, or the status and message of the refusal."""
    try:
        reply = await call
    except HeadwayError as error:
        return status_of(error), str(error)
    assert isinstance(reply, pb.DeleteResponse)
    return (reply.resource,)


@pytest.mark.parametrize("name", ["Headway's", "Consul's"])
async def test_guess_is_answered_alike_whether_or_not_the_name_is_taken(calls: Calls, blind: Calls, name: str) -> None:
    """A guess changes nothing, so it does not show a caller without read permission that a resource exists."""
    asking = blind.as_consul() if name == "Consul's" else blind
    # Under Consul's name, a write with an unknown uid creates the resource if the name is free.
    guesses = {what: guess for what, guess in GUESSES.items() if asking is blind or what != "a write with another uid"}
    absent = {what: await outcome(guess(asking)) for what, guess in guesses.items()}
    stored = await a_secret(calls)
    assert {what: await outcome(guess(asking)) for what, guess in guesses.items()} == absent
    assert (await calls.read(an_id())).resource == stored


async def test_guessed_mark_is_answered_like_a_new_mark() -> None:
    """Only a caller that may read a mark can preserve it.

    Other callers need the right to delete, whether or not the resource is marked.
    """
    backend = MemoryBackend()
    calls, blind = Calls(backend, registry()), Calls(backend, registry(), WriteOnly("name", deletes=False))
    guess = GUESSES["a write of a mark"]
    absent = await outcome(guess(blind))
    assert absent[0] is Status.PERMISSION_DENIED
    await a_secret(calls, finalizers="secret.cleanup")
    assert await outcome(guess(blind)) == absent
    await calls.delete(an_id())
    assert await outcome(guess(blind)) == absent


async def test_refusal_for_a_frozen_resource_omits_the_differences(calls: Calls, blind: Calls) -> None:
    """Only readers learn which finalizers hold the resource and which parts differ."""
    await a_secret(calls, finalizers="secret.cleanup")
    await calls.delete(an_id())
    said = await refused(blind.write(owned(plan="guessed")), Status.INVALID_ARGUMENT)
    assert said == "Note one: the stored resource forbids it, and you may not read it"


async def test_missing_resource_is_refused_like_another_incarnation(calls: Calls, blind: Calls) -> None:
    """The message is the same for every caller."""
    absent = await refused(blind.write_status(an_id(uid=ULID), a_status()), Status.NOT_FOUND)
    await a_secret(calls)
    assert await refused(blind.write_status(an_id(uid=ULID), a_status()), Status.NOT_FOUND) == absent


async def test_owner_hidden_by_its_content_is_reported_as_not_found(backend: Backend, calls: Calls) -> None:
    """Creating a child does not reveal whether its owner exists."""
    blind = Calls(backend, registry(), WriteOnly("content"))
    child = a_note("child", type=NOTE, owner=an_id("owner"))
    absent = await refused(blind.write(child), Status.INVALID_ARGUMENT, "Note owner not found; create it first")
    await calls.write(a_note("owner", metadata={"plan": SECRET}))
    child = a_note("child", type=NOTE, owner=an_id("owner"))
    assert await refused(blind.write(child), Status.INVALID_ARGUMENT) == absent
    assert await calls.names(NOTE) == ["owner"]
