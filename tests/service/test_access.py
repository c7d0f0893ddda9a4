"""An authorizer's decisions: what is refused, what is hidden, and that neither tells what is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.resource import NAMESPACE, PARTITION, Bookmark, Changes, Resource, ResourceId, TypeName, pb
from headway.service import Decision
from headway.storage import Backend, Put
from tests.helpers.calls import Calls, refused, take
from tests.helpers.declared import (
    CHILD,
    NOTE,
    NOTE_V2,
    ULID,
    UNKNOWN,
    a_note,
    a_status,
    a_type,
    an_id,
    id_of,
    registry,
)

EVERYWHERE = pb.Tenancy(partition="*", namespace="*")


class Guard:
    """Denies by name: ``denied`` anything, ``secret`` what says "secret", ``unlisted`` and ``unread`` types, and
    nothing that is ``kept`` may be deleted. Nothing is known of ``unknown`` types.
    """

    def __init__(self) -> None:
        self.unlisted: set[TypeName] = set()
        self.unread: set[TypeName] = set()
        self.unknown: set[TypeName] = set()
        self.asked: list[tuple[str, str]] = []

    def may_know(self, type: TypeName) -> bool:
        return type not in self.unknown

    def may_read(self, id: ResourceId, resource: Resource[Any] | None) -> Decision:
        self.asked.append(("read", id.name))
        if id.name.startswith("denied") or id.type in self.unread:
            return Decision.DENIED
        if not id.name.startswith("secret"):
            return Decision.ALLOWED
        if resource is None:
            return Decision.NEEDS_RESOURCE
        return Decision.DENIED if resource.data.text == "secret" else Decision.ALLOWED

    def may_write(self, id: ResourceId, resource: Resource[Any] | None) -> bool:
        self.asked.append(("write", id.name))
        return not id.name.startswith("denied") and (resource is None or resource.data.text != "forbidden")

    def may_delete(self, id: ResourceId) -> bool:
        self.asked.append(("delete", id.name))
        return not id.name.startswith(("denied", "kept"))

    def may_take_lease(self, name: str) -> bool:
        return not name.startswith("denied")

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:
        self.asked.append(("list", f"{partition}/{namespace}"))
        return type not in self.unlisted


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.fixture
async def guarded(backend: Backend, guard: Guard) -> AsyncIterator[Calls]:
    """A service over the same store as ``calls``, with the guard at its door."""
    service = Calls(backend, registry(), guard)
    yield service
    assert service.unexpected == []


Call = Callable[[Calls], Awaitable[object]]

BY_NAME: list[Call] = [
    lambda calls: calls.read(an_id("denied")),
    lambda calls: calls.read(an_id("denied", uid=ULID)),
    lambda calls: calls.read(an_id("denied"), min_revision=99),
    lambda calls: calls.write(a_note("denied")),
    lambda calls: calls.write(a_note("denied", uid=ULID)),
    lambda calls: calls.write(a_note("denied", version="7")),
    lambda calls: calls.write_status(an_id("denied", uid=ULID), a_status()),
    lambda calls: calls.delete(an_id("denied")),
    lambda calls: calls.delete(an_id("denied", uid=ULID)),
    lambda calls: calls.delete(an_id("denied"), version="7"),
    lambda calls: calls.list_by_owner(an_id("denied", uid=ULID)),
    lambda calls: calls.mutate_and_validate(a_note("denied")),
    lambda calls: calls.write(a_note("child", owner=an_id("denied"))),
]


async def said(call: Awaitable[object]) -> tuple[Status, str | None]:
    with pytest.raises(GRPCError) as caught:
        await call
    return caught.value.status, caught.value.message


@pytest.mark.parametrize("call", BY_NAME)
async def test_a_denied_name_is_refused_alike_whether_it_is_there_or_not(
    calls: Calls, guarded: Calls, call: Call
) -> None:
    """The same status and the same words, and another version of the kind is no exception."""
    absent = await said(call(guarded))
    assert absent[0] is Status.PERMISSION_DENIED
    await calls.write(a_note("denied", type=NOTE_V2))
    assert await said(call(guarded)) == absent
    await calls.write(a_note("denied", type=NOTE))
    assert await said(call(guarded)) == absent


async def test_what_may_not_be_read_for_what_it_says_is_not_there(calls: Calls, guarded: Calls) -> None:
    """Asked again with the resource. Refused for it, the answer is that for nothing; the origin says that it may
    not be read, and so that it is there.
    """
    absent = await said(guarded.read(an_id("secret")))
    assert absent[0] is Status.NOT_FOUND
    await calls.write(a_note("secret", "secret"))
    assert await said(guarded.read(an_id("secret"))) == absent
    await calls.write(a_note("secret", "open"))
    assert (await guarded.read(an_id("secret"))).resource is not None


async def test_a_write_is_decided_by_what_is_given(guarded: Calls) -> None:
    """After the shape, before the store; Write and MutateAndValidate alike."""
    forbidden = a_note("one", "forbidden")
    await refused(guarded.write(forbidden), Status.PERMISSION_DENIED, "permission denied: you may not write Note one")
    await refused(guarded.mutate_and_validate(forbidden), Status.PERMISSION_DENIED)
    await guarded.write(a_note("one", "fine"))


async def test_namespaces_and_partitions_are_guarded_as_anything_is(calls: Calls, guarded: Calls) -> None:
    """They are resources; in the origin their rules are still to be made."""
    for type in (NAMESPACE, PARTITION):
        await calls.write(pb.Resource(id=an_id("denied", type)))
        await refused(guarded.read(an_id("denied", type)), Status.PERMISSION_DENIED)
        await refused(guarded.write(pb.Resource(id=an_id("denied", type))), Status.PERMISSION_DENIED)
        await refused(guarded.delete(an_id("denied", type)), Status.PERMISSION_DENIED)
        assert await guarded.names(type) == []
        assert await calls.names(type) == ["denied"]


async def test_a_wrong_request_is_said_to_be_wrong_first(guarded: Calls, guard: Guard) -> None:
    """Its shape says nothing of the store, and nobody is asked about it."""
    await refused(guarded.read(an_id("Denied")), Status.INVALID_ARGUMENT)
    await refused(guarded.write(a_note("denied", type=UNKNOWN)), Status.INVALID_ARGUMENT)
    await refused(guarded.delete(an_id("denied-")), Status.INVALID_ARGUMENT)
    await refused(guarded.list_type(a_type(), pb.Tenancy(partition="Up")), Status.INVALID_ARGUMENT)
    assert guard.asked == []


async def test_lists_leave_out_what_may_not_be_read(calls: Calls, guarded: Calls) -> None:
    """By name and by content, of every type."""
    boss = await calls.stored(a_note("boss"))
    for name, text in (("denied", ""), ("secret-1", "secret"), ("secret-2", "open"), ("plain", "")):
        await calls.write(a_note(name, text, owner=boss.id))
        await calls.write(a_note(name, text, CHILD, owner=boss.id))
    assert await guarded.names(NOTE) == ["boss", "plain", "secret-2"]
    owned = await guarded.list_by_owner(id_of(boss))
    assert [id_of(each).name for each in owned.resources] == ["plain", "secret-2", "plain", "secret-2"]


async def test_a_type_that_may_not_be_listed_is_refused(guarded: Calls, guard: Guard) -> None:
    """Once, at the start, with the tenancy that was asked for."""
    guard.unlisted.add(NOTE.name)
    said = "permission denied: you may not list tests.v1.Note there"
    await refused(guarded.list_type(a_type(), pb.Tenancy(namespace="*")), Status.PERMISSION_DENIED, said)
    assert guard.asked == [("list", "default/*")]
    with pytest.raises(GRPCError) as caught:
        async with guarded.watch(a_type()) as items:
            await anext(items)
    assert caught.value.status is Status.PERMISSION_DENIED


async def test_a_watch_leaves_out_what_may_not_be_read_and_stays_complete(calls: Calls, guarded: Calls) -> None:
    """What is left of a commit ends it, and where nothing is left the stream says how far it is."""
    await calls.write(a_note("denied"))
    await calls.write(a_note("plain"))
    async with guarded.watch(a_type(), EVERYWHERE) as items:
        snapshot, _ = await take(items, 2)
        assert [id_of(each).name for each in snapshot.resources] == ["plain"]  # type: ignore[union-attr]
        await calls.write(a_note("denied", "again"))
        bookmark = await anext(items)
        assert isinstance(bookmark, Bookmark)
        assert bookmark.position == calls.backend.position
        puts = []
        for name in ("also", "denied-too"):
            resource = a_note(name)
            resource.id = an_id(name, partition="default", namespace="default", uid=name)
            puts.append(Put(NOTE.kind, ("default", "default", name), resource, ""))
        await calls.backend.commit(puts)
        changes = await anext(items)
        assert isinstance(changes, Changes)
        assert [(id_of(each.resource).name, each.more) for each in changes.changes] == [("also", False)]


@pytest.mark.parametrize("resumed", [False, True])
async def test_what_leaves_a_version_is_judged_by_what_it_was_in_it(
    calls: Calls, guarded: Calls, guard: Guard, resumed: bool
) -> None:
    """A reader of one version alone hears that a resource leaves it, and of none that was hidden from them there."""
    guard.unread.add(NOTE_V2.name)
    plain = await calls.stored(a_note("plain"))
    await calls.write(a_note("secret", "secret"))
    await calls.write(a_note("denied"))
    begun = calls.backend.position
    async with guarded.watch(a_type(), resume_after=begun.message() if resumed else None) as items:
        await take(items, 1 if resumed else 2)
        for name in ("secret", "denied", "plain"):
            await calls.write(a_note(name, "changed", NOTE_V2, metadata={"color": "secret"}))
        at = calls.revision
        await calls.write(a_note("plain", "changed again", NOTE_V2))
        (item,) = await take(items, 1)
        assert isinstance(item, Changes)
        assert [(each.resource, each.deleted, each.revision, each.more) for each in item.changes] == [
            (plain, True, at, False)
        ]
        assert await anext(items) == Bookmark(calls.backend.position)


async def test_what_may_not_be_read_at_the_end_of_changes_is_told_of_too(calls: Calls, guarded: Calls) -> None:
    """A reader that was away gets several commits at once: its frontier stands at the last of them all the same."""
    async with guarded.watch(a_type(), EVERYWHERE) as items:
        await anext(items)
        await calls.write(a_note("plain"))
        await calls.write(a_note("denied"))
        changes = await anext(items)
        assert isinstance(changes, Changes)
        assert [id_of(each.resource).name for each in changes.changes] == ["plain"]
        with trio.fail_after(30):
            assert await anext(items) == Bookmark(calls.backend.position)
