"""Read: returns one resource by its id."""

from __future__ import annotations

from typing import Any

import pytest
from grpclib.const import Status

from headway.resource import ResourceType, pb
from tests.helpers.calls import Calls, at, refused
from tests.helpers.declared import (
    HOOKED,
    NOTE,
    NOTE_V2,
    PLANET,
    REGION,
    TYPES,
    UNKNOWN,
    a_note,
    a_type,
    an_id,
    id_of,
    text_of,
    uid_of,
)


@pytest.mark.parametrize(
    ("id", "said"),
    [
        (None, "id is required"),
        (pb.Id(name="one"), "id.type is required"),
        (pb.Id(name="one", type=pb.Type()), "id.type.group is required"),
        (pb.Id(name="one", type=a_type(group_version="")), "id.type.group_version is required"),
        (pb.Id(name="one", type=a_type(kind="")), "id.type.kind is required"),
        (an_id(""), "id of tests.v1.Note: name is required"),
        (an_id("One"), "id of tests.v1.Note: name 'One' is not a valid name: use 1 to 63 lower-case letters"),
        (an_id("a" * 64), "is not a valid name"),
        (an_id("-a"), "name '-a' is not a valid name"),
        (an_id(partition="Up"), "partition 'Up' is not a valid name"),
        (an_id(namespace="*"), "namespace '*' is not a valid name"),
        (an_id(type=UNKNOWN), "id.type: type tests.v1.Nothing is not registered; did you mean 'tests.v1.Note'?"),
        (
            an_id(type=REGION, namespace="up"),
            "id of tests.v1.Region: namespace 'up' must be empty: the type is partition-scoped",
        ),
        (
            an_id(type=PLANET, partition="up"),
            "id of tests.v1.Planet: partition 'up' and namespace '' must be empty: the type is cluster-scoped",
        ),
        (an_id(type=PLANET, namespace="up"), "must be empty: the type is cluster-scoped"),
    ],
)
async def test_invalid_id_is_refused_with_the_field(in_memory: Calls, id: pb.Id | None, said: str) -> None:
    """Every part of an id is checked. The error has the part, its value and the valid form."""
    await refused(in_memory.read(id), Status.INVALID_ARGUMENT, said)


@pytest.mark.parametrize("type", [each for each in TYPES if each is not NOTE_V2], ids=lambda each: each.name.kind)
async def test_resource_is_found_with_default_tenancy(calls: Calls, type: ResourceType[Any]) -> None:
    """Empty units are filled in, if the type's scope has them."""
    stored = await calls.stored(a_note("one", "hello", type))
    found = (await calls.read(an_id("one", type))).resource
    assert found == stored
    tenancy = id_of(found).tenancy
    expected = {REGION: ("default", ""), PLANET: ("", "")}.get(type, ("default", "default"))
    assert tenancy == pb.Tenancy(partition=expected[0], namespace=expected[1])


async def test_given_units_are_kept(calls: Calls) -> None:
    """Each empty unit is filled in separately."""
    await calls.make_room(("default", "up"))
    await calls.write(a_note("one", "there", namespace="up"))
    assert text_of((await calls.read(an_id("one", partition="default", namespace="up"))).resource) == "there"
    await refused(calls.read(an_id("one")), Status.NOT_FOUND, "Note one not found")


async def test_missing_resource_is_not_found(calls: Calls) -> None:
    """The name is free, or belongs to another incarnation."""
    await refused(calls.read(an_id("one", namespace="up")), Status.NOT_FOUND, "Note up/one not found")
    stored = await calls.stored(a_note("one"))
    await refused(calls.read(an_id("one", uid="other")), Status.NOT_FOUND, "Note one with uid other not found")
    assert (await calls.read(an_id("one", uid=uid_of(stored)))).resource == stored


async def test_other_version_of_the_kind_is_refused_and_named(calls: Calls) -> None:
    """A resource stored as v2 is not returned as v1. The error names both versions."""
    await calls.write(a_note("one", type=NOTE_V2))
    said = "Note one is stored as tests.v2.Note, but was requested as version 'v1'"
    await refused(calls.read(an_id("one", NOTE)), Status.INVALID_ARGUMENT, said)


async def test_answer_has_a_position_at_which_it_was_true(calls: Calls) -> None:
    """Every answer has a place in the history of its store."""
    written = at((await calls.write(a_note("one"))).position)
    await calls.write(a_note("two"))
    reply = await calls.read(an_id("one"))
    assert at(reply.position) == calls.backend.position
    assert at(reply.position).revision > written.revision


async def test_min_revision_is_met_or_refused(calls: Calls) -> None:
    """A reader that has seen a revision never gets an answer from below it."""
    await calls.write(a_note("one"))
    here = calls.revision
    assert (await calls.read(an_id("one"), min_revision=here)).resource is not None
    said = f"is at revision {here}, below min_revision {here + 1}"
    await refused(calls.read(an_id("one"), min_revision=here + 1), Status.UNAVAILABLE, said)
    await refused(calls.read(an_id("none"), min_revision=here + 1), Status.UNAVAILABLE, said)


async def test_hooks_do_not_run_when_reading(calls: Calls) -> None:
    """The stored resource is returned unchanged. The mutate hook ran when the resource was written."""
    stored = await calls.stored(a_note("one", "", HOOKED))
    assert text_of((await calls.read(an_id("one", HOOKED))).resource) == text_of(stored) == "untitled"
