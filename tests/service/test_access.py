"""The decisions of an authorizer: refused requests and hidden resources. Neither leaks what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio
from grpclib.const import Status

from headway.errors import HeadwayError
from headway.resource import NAMESPACE, PARTITION, Bookmark, Changes, Resource, ResourceId, TypeName, pb
from headway.service import Decision
from headway.storage import Backend, Put
from tests.helpers.calls import Calls, refused, take
from tests.helpers.declared import CHILD, NOTE, NOTE_V2, ULID, UNKNOWN, a_note, a_status, a_type, an_id, id_of, registry
from tests.helpers.service_errors import status_of

EVERYWHERE = pb.Tenancy(partition="*", namespace="*")


class Guard:
    """An authorizer that decides by name.

    It denies everything on ``denied``, hides content that says "secret", hides the ``unlisted`` and ``unread`` types,
    denies the deletion of any ``kept`` resource, and hides that ``unknown`` types exist.
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
    """Return a service over the same store as ``calls``, with the guard in front of it."""
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
    with pytest.raises(HeadwayError) as caught:
        await call
    return status_of(caught.value), str(caught.value)


@pytest.mark.parametrize("call", BY_NAME)
async def test_denied_name_is_refused_alike_whether_or_not_it_exists(calls: Calls, guarded: Calls, call: Call) -> None:
    """The status and the message are the same for an existing and a missing name, in any version of the kind."""
    absent = await said(call(guarded))
    assert absent[0] is Status.PERMISSION_DENIED
    await calls.write(a_note("denied", type=NOTE_V2))
    assert await said(call(guarded)) == absent
    await calls.write(a_note("denied", type=NOTE))
    assert await said(call(guarded)) == absent


async def test_resource_hidden_by_its_content_is_reported_as_not_found(calls: Calls, guarded: Calls) -> None:
    """The authorizer is asked again with the resource.

    If it then denies, the answer is the same as for a missing name. Consul answers that permission is denied, which
    reveals that the resource exists.
    """
    absent = await said(guarded.read(an_id("secret")))
    assert absent[0] is Status.NOT_FOUND
    await calls.write(a_note("secret", "secret"))
    assert await said(guarded.read(an_id("secret"))) == absent
    await calls.write(a_note("secret", "open"))
    assert (await guarded.read(an_id("secret"))).resource is not None


async def test_write_is_authorized_by_the_given_content(guarded: Calls) -> None:
    """The check follows validation and precedes the store, in Write and in MutateAndValidate."""
    forbidden = a_note("one", "forbidden")
    await refused(guarded.write(forbidden), Status.PERMISSION_DENIED, "permission denied: you may not write Note one")
    await refused(guarded.mutate_and_validate(forbidden), Status.PERMISSION_DENIED)
    await guarded.write(a_note("one", "fine"))


async def test_namespaces_and_partitions_are_guarded_like_other_resources(calls: Calls, guarded: Calls) -> None:
    """Namespaces and partitions are resources. Consul has no rules for them yet."""
    for type in (NAMESPACE, PARTITION):
        await calls.write(pb.Resource(id=an_id("denied", type)))
        await refused(guarded.read(an_id("denied", type)), Status.PERMISSION_DENIED)
        await refused(guarded.write(pb.Resource(id=an_id("denied", type))), Status.PERMISSION_DENIED)
        await refused(guarded.delete(an_id("denied", type)), Status.PERMISSION_DENIED)
        assert await guarded.names(type) == []
        assert await calls.names(type) == ["denied"]


async def test_malformed_request_is_refused_before_authorization(guarded: Calls, guard: Guard) -> None:
    """The form of a request reveals no stored content, so the authorizer is not asked."""
    await refused(guarded.read(an_id("Denied")), Status.INVALID_ARGUMENT)
    await refused(guarded.write(a_note("denied", type=UNKNOWN)), Status.INVALID_ARGUMENT)
    await refused(guarded.delete(an_id("denied-")), Status.INVALID_ARGUMENT)
    await refused(guarded.list_type(a_type(), pb.Tenancy(partition="Up")), Status.INVALID_ARGUMENT)
    assert guard.asked == []


async def test_lists_leave_out_unreadable_resources(calls: Calls, guarded: Calls) -> None:
    """Resources are hidden by name and by content, for every type."""
    boss = await calls.stored(a_note("boss"))
    for name, text in (("denied", ""), ("secret-1", "secret"), ("secret-2", "open"), ("plain", "")):
        await calls.write(a_note(name, text, owner=boss.id))
        await calls.write(a_note(name, text, CHILD, owner=boss.id))
    assert await guarded.names(NOTE) == ["boss", "plain", "secret-2"]
    owned = await guarded.list_by_owner(id_of(boss))
    assert [id_of(each).name for each in owned.resources] == ["plain", "secret-2", "plain", "secret-2"]


async def test_type_that_may_not_be_listed_is_refused(guarded: Calls, guard: Guard) -> None:
    """The request is refused once, at the start, with the requested tenancy in the message."""
    guard.unlisted.add(NOTE.name)
    said = "permission denied: you may not list tests.v1.Note there"
    await refused(guarded.list_type(a_type(), pb.Tenancy(namespace="*")), Status.PERMISSION_DENIED, said)
    assert guard.asked == [("list", "default/*")]
    with pytest.raises(HeadwayError) as caught:
        async with guarded.watch(a_type()) as items:
            await anext(items)
    assert status_of(caught.value) is Status.PERMISSION_DENIED


async def test_watch_leaves_out_unreadable_resources_and_stays_complete(calls: Calls, guarded: Calls) -> None:
    """The last visible change of a commit ends that commit. If no change is visible, a bookmark has the position."""
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
async def test_departure_from_a_version_is_authorized_by_its_last_content_there(
    calls: Calls, guarded: Calls, guard: Guard, resumed: bool
) -> None:
    """A resource leaves the requested version.

    A reader of that version gets a deletion, unless the resource was hidden from it there.
    """
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


async def test_frontier_advances_past_unreadable_changes(calls: Calls, guarded: Calls) -> None:
    """A reader that was disconnected gets several commits at once, and its frontier still reaches the last one."""
    async with guarded.watch(a_type(), EVERYWHERE) as items:
        await anext(items)
        await calls.write(a_note("plain"))
        await calls.write(a_note("denied"))
        changes = await anext(items)
        assert isinstance(changes, Changes)
        assert [id_of(each.resource).name for each in changes.changes] == ["plain"]
        with trio.fail_after(30):
            assert await anext(items) == Bookmark(calls.backend.position)
