"""The places that a List or a WatchList covers, by the requested tenancy and the scope of the type."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import HeadwayError
from headway.resource import EndOfSnapshot, ResourceType, SnapshotChunk, pb
from headway.storage import Put
from tests.helpers.calls import Calls
from tests.helpers.declared import NOTE, PLANET, REGION, a_type, id_of
from tests.helpers.service_errors import status_of
from tests.helpers.verb_answers import Cell, Difference, expected_answer
from tests.service.conftest import TABLE_PLACES

PLACES = [("default", "default"), ("default", "up"), ("far", "default"), ("far", "up")]
ALL = "default.default default.up far.default far.up"
ABSENT = "(none)"
STRAY = "a resource that Read can't find must not be listed"

# Each row has the type, the requested tenancy, and the places in which List and WatchList find resources.
ROWS: list[tuple[ResourceType[Any], str, Cell, Cell]] = [
    (NOTE, ".default", "default.default", "default.default"),
    (NOTE, "default.", "default.default", "default.default"),
    (NOTE, ".", "default.default", "default.default"),
    (NOTE, "*.", "default.default far.default", "default.default far.default"),
    (NOTE, ".*", "default.default default.up", "default.default default.up"),
    (NOTE, "*.*", ALL, ALL),
    (NOTE, "*.up", "default.up far.up", "default.up far.up"),
    (NOTE, "far.*", "far.default far.up", "far.default far.up"),
    (NOTE, "far.up", "far.up", "far.up"),
    (NOTE, "nowhere.", "", ""),
    (REGION, ".", "default.", "default."),
    (REGION, "*.", "default. far.", "default. far."),
    (REGION, "*.*", "default. far.", "default. far."),
    (REGION, "far.", "far.", "far."),
    (REGION, ".up", "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    (PLANET, ".", ".", "."),
    (PLANET, "*.*", ".", "."),
    (PLANET, "default.default", Difference("INVALID_ARGUMENT", ".", STRAY), "INVALID_ARGUMENT"),
    (PLANET, "*.", Difference("INVALID_ARGUMENT", ".", STRAY), "INVALID_ARGUMENT"),
    (NOTE, ABSENT, "INVALID_ARGUMENT", ALL),
    (REGION, ABSENT, "INVALID_ARGUMENT", "default. far."),
    (PLANET, ABSENT, "INVALID_ARGUMENT", "."),
]


def params() -> list[Any]:
    return [
        pytest.param(type, given, verb, cell, id=f"{type.scope.name.lower()} scope, {given}, {verb}")
        for type, given, of_list, of_watch in ROWS
        for verb, cell in (("List", of_list), ("WatchList", of_watch))
    ]


async def fill(calls: Calls) -> None:
    """Store one resource of each type in every place that its scope has, in a single commit."""
    places: list[tuple[ResourceType[Any], str, str]] = [(NOTE, *place) for place in PLACES]
    places += [(REGION, "default", ""), (REGION, "far", ""), (PLANET, "", "")]
    puts = []
    for type, partition, namespace in places:
        resource = type.new("one", partition=partition, namespace=namespace).message()
        id_of(resource).uid = f"{partition}.{namespace}"
        puts.append(Put(type.kind, (partition, namespace, "one"), resource, ""))
    await calls.backend.commit(puts)


@pytest.mark.parametrize("anywhere", TABLE_PLACES, indirect=True)
@pytest.mark.parametrize(("type", "given", "verb", "cell"), params())
async def test_tenancy_matches_as_in_the_table(
    anywhere: Calls, type: ResourceType[Any], given: str, verb: str, cell: Cell
) -> None:
    """Empty units are the default ones, and stars match any. A watch without a tenancy covers everything."""
    await fill(anywhere)
    partition, _, namespace = given.partition(".")
    tenancy = None if given == ABSENT else pb.Tenancy(partition=partition, namespace=namespace)
    try:
        found = await (_listed if verb == "List" else _watched)(anywhere, a_type(type), tenancy)
        answer = " ".join(sorted(_place(each) for each in found))
    except HeadwayError as error:
        answer = status_of(error).name
    assert answer == expected_answer(cell)


async def _listed(calls: Calls, type: pb.Type, tenancy: pb.Tenancy | None) -> list[pb.Resource]:
    return list((await calls.list_type(type, tenancy)).resources)


async def _watched(calls: Calls, type: pb.Type, tenancy: pb.Tenancy | None) -> list[pb.Resource]:
    found: list[pb.Resource] = []
    async with calls.watch(type, tenancy) as items:
        async for item in items:
            if isinstance(item, EndOfSnapshot):
                break
            assert isinstance(item, SnapshotChunk)
            found += item.resources
    return found


def _place(resource: pb.Resource) -> str:
    tenancy = id_of(resource).tenancy
    assert tenancy is not None
    return f"{tenancy.partition}.{tenancy.namespace}"
