"""Writes to a resource that is marked for deletion, and writes that mark one."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from headway.protobuf import encode
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, AnyMessage
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import NOTE, Note, a_note, an_id

MARK = "2024-02-02T10:00:00Z"


FROZEN = {FINALIZERS: "a b", "colour": "red"}


@pytest.mark.parametrize(
    ("text", "metadata", "said"),
    [
        ("", {}, "removes none of its finalizers (a, b)"),
        ("", {FINALIZERS: "a b c"}, "adds finalizers c"),
        ("", {FINALIZERS: "a c"}, "adds finalizers c"),
        ("changed", {FINALIZERS: "a"}, "changes data"),
        ("", {FINALIZERS: "a", "colour": "blue"}, "changes metadata.colour"),
        ("", {FINALIZERS: "a", "more": ""}, "changes metadata.more"),
        ("", {FINALIZERS: "a", DELETION_TIMESTAMP: "2030-01-01T00:00:00Z"}, "changes metadata.deletionTimestamp"),
        ("", {FINALIZERS: "a", DELETION_TIMESTAMP: ""}, "changes metadata.deletionTimestamp"),
    ],
)
async def test_marked_resource_is_frozen(calls: Calls, text: str, metadata: dict[str, str], said: str) -> None:
    """Only the removal of finalizers is accepted. The error names the other change."""
    await calls.write(a_note(metadata=FROZEN))
    await calls.delete(an_id())
    before = (await calls.read(an_id())).resource
    write = a_note("one", text, metadata={"colour": "red", **metadata})
    frozen = "Note one is marked for deletion: only finalizers may be removed from it now"
    await refused(calls.write(write), Status.INVALID_ARGUMENT, frozen, said)
    assert (await calls.read(an_id())).resource == before


async def test_reencoded_data_is_no_change_of_a_marked_resource(calls: Calls) -> None:
    """A program that decodes and re-encodes the payload of another program can still remove its finalizer."""
    one, two = b"\n\x01a\x10\x01", b"\n\x01b\x10\x02"
    entries = [b"\x1a" + bytes([len(each)]) + each for each in (one, two)]
    resource = a_note(metadata={FINALIZERS: "a"})
    resource.data = AnyMessage(type_url=NOTE.type_url, value=entries[0] + entries[1])
    await calls.write(resource)
    await calls.delete(an_id())
    other = a_note(metadata={FINALIZERS: ""})
    other.data = AnyMessage(type_url=NOTE.type_url, value=entries[1] + entries[0])
    assert (await calls.stored(other)).metadata[FINALIZERS] == ""


async def test_marked_resource_keeps_its_encoding(calls: Calls) -> None:
    """Quotas refuse neither a mark nor the removal of a finalizer, so a longer encoding must not come with them."""
    small = await calls.stored(a_note(metadata={FINALIZERS: "a b c"}))
    assert small.data is not None
    for metadata in ({DELETION_TIMESTAMP: MARK, FINALIZERS: "a b c"}, {FINALIZERS: "a b"}, {FINALIZERS: "a"}):
        padded = a_note(metadata=metadata)
        # A reader takes the last of several values of a field.
        padded.data = AnyMessage(type_url=NOTE.type_url, value=encode(Note(text="x" * 10_000)) + b"\n\0")
        assert (await calls.stored(padded)).data == small.data


@pytest.mark.parametrize(
    ("text", "metadata", "said"),
    [
        ("", {DELETION_TIMESTAMP: MARK}, None),
        ("changed", {DELETION_TIMESTAMP: MARK}, "changes data"),
        ("", {DELETION_TIMESTAMP: MARK, "colour": "red"}, "changes metadata.colour"),
        ("", {DELETION_TIMESTAMP: MARK, FINALIZERS: "b"}, "changes metadata.finalizers"),
        (
            "",
            {DELETION_TIMESTAMP: "soon"},
            "deletionTimestamp 'soon' must be a timestamp such as '2024-02-02T10:00:00Z'",
        ),
        ("", {DELETION_TIMESTAMP: "2024-02-02T10:00:00"}, "must be a timestamp such as"),
    ],
)
async def test_write_may_mark_a_resource_only_with_a_time(
    calls: Calls, text: str, metadata: dict[str, str], said: str | None
) -> None:
    """A write may do the same as Delete, and nothing else with it. Unlike in Consul, the mark must be a time."""
    await calls.write(a_note(metadata={FINALIZERS: "a"}))
    write = a_note("one", text, metadata=metadata)
    if said is None:
        assert (await calls.stored(write)).metadata[DELETION_TIMESTAMP] == MARK
    else:
        await refused(calls.write(write), Status.INVALID_ARGUMENT, said)
