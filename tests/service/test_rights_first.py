"""Authorization before everything else: before hooks and filters, and before the caller learns that a type exists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from grpclib.const import Status

from headway.errors import HeadwayError
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, NAMESPACE, Hooks, Resource, ResourceType, pb, type_name
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import (
    CHILD,
    HOOKED,
    NOTE,
    PLANET,
    ULID,
    UNKNOWN,
    Note,
    a_note,
    a_status,
    a_type,
    an_id,
    id_of,
    registry,
)
from tests.helpers.service_errors import status_of
from tests.service.test_access import EVERYWHERE, Guard

MARK = {DELETION_TIMESTAMP: "2024-02-02T10:00:00Z"}


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.fixture
def both(guard: Guard) -> tuple[Calls, Calls]:
    """Return a service without authorization, and a service over the same store with the guard in front of it."""
    backend = MemoryBackend()
    return Calls(backend, registry()), Calls(backend, registry(), guard)


async def first(calls: Calls, type: pb.Type, **rest: Any) -> object:
    async with calls.watch(type, **rest) as items:
        return await anext(items)


OF_A_TYPE: dict[str, Callable[[Calls, ResourceType[Any]], Awaitable[object]]] = {
    "Read": lambda calls, of: calls.read(an_id("one", of)),
    "Read in a tenancy": lambda calls, of: calls.read(an_id("one", of, partition="east", namespace="Up")),
    "Read of a bad name": lambda calls, of: calls.read(an_id("Bad Name", of)),
    "Write": lambda calls, of: calls.write(a_note("one", type=of)),
    "Write of no payload": lambda calls, of: calls.write(pb.Resource(id=an_id("one", of))),
    "Write with an owner": lambda calls, of: calls.write(a_note("mine", owner=an_id("one", of))),
    "WriteStatus": lambda calls, of: calls.write_status(an_id("one", of, uid=ULID), a_status()),
    "WriteStatus of nothing": lambda calls, of: calls.write_status(an_id("one", of), None),
    "List": lambda calls, of: calls.list_type(a_type(of), EVERYWHERE),
    "List of a namespace": lambda calls, of: calls.list_type(a_type(of), pb.Tenancy(namespace="Up")),
    "List with a filter": lambda calls, of: calls.list_type(a_type(of), EVERYWHERE, metadata_filter="!!"),
    "ListByOwner": lambda calls, of: calls.list_by_owner(an_id("one", of, uid=ULID)),
    "ListByOwner without uid": lambda calls, of: calls.list_by_owner(an_id("one", of)),
    "Delete": lambda calls, of: calls.delete(an_id("one", of)),
    "MutateAndValidate": lambda calls, of: calls.mutate_and_validate(a_note("one", type=of)),
    "WatchList": lambda calls, of: first(calls, a_type(of)),
    "WatchList with a filter": lambda calls, of: first(calls, a_type(of), metadata_filter="!!"),
    "WatchList of a namespace": lambda calls, of: first(calls, a_type(of), tenancy=pb.Tenancy(namespace="Up")),
}


async def answer(call: Awaitable[object]) -> tuple[Status, str]:
    with pytest.raises(HeadwayError) as caught:
        await call
    return status_of(caught.value), str(caught.value)


@pytest.mark.parametrize("verb", OF_A_TYPE)
async def test_type_without_a_rule_looks_unregistered(both: tuple[Calls, Calls], guard: Guard, verb: str) -> None:
    """The status and the message are the same, for every scope of the type and every further mistake."""
    said = set()
    for type in (UNKNOWN, CHILD, PLANET):
        guard.unknown.add(type.name)
        status, message = await answer(OF_A_TYPE[verb](both[1], type))
        said.add((status, message.replace(str(type.name), "TYPE")))
    assert said == {(Status.PERMISSION_DENIED, "permission denied: none of your rules covers type TYPE")}
    assert [each for each in guard.asked if each[1] == "one"] == []


@pytest.mark.parametrize(
    "changes", [{"kind": "*"}, {"group": "*", "group_version": "*", "kind": "*"}, {"kind": "note"}]
)
async def test_invalid_type_name_is_refused_like_a_type_without_a_rule(
    both: tuple[Calls, Calls], guard: Guard, changes: dict[str, str]
) -> None:
    """A caller with rights on other types gets the same refusal as for any type on which it has no right."""
    type = a_type(NOTE, **changes)
    guard.unknown.add(type_name(type))
    said = f"permission denied: none of your rules covers type {type_name(type)}"
    for call in (both[1].read(pb.Id(name="one", type=type)), both[1].list_by_owner(pb.Id(name="one", type=type))):
        assert await answer(call) == (Status.PERMISSION_DENIED, said)


async def test_unreadable_owner_is_refused_before_its_uid_is_required(both: tuple[Calls, Calls]) -> None:
    """The rights are checked before every field that is not part of a name."""
    await refused(
        both[1].list_by_owner(an_id("denied")), Status.PERMISSION_DENIED, "permission denied: you may not read"
    )


async def test_errors_name_no_type_that_the_caller_may_not_know(both: tuple[Calls, Calls], guard: Guard) -> None:
    """The type is neither suggested nor listed among the registered types."""
    guard.unknown.update(each.name for each in (NOTE, CHILD))
    for type in (a_type(kind="note"), a_type(group="zzzz", kind="Qqqq")):
        said = await refused(both[1].read(pb.Id(name="one", type=type)), Status.INVALID_ARGUMENT, "is not registered")
        assert "tests.v1.Note" not in said
        assert "Child" not in said
    assert "tests.v1.Hooked" in said


async def test_reference_reveals_nothing_of_a_type_that_its_writer_may_not_know(
    both: tuple[Calls, Calls], guard: Guard
) -> None:
    """The reference is stored like a reference to an unregistered type.

    The scope of its type is not used to complete or refuse it.
    """
    _, guarded = both
    stored = await guarded.stored(a_note("one"))
    for type in (UNKNOWN, NAMESPACE):
        guard.unknown.add(type.name)
        status = a_status(stored.generation)
        tenancy = pb.Tenancy(partition="east", namespace="up")
        status.conditions[0].resource = pb.Reference(type=a_type(type), name="other", tenancy=tenancy)
        reply = await guarded.write_status(id_of(stored), status)
        assert reply.resource is not None
        kept = reply.resource.status["mine"].conditions[0].resource
        assert kept is not None
        assert kept.tenancy == tenancy


async def test_hooks_run_only_for_callers_that_may_write(both: tuple[Calls, Calls]) -> None:
    """Without the right, a caller neither runs a program's code nor reads its messages."""
    _, guarded = both
    for text in ("crash", "bad", "fine"):
        for call in (guarded.write, guarded.mutate_and_validate):
            await refused(
                call(a_note("denied", text, HOOKED)), Status.PERMISSION_DENIED, "permission denied: you may not write"
            )
    await refused(guarded.write(a_note("mine", "bad", HOOKED)), Status.INVALID_ARGUMENT, "must be something good")


def _forbid(resource: Resource[Note]) -> None:
    resource.data.text = "forbidden"


async def test_resource_changed_by_a_hook_is_authorized_again() -> None:
    """A rule that depends on content applies to the content that is stored."""
    forbidding = ResourceType("tests", "v1", "Forbidding", Note, hooks=Hooks(mutate=_forbid))
    known = registry()
    known.register(forbidding)
    guarded = Calls(MemoryBackend(), known, Guard())
    for call in (guarded.write, guarded.mutate_and_validate):
        await refused(
            call(a_note("one", "fine", forbidding)), Status.PERMISSION_DENIED, "permission denied: you may not write"
        )


DENIED_WORK: list[Callable[[Calls], Awaitable[object]]] = [
    lambda calls: calls.list_type(a_type(), EVERYWHERE, metadata_filter="!!" * 2_000_000),
    lambda calls: calls.list_type(a_type(), EVERYWHERE, metadata_filter=",".join("a" * 1_000_000)),
    lambda calls: calls.list_type(a_type(), EVERYWHERE, page_token="!" * 4_000_000),
    lambda calls: calls.list_type(a_type(), EVERYWHERE, page_size=-1),
    lambda calls: first(calls, a_type(), bookmark_interval_ms=1 << 31),
    lambda calls: first(calls, a_type(), resume_after=pb.Position(store_id="x" * 4_000_000)),
    lambda calls: calls.write(a_note("denied", metadata={str(each): "" for each in range(2000)})),
    lambda calls: calls.write_status(an_id("denied", uid="x"), a_status("x"), key="k" * 1000),
    lambda calls: calls.delete(an_id("denied"), version="7" * 1000),
]


@pytest.mark.parametrize("call", DENIED_WORK)
async def test_caller_without_rights_learns_nothing_of_further_fields(
    both: tuple[Calls, Calls], guard: Guard, call: Callable[[Calls], Awaitable[object]]
) -> None:
    """A List's filter once blocked the event loop for seconds before its caller was authorized."""
    guard.unlisted.add(NOTE.name)
    await refused(call(both[1]), Status.PERMISSION_DENIED, "permission denied: you may not")


async def test_marking_a_resource_requires_the_right_to_delete(both: tuple[Calls, Calls]) -> None:
    """The refusal is the same whether or not the resource exists. The Delete verb requires the right, too."""
    calls, guarded = both
    denied = "permission denied: you may not delete Note kept"
    for call in (guarded.write, guarded.mutate_and_validate):
        await refused(call(a_note("kept", metadata=MARK)), Status.PERMISSION_DENIED, denied)
    await calls.write(a_note("kept", metadata={FINALIZERS: "x"}))
    for call in (guarded.write, guarded.mutate_and_validate):
        await refused(call(a_note("kept", metadata=MARK)), Status.PERMISSION_DENIED, denied)
    await refused(guarded.delete(an_id("kept")), Status.PERMISSION_DENIED, denied)
    stored = (await calls.read(an_id("kept"))).resource
    assert stored is not None
    assert DELETION_TIMESTAMP not in stored.metadata


async def test_preserving_a_mark_does_not_require_the_right_to_delete(both: tuple[Calls, Calls]) -> None:
    """A controller that removes its finalizer writes back the mark that it has read.

    The marking itself was authorized.
    """
    calls, guarded = both
    await calls.write(a_note("kept", metadata={FINALIZERS: "x y"}))
    await calls.delete(an_id("kept"))
    for left in ("y", ""):
        stored = (await guarded.read(an_id("kept"))).resource
        assert stored is not None
        changed = a_note("kept", version=stored.version, metadata={**stored.metadata, FINALIZERS: left})
        await guarded.mutate_and_validate(changed)
        await guarded.write(changed)


FENCED: dict[str, Callable[[Calls, pb.Fence], Awaitable[object]]] = {
    "Write": lambda calls, fence: calls.write(a_note("one"), fence=fence),
    "Write that a hook would refuse": lambda calls, fence: calls.write(a_note("one", "bad", HOOKED), fence=fence),
    "WriteStatus": lambda calls, fence: calls.write_status(an_id("one", uid=ULID), a_status(), fence=fence),
    "Delete": lambda calls, fence: calls.delete(an_id("one"), fence=fence),
}


@pytest.mark.parametrize("verb", FENCED)
@pytest.mark.parametrize("member", ["", "3"])
async def test_fence_is_accepted_only_from_callers_that_may_acquire_its_lease(
    both: tuple[Calls, Calls], verb: str, member: str
) -> None:
    """A write under the fence reveals the present fence.

    Other callers get the same refusal whether or not there is one.
    """
    calls, guarded = both
    fence = pb.Fence(controller="denied/teams", member=member, term=1)
    said = await refused(
        FENCED[verb](guarded, fence), Status.PERMISSION_DENIED, "permission denied: you may not acquire"
    )
    for _ in range(2):
        await calls.raise_fence("denied/teams", member)
    assert await refused(FENCED[verb](guarded, fence), Status.PERMISSION_DENIED) == said
    assert calls.revision == 2
    own = pb.Fence(controller="mine/teams", member=member, term=1)
    await calls.raise_fence("mine/teams", member)
    await guarded.write(a_note("one"), fence=own)
