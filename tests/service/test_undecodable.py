"""Payload bytes that do not decode as the type's message. They are refused unless they are stored already."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from grpclib.const import Status

from headway.errors import HeadwayError, PayloadError
from headway.protobuf import copy_message, field, message
from headway.resource import AnyMessage, Resource, ResourceId, ResourceType, pb, resource_key
from headway.service import Decision
from headway.storage import MemoryBackend, Put
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import HOOKED, NOTE, NOTE_V2, a_note, id_of, registry, text_of
from tests.service.conftest import reached
from tests.service.test_access import Guard
from tests.service.test_discretion import WriteOnly

GARBAGE = b"\x0a\x30" + b"\xff" * 48


def garbage(name: str = "one", type: ResourceType[Any] = NOTE, data: bytes = GARBAGE, **rest: Any) -> pb.Resource:
    resource = a_note(name, "", type, **rest)
    resource.data = AnyMessage(type_url=type.type_url, value=data)
    return resource


async def put(calls: Calls, resource: pb.Resource) -> pb.Resource:
    """Store a resource that no Write would store, like an older program or another writer of the store."""
    assert resource.id is not None
    resource.id.uid, resource.generation = "01ARZ3NDEKTSV4RRFFQ69G5FAW", "01ARZ3NDEKTSV4RRFFQ69G5FAX"
    resource.id.tenancy = NOTE.tenancy
    type = {each.name.kind: each for each in (NOTE, HOOKED)}[resource.id.type.kind]  # type: ignore[union-attr]
    await calls.backend.commit((Put(type.kind, resource_key(resource), resource, ""),))
    stored = (await calls.read(resource.id)).resource
    assert stored is not None
    return copy_message(stored)


@pytest.mark.parametrize("data", [GARBAGE, b"\x0a\x05ab", b"\x0a\x01\xff", b"\x1a\x02\x10", b"\x08"])
@pytest.mark.parametrize("type", [NOTE, HOOKED])
async def test_undecodable_bytes_are_refused(type: ResourceType[Any], data: bytes) -> None:
    """Creation, update and MutateAndValidate refuse the bytes, with or without hooks, and name the field."""
    calls = Calls(MemoryBackend(), registry())
    said = f"resource.data of {type.name.kind} one: not a valid Note: "
    await refused(calls.write(garbage(type=type, data=data)), Status.INVALID_ARGUMENT, said)
    await refused(calls.mutate_and_validate(garbage(type=type, data=data)), Status.INVALID_ARGUMENT, said)
    stored = await calls.stored(a_note("one", "a", type))
    for version in ("", stored.version):
        update = garbage(type=type, data=data)
        update.version = version
        await refused(calls.write(update), Status.INVALID_ARGUMENT, said)
    assert (await calls.read(id_of(stored))).resource == stored
    assert calls.unexpected == []


@pytest.mark.parametrize("how", ["in process", "network"])
async def test_refusal_names_the_field_of_the_payload(how: str) -> None:
    """This holds over the network, too, and under both names of the service."""
    async with reached(how, MemoryBackend()) as calls:
        for each in (calls, calls.as_consul()):
            said = await refused(each.write(garbage(data=b"\x0a\x01\xff")), Status.INVALID_ARGUMENT)
            assert said.startswith("resource.data of Note one: not a valid Note: text: byte 0 is not UTF-8")


async def test_unknown_fields_are_accepted(calls: Calls) -> None:
    """A message of a newer program has fields that this program does not know."""
    stored = await calls.stored(garbage(data=b"\x0a\x01a\xa2\x06\x01b"))
    assert text_of(stored) == "a"


@pytest.mark.parametrize("type", [NOTE, HOOKED])
async def test_stored_undecodable_resource_can_lose_its_finalizers(type: ResourceType[Any]) -> None:
    """A read-modify-write preserves the bytes. If it were refused, the resource could never be deleted."""
    calls = Calls(MemoryBackend(), registry())
    stored = await put(calls, garbage(type=type, metadata={"finalizers": "hold"}))
    stored.metadata["colour"] = "red"
    written = await calls.stored(stored)
    assert written.metadata["colour"] == "red"
    marked = (await calls.delete(id_of(written))).resource
    assert marked is not None
    released = copy_message(marked)
    del released.metadata["finalizers"]
    await calls.write(released)
    assert (await calls.delete(id_of(marked))).resource is None
    assert calls.unexpected == []


async def test_undecodable_payload_is_replaced_only_by_one_that_decodes(calls: Calls) -> None:
    """The same bytes in another version of the type are refused, too.

    A conflict of versions is reported first.
    """
    stored = await put(calls, garbage())
    await refused(calls.write(garbage(data=GARBAGE + b"\x08")), Status.INVALID_ARGUMENT, "resource.data of Note one")
    await refused(
        calls.write(garbage(type=NOTE_V2)), Status.INVALID_ARGUMENT, "resource.data of Note one: not a valid Memo"
    )
    mended = await calls.stored(a_note("one", "a"))
    assert text_of(mended) == "a"
    await refused(calls.write(stored), Status.ABORTED, "is stored at version")
    stored.version = ""
    await refused(calls.write(stored), Status.INVALID_ARGUMENT, "resource.data of Note one")


class ByPayload(Guard):
    """An authorizer that permits reading only if the payload says so."""

    def may_read(self, id: ResourceId, resource: Resource[Any] | None) -> Decision:  # noqa: ARG002 - the protocol's
        if resource is None:
            return Decision.NEEDS_RESOURCE
        return Decision.ALLOWED if resource.data.text == "open" else Decision.DENIED


async def test_authorizer_that_reads_payloads_hides_only_undecodable_resources() -> None:
    """A single resource whose payload does not decode must not make the list of all others fail."""
    plain = Calls(MemoryBackend(), registry())
    await put(plain, garbage("bad"))
    await plain.write(a_note("good", "open"))
    calls = Calls(plain.backend, registry(), ByPayload())
    assert await calls.names(NOTE) == ["good"]
    assert calls.unexpected == []


async def test_stale_version_of_an_undecodable_resource_is_a_conflict(calls: Calls) -> None:
    """Another writer has corrected the payload, or replaced it by the other version of the type."""
    stale = await put(calls, garbage(metadata={"finalizers": "hold"}))
    for mended in (a_note("one", "a"), a_note("one", "b", NOTE_V2)):
        await calls.write(mended)
        await refused(calls.write(copy_message(stale)), Status.ABORTED, "is stored at version", "read it again")
    gone = garbage("gone", version="7")
    await refused(calls.write(gone), Status.ABORTED, "Note gone does not exist, so it cannot be at version '7'")


async def test_guess_of_stored_bytes_is_not_confirmed_without_read_permission() -> None:
    """The right bytes are refused like wrong ones, and like bytes for a free name."""
    calls = Calls(MemoryBackend(), registry())
    stored = await put(calls, garbage())
    blind = Calls(calls.backend, registry(), WriteOnly("name"))
    for uid in ("", id_of(stored).uid):
        told = set()
        for name, data in (("one", GARBAGE), ("one", GARBAGE[:-1] + b"\xfe"), ("free", GARBAGE)):
            if uid and name == "free":
                continue
            guess = garbage(name, data=data)
            assert guess.id is not None
            guess.id.uid = uid
            said = await refused(blind.write(guess), Status.INVALID_ARGUMENT)
            told.add(said.replace(name, "it").replace("\\xfe", "\\xff"))
        assert len(told) == 1, told
    assert (await calls.read(id_of(stored))).resource == stored


@message
class Key:
    token: str = field(1, secret=True)
    spare: list[str] = field(2, secret=True)
    by_name: dict[str, str] = field(3, secret=True)


KEY = ResourceType("tests", "v1", "Key", Key)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"\x0a\x0ahunter22\xff!", "token: byte 8"),
        (b"\x12\x09\xffhunter22", "spare: byte 0"),
        (b"\x1a\x0e\x0a\x01k\x12\x09hunter22\xff", "by_name.value: byte 8"),
    ],
)
async def test_refusal_of_invalid_text_does_not_quote_a_secret(
    caplog: pytest.LogCaptureFixture, data: bytes, where: str
) -> None:
    """Neither do the error of the payload and the log."""
    known = registry()
    known.register(KEY)
    calls = Calls(MemoryBackend(), known)
    key = pb.Resource(id=KEY.id("one").message(), data=AnyMessage(type_url=KEY.type_url, value=data))
    with pytest.raises(HeadwayError) as caught:
        await calls.write(key)
    assert f"{where} is not UTF-8" in str(str(caught.value))
    with pytest.raises(PayloadError) as undecodable:
        _ = KEY.view(key).data
    assert "hunter22" not in f"{caught.value} {''.join(traceback.format_exception(undecodable.value))} {caplog.text}"
