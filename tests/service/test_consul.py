"""The resource service under Consul's API name: behavior that Consul's clients need and Headway's do not get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio.testing
from grpclib.const import Status

from headway.api import Reason
from headway.errors import HeadwayError
from headway.protobuf import field, message
from headway.resource import (
    EMPTIED_FINALIZER,
    FINALIZERS,
    TOMBSTONE,
    AnyMessage,
    Changes,
    ResourceType,
    Scope,
    SnapshotChunk,
    pb,
)
from headway.storage import Backend, MemoryBackend, Put
from tests.helpers.calls import PLACES, Calls, Interrupted, refused, take
from tests.helpers.declared import CHILD, NOTE, ULID, a_note, a_status, a_type, an_id, id_of, registry, text_of, uid_of
from tests.helpers.service_errors import status_of
from tests.service.conftest import reached

OURS = "type.googleapis.com/headway.resource.v1.Tombstone"
THEIRS = "type.googleapis.com/hashicorp.consul.resource.Tombstone"

# Consul's clients recognize an error by these sentences.
CAS_FAILED = "CAS operation failed because the given version doesn't match what is stored"
WRONG_UID = "write failed because the given uid doesn't match what is stored"
NOT_FOUND = "resource not found"


async def test_write_with_uid_of_a_deleted_incarnation_creates_a_new_one(anywhere: Calls) -> None:
    """A client made for Consul writes back the resource that it has read. It livelocks if that write is refused."""
    consul = anywhere.as_consul()
    first = await anywhere.stored(a_note("one", "first"))
    await anywhere.delete(an_id("one"))
    await refused(anywhere.write(a_note("one", uid=uid_of(first))), Status.FAILED_PRECONDITION, "leave id.uid empty")
    again = await consul.stored(a_note("one", "again", uid=uid_of(first)))
    assert text_of((await anywhere.read(an_id("one"))).resource) == "again"
    assert uid_of(again) != uid_of(first)
    # The uid still belongs to the deleted incarnation, and another incarnation has the name.
    call = consul.write(a_note("one", uid=uid_of(first)))
    await refused(call, Status.FAILED_PRECONDITION, uid_of(again), WRONG_UID, reason=Reason.WRONG_UID)
    # A version and a status, which no new resource may have, are refused here too.
    await consul.delete(an_id("one"))
    late = a_note("one", uid=uid_of(again), version=again.version)
    await refused(consul.write(late), Status.ABORTED, "does not exist", CAS_FAILED)
    with_status = a_note("one", uid=uid_of(again), status={"mine": a_status()})
    await refused(consul.write(with_status), Status.INVALID_ARGUMENT, "status must be empty on creation")


async def test_incarnation_deleted_before_the_commit_is_created_anew(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock
) -> None:
    """The second attempt finds no resource, as if the write had come after the deletion."""
    first = await calls.stored(a_note("one", "first"))
    interrupted.before_commit = [lambda: calls.delete(an_id("one"))]
    again = await racing.as_consul().stored(a_note("one", "again", uid=uid_of(first)))
    assert uid_of(again) != uid_of(first)
    assert autojump_clock.current_time() < 10


REFUSED: list[tuple[Callable[[Calls], Awaitable[object]], Status, str]] = [
    (lambda calls: calls.read(an_id("nobody")), Status.NOT_FOUND, NOT_FOUND),
    (lambda calls: calls.read(an_id("one", uid=ULID)), Status.NOT_FOUND, NOT_FOUND),
    (lambda calls: calls.write_status(an_id("nobody", uid=ULID), a_status()), Status.NOT_FOUND, NOT_FOUND),
    (lambda calls: calls.write(a_note("one", version="1000")), Status.ABORTED, CAS_FAILED),
    (lambda calls: calls.write(a_note("nobody", version="1")), Status.ABORTED, CAS_FAILED),
    (lambda calls: calls.delete(an_id("one"), version="1000"), Status.ABORTED, CAS_FAILED),
    (lambda calls: calls.write(a_note("one", uid=ULID)), Status.FAILED_PRECONDITION, WRONG_UID),
]


@pytest.mark.parametrize(("call", "status", "sentence"), REFUSED)
async def test_refusal_contains_consuls_message_beside_ours(
    calls: Calls, call: Callable[[Calls], Awaitable[object]], status: Status, sentence: str
) -> None:
    """Consul's clients look for Consul's message. Under Headway's own name, the refusal has only Headway's message."""
    await calls.write(a_note("one"))
    reason = Reason.WRONG_UID if sentence == WRONG_UID else None
    ours = await refused(call(calls), status, "Note", reason=reason)
    assert sentence not in ours
    assert await refused(call(calls.as_consul()), status, reason=reason) == f"{ours} ({sentence})"


async def test_other_refusals_are_the_same_under_both_names(calls: Calls) -> None:
    """A failed precondition that is unrelated to a uid has no message about uids."""
    tombstone = await _tombstone(calls)
    alike: list[Callable[[Calls], Awaitable[object]]] = [
        lambda it: it.delete(id_of(tombstone)),
        lambda it: it.read(None),
        lambda it: it.write_status(an_id("child", CHILD), None),
    ]
    for call in alike:
        said = []
        for it in (calls, calls.as_consul()):
            with pytest.raises(HeadwayError) as caught:
                await call(it)
            said.append((status_of(caught.value), str(caught.value)))
        assert said[0] == said[1]
    assert said[0][0] is Status.INVALID_ARGUMENT


async def _tombstone(calls: Calls) -> pb.Resource:
    """Delete an owner and return its tombstone."""
    owner = await calls.stored(a_note("boss"))
    await calls.write(a_note("child", type=CHILD, owner=owner.id))
    await calls.delete(an_id("boss"))
    (found,) = (await calls.list_type(a_type(TOMBSTONE), pb.Tenancy(partition="*", namespace="*"))).resources
    return found


def _urls(resources: list[pb.Resource]) -> list[str]:
    return [each.data.type_url for each in resources if each.data is not None]


async def test_tombstones_decode_in_consuls_clients(anywhere: Calls) -> None:
    """The payload's message is Consul's under Consul's name, and Headway's under Headway's name."""
    everywhere = pb.Tenancy(partition="*", namespace="*")
    stored = await _tombstone(anywhere)
    status = a_status(stored.generation)
    for calls, url in ((anywhere, OURS), (anywhere.as_consul(), THEIRS)):
        async with calls.watch(a_type(TOMBSTONE), bookmarks=False) as items:
            (chunk, _) = await take(items, 2)
            assert isinstance(chunk, SnapshotChunk)
            assert _urls(chunk.resources) == [url]
            written = (await calls.write_status(id_of(stored), status, key=url[-30:])).resource
            (item,) = await take(items, 1)
            assert isinstance(item, Changes)
            assert _urls([change.resource for change in item.changes]) == [url]
        read = (await calls.read(id_of(stored))).resource
        listed = (await calls.list_type(a_type(TOMBSTONE), everywhere)).resources
        assert written is not None
        assert read is not None
        assert _urls([written, read, *listed]) == [url] * 3
        assert (read.id, read.version, read.generation, read.metadata) == (
            stored.id,
            written.version,
            stored.generation,
            stored.metadata,
        )
        assert TOMBSTONE.view(read).data.owner == TOMBSTONE.view(stored).data.owner
        assert read.status.keys() == written.status.keys()
    note = await anywhere.as_consul().stored(a_note("plain"))
    assert _urls([note]) == [NOTE.type_url]


@message(name="hashicorp.consul.tenancy.v2beta1.Namespace")
class ConsulNamespace:
    description: str = field(1)


CONSULS = ResourceType("tenancy", "v2beta1", "Namespace", ConsulNamespace, scope=Scope.PARTITION)


@pytest.mark.parametrize(("backend", "how"), PLACES, indirect=["backend"])
async def test_namespaces_of_consuls_type_follow_the_rules_of_namespaces(backend: Backend, how: str) -> None:
    """Consul's type is declared as a version of Headway's own.

    Namespaces of both are found by their content and follow the same rules.
    """
    types = registry()
    types.register(CONSULS)
    async with reached(how, backend, types=types) as calls:
        consul = calls.as_consul()
        await refused(consul.write(a_note("one", namespace="up")), Status.INVALID_ARGUMENT, "namespace 'up' not found")
        bare = await consul.stored(pb.Resource(id=an_id("up", CONSULS)))
        assert bare.data == AnyMessage(type_url="type.googleapis.com/hashicorp.consul.tenancy.v2beta1.Namespace")
        assert bare.metadata == {FINALIZERS: EMPTIED_FINALIZER}
        assert (await consul.read(an_id("up", CONSULS))).resource == bare
        assert await consul.names(CONSULS) == ["up"]
        await consul.write(a_note("one", namespace="up"))
        marked = (await consul.delete(an_id("up", CONSULS))).resource
        assert marked is not None
        await refused(consul.write(a_note("two", namespace="up")), Status.INVALID_ARGUMENT, "marked for deletion")
        for refusal in (
            consul.write(pb.Resource(id=an_id("default", CONSULS))),
            consul.delete(an_id("default", CONSULS)),
        ):
            await refused(refusal, Status.INVALID_ARGUMENT, "the namespace 'default' always exists")
        assert calls.unexpected == []


async def test_lists_are_bounded_under_consuls_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is too large is refused before it is built, as under Headway's name."""
    monkeypatch.setattr("headway.service._pages.MAX_REPLY", 64 << 10)
    backend = MemoryBackend()
    id = an_id("big", partition="default", namespace="default", uid=ULID)
    big = pb.Resource(id=id, metadata={str(each): "x" * 200 for each in range(400)})
    await backend.commit([Put(NOTE.kind, ("default", "default", "big"), big, "")])
    async with reached("network", backend) as calls:
        for it in (calls, calls.as_consul()):
            await refused(it.list_type(a_type(), pb.Tenancy()), Status.RESOURCE_EXHAUSTED, "page_size")


async def test_tombstones_decode_in_a_large_list() -> None:
    """A large list is encoded in several turns before it is sent."""
    count = 600
    backend = MemoryBackend()
    async with reached("network", backend) as calls:
        stored = await _tombstone(calls)
        others = []
        for number in range(count):
            name = f"tombstone-{number}"
            id = pb.Id(uid=ULID, name=name, type=TOMBSTONE.message, tenancy=stored.id.tenancy)  # type: ignore[union-attr]
            others.append(Put(TOMBSTONE.kind, ("default", "default", name), pb.Resource(id=id, data=stored.data), ""))
        await backend.commit(others)
        for it, url in ((calls, OURS), (calls.as_consul(), THEIRS)):
            listed = await it.list_type(a_type(TOMBSTONE), pb.Tenancy(partition="*", namespace="*"))
            assert _urls(listed.resources) == [url] * (count + 1)
