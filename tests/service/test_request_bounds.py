"""The bound of each field of a request. An error quotes no more than the beginning of the field."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from grpclib.const import Status

from headway.protobuf import field, message
from headway.resource import FINALIZERS, AnyMessage, Position, ResourceType, pb, resource_key
from headway.storage import MemoryBackend, Put
from tests.helpers.calls import Calls, over_the_network, refused
from tests.helpers.declared import HOOKED, NOTE, ULID, Note, a_note, a_status, a_type, an_id, id_of, registry

LONG = "x" * 4_000_000
EVERYWHERE = pb.Tenancy(partition="*", namespace="*")


def with_id(**changes: Any) -> pb.Id:
    id = an_id(uid=ULID)
    for name, value in changes.items():
        setattr(id, name, value)
    return id


IDS: list[Callable[[], pb.Id]] = [
    lambda: with_id(name=LONG),
    lambda: with_id(uid=LONG),
    lambda: with_id(tenancy=pb.Tenancy(partition=LONG)),
    lambda: with_id(tenancy=pb.Tenancy(namespace=LONG)),
    lambda: with_id(type=a_type(group=LONG)),
    lambda: with_id(type=a_type(group_version=LONG)),
    lambda: with_id(type=a_type(kind="K" + LONG)),
]
OF_AN_ID: list[Callable[[Calls, pb.Id], Awaitable[object]]] = [
    lambda calls, named: calls.read(named),
    lambda calls, named: calls.write(pb.Resource(id=named)),
    lambda calls, named: calls.write(a_note(owner=named)),
    lambda calls, named: calls.mutate_and_validate(pb.Resource(id=named)),
    lambda calls, named: calls.write_status(named, a_status()),
    lambda calls, named: calls.list_by_owner(named),
    lambda calls, named: calls.delete(named),
]


def condition(**changes: Any) -> pb.Status:
    status = a_status()
    status.conditions = [pb.Condition(**{"type": "ready", **changes})]
    return status


def reference(**changes: Any) -> pb.Status:
    return condition(resource=pb.Reference(**{"type": a_type(), "name": "other", **changes}))


def token(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


NESTED = base64.urlsafe_b64encode(b"[" * 700).decode()
FENCE: dict[str, Any] = {"controller": "painter", "term": 1}


async def watched(calls: Calls, **rest: Any) -> object:
    async with calls.watch(a_type(), **rest) as items:
        return await anext(items)


FIELDS: dict[str, Callable[[Calls], Awaitable[object]]] = {
    "version": lambda calls: calls.write(a_note(version=LONG)),
    "metadata entries": lambda calls: calls.write(a_note(metadata={str(each): "" for each in range(1001)})),
    "a metadata key": lambda calls: calls.write(a_note(metadata={"k" * 256: ""})),
    "metadata in all": lambda calls: calls.write(a_note(metadata={"k": LONG})),
    "finalizers": lambda calls: calls.write(a_note(metadata={FINALIZERS: "x " * 101})),
    "a mark": lambda calls: calls.write(a_note(metadata={"deletionTimestamp": "2" * 1000})),
    "statuses": lambda calls: calls.write(a_note(status={str(each): a_status() for each in range(101)})),
    "conditions in all": lambda calls: calls.write(
        a_note(status={str(n): a_status(ULID, *"abcdef") for n in range(84)})
    ),
    "a status key": lambda calls: calls.write(a_note(status={"k" * 256: a_status()})),
    "a type URL": lambda calls: calls.write(pb.Resource(id=an_id(), data=AnyMessage(type_url=LONG))),
    "store_id": lambda calls: calls.write(a_note(), store_id=LONG),
    "fence.controller": lambda calls: calls.write(a_note(), fence=pb.Fence(**{**FENCE, "controller": LONG})),
    "fence.member": lambda calls: calls.write(a_note(), fence=pb.Fence(**FENCE, member=LONG)),
    "fence.term": lambda calls: calls.write(a_note(), fence=pb.Fence(**{**FENCE, "term": 1 << 63})),
    "fence.number": lambda calls: calls.write(a_note(), fence=pb.Fence(**FENCE, number=1 << 63)),
    "key": lambda calls: calls.write_status(an_id(uid=ULID), a_status(), key=LONG),
    "conditions": lambda calls: calls.write_status(an_id(uid=ULID), a_status(ULID, *["c"] * 101)),
    "observed_generation": lambda calls: calls.write_status(an_id(uid=ULID), a_status(LONG)),
    "a condition's type": lambda calls: calls.write_status(an_id(uid=ULID), condition(type=LONG)),
    "a condition's reason": lambda calls: calls.write_status(an_id(uid=ULID), condition(reason=LONG)),
    "a condition's message": lambda calls: calls.write_status(an_id(uid=ULID), condition(message=LONG)),
    "a reference's name": lambda calls: calls.write_status(an_id(uid=ULID), reference(name=LONG)),
    "a reference's section": lambda calls: calls.write_status(an_id(uid=ULID), reference(section=LONG)),
    "a reference's type": lambda calls: calls.write_status(an_id(uid=ULID), reference(type=a_type(kind="K" + LONG))),
    "a reference's unit": lambda calls: calls.write_status(
        an_id(uid=ULID), reference(tenancy=pb.Tenancy(namespace=LONG))
    ),
    "a status' version": lambda calls: calls.write_status(an_id(uid=ULID), a_status(), version=LONG),
    "a deletion's version": lambda calls: calls.delete(an_id(), version=LONG),
    "name_prefix": lambda calls: calls.list_type(a_type(), EVERYWHERE, LONG),
    "a list's unit": lambda calls: calls.list_type(a_type(), pb.Tenancy(partition=LONG)),
    "metadata_filter": lambda calls: calls.list_type(a_type(), EVERYWHERE, metadata_filter=LONG),
    "terms": lambda calls: calls.list_type(a_type(), EVERYWHERE, metadata_filter=",".join(["a"] * 33)),
    "page_size": lambda calls: calls.list_type(a_type(), EVERYWHERE, page_size=100_001),
    "page_size below 0": lambda calls: calls.list_type(a_type(), EVERYWHERE, page_size=-1),
    "page_token": lambda calls: calls.list_type(a_type(), EVERYWHERE, page_token=LONG),
    "a nested page_token": lambda calls: calls.list_type(a_type(), EVERYWHERE, page_token=NESTED),
    "a page_token of lists": lambda calls: calls.list_type(a_type(), EVERYWHERE, page_token=token([], [], [], [], [])),
    "a page_token of objects": lambda calls: calls.list_type(a_type(), EVERYWHERE, page_token=token({})),
    "resume_after": lambda calls: watched(calls, resume_after=pb.Position(store_id=LONG)),
    "an incarnation": lambda calls: watched(calls, resume_after=pb.Position(incarnation=LONG)),
    "known": lambda calls: watched(calls, known=pb.Position(incarnation=LONG)),
    "a watch's prefix": lambda calls: watched(calls, name_prefix=LONG),
    "ListByOwner's known": lambda calls: calls.list_by_owner(an_id(uid=ULID), Position(LONG, "", 1)),
}


@pytest.fixture
def calls() -> Calls:
    return Calls(MemoryBackend(), registry())


@pytest.mark.parametrize("call", OF_AN_ID)
async def test_no_part_of_an_id_is_longer_than_a_name(
    calls: Calls, call: Callable[[Calls, pb.Id], Awaitable[object]]
) -> None:
    """The bound holds in every verb."""
    for id in IDS:
        said = await refused(call(calls, id()), Status.INVALID_ARGUMENT)
        assert len(said) < 1000


@pytest.mark.parametrize("field", FIELDS)
async def test_field_beyond_its_bound_is_refused(calls: Calls, field: str) -> None:
    """The request never ends with an unexpected error."""
    said = await refused(FIELDS[field](calls), Status.INVALID_ARGUMENT)
    assert len(said) < 1000
    assert calls.unexpected == []


async def test_all_statuses_of_a_resource_have_a_bound_together(calls: Calls) -> None:
    """Each write of one status writes them all. One that makes them shorter is accepted."""
    stored = await calls.stored(a_note())

    async def write(key: int, length: int) -> None:
        status = a_status(stored.generation, "c")
        status.conditions[0].message = "m" * length
        await calls.write_status(id_of(stored), status, key=str(key))

    whole = 65_000
    for key in range(16):
        await write(key, whole)
    said = "its statuses would have 1105017 characters: they must have at most 1048576 in all"
    await refused(write(16, whole), Status.FAILED_PRECONDITION, said)
    await write(0, 1)
    await write(16, whole)


async def test_values_at_the_bounds_are_accepted(calls: Calls) -> None:
    """A resource may have that much metadata, and that many statuses and conditions.

    This holds over the network and back.
    """
    metadata = {f"{each:0255}": "v" for each in range(1000)}
    stored = await calls.stored(a_note(metadata=metadata))
    full = a_status(stored.generation, *["c" * 255] * 5)
    for condition in full.conditions:
        condition.reason, condition.message = "reason", "message"
        condition.resource = pb.Reference(type=a_type(), name="other", section="part")
    for each in range(100):
        await calls.write_status(id_of(stored), full, key=f"{each:0255}")
    short = a_status(stored.generation)
    said = "it has 100 other statuses: it must have at most 100 in all"
    await refused(calls.write_status(id_of(stored), short, key="more"), Status.FAILED_PRECONDITION, said)
    more = a_status(stored.generation, *["c"] * 6)
    said = "it would have 501 conditions: it must have at most 500 in all"
    await refused(calls.write_status(id_of(stored), more, key=f"{7:0255}"), Status.FAILED_PRECONDITION, said)
    async with over_the_network(calls.backend, registry()) as remote:
        await remote.write((await remote.read(an_id())).resource)


async def test_resource_from_before_the_bounds_keeps_its_statuses(calls: Calls) -> None:
    """Each of the statuses can be written again, but none can be added."""
    full = a_status(ULID, *[f"c{each}" for each in range(50)])
    id = an_id(partition="default", namespace="default", uid=ULID)
    old = pb.Resource(id=id, generation=ULID, status={str(each): full for each in range(120)})
    await calls.backend.commit([Put(NOTE.kind, resource_key(old), old, "")])
    shorter = a_status(ULID, *[f"c{each}" for each in range(49)])
    await calls.write_status(an_id(uid=ULID), shorter, key="7")
    said = "it has 120 other statuses"
    await refused(calls.write_status(an_id(uid=ULID), shorter, key="more"), Status.FAILED_PRECONDITION, said)
    said = "it would have 6000 conditions"
    await refused(calls.write_status(an_id(uid=ULID), full, key="7"), Status.FAILED_PRECONDITION, said)


@message
class Nesting:
    inner: Nesting | None = field(1)
    numbers: list[int] = field(2)
    notes: list[Note] = field(3)


MOST = 100_000
NESTING = ResourceType("tests", "v1", "Nesting", Nesting)
PAYLOADS: dict[str, tuple[ResourceType[Any], bytes, bytes]] = {
    "empty strings": (HOOKED, b"\x12\x00" * MOST, b"\x12\x00"),
    "packed numbers": (NESTING, b"\x12\x9f\x8d\x06" + bytes(MOST - 1), b"\x08\x01"),
    "fields of messages in it": (NESTING, b"\x1a\x02\x12\x00" * (MOST // 2), b"\x1a\x00"),
    "fields that are unknown": (HOOKED, b"\xf8\x07\x00" * MOST, b"\xf8\x07\x00"),
}


@pytest.mark.parametrize(
    "what", [pytest.param(each, marks=[pytest.mark.wide] * each.startswith("fields")) for each in PAYLOADS]
)
async def test_number_of_payload_fields_is_bounded(what: str) -> None:
    """Two million empty strings in a hook blocked the event loop for a second.

    A payload with too many fields is not decoded.
    """
    type, most, more = PAYLOADS[what]
    known = registry()
    known.register(NESTING)
    calls = Calls(MemoryBackend(), known)
    for call in (calls.write, calls.mutate_and_validate):
        large = pb.Resource(id=an_id(type=type), data=AnyMessage(type_url=type.type_url, value=most + more))
        await refused(call(large), Status.INVALID_ARGUMENT, "resource.data", "it must have at most 100000 in all")
    assert calls.revision == 0
    fits = pb.Resource(id=an_id(type=type), data=AnyMessage(type_url=type.type_url, value=most))
    await calls.write(fits)


@pytest.mark.parametrize("limit", [1000, pytest.param(MOST * 2, marks=pytest.mark.wide)])
async def test_type_may_allow_more_or_fewer_fields(limit: int) -> None:
    type = ResourceType("tests", "v1", "Own", Note, max_fields=limit)
    known = registry()
    known.register(type)
    calls = Calls(MemoryBackend(), known)
    large = pb.Resource(id=an_id(type=type), data=AnyMessage(type_url=type.type_url, value=b"\x12\x00" * (limit + 1)))
    message = f"it must have at most {limit} in all, the max_fields of the type"
    await refused(calls.write(large), Status.INVALID_ARGUMENT, "resource.data", message)
    fits = pb.Resource(id=an_id(type=type), data=AnyMessage(type_url=type.type_url, value=b"\x12\x00" * limit))
    await calls.write(fits)
