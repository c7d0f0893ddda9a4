"""Reads of a cache refuse arguments of a wrong class, whatever the cache contains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headway.cache import Cache, CacheReader, Informer
from headway.errors import InvalidArgument
from headway.events import ignore
from headway.resource import pb
from tests.helpers.resources import TEAM, chunk, end, stored


def reader_of(*resources: pb.Resource) -> Cache:
    informer = Informer(TEAM, ignore)
    informer.feed(chunk(*resources))
    informer.feed(end(30))
    reader = Cache("teams", TEAM, [])
    reader.open({TEAM.name: informer.subscribe([], lambda *_: None)})
    return reader


SELECTED = "must be a string, such as 'default', or '\\*' for any, not "


@pytest.mark.parametrize(
    ("says", "given"),
    [
        (f"partition {SELECTED}3", {"partition": 3}),
        (f"namespace {SELECTED}None", {"namespace": None}),
        ("name_prefix must be a string, such as 'team-', not 3", {"name_prefix": 3}),
    ],
)
def test_wrong_selection_of_a_list_is_refused(says: str, given: dict[str, Any]) -> None:
    """Otherwise, the empty answer would mean that nothing exists (C1). An empty cache refuses it as well."""
    for reader in (reader_of(), reader_of(stored("ada", 1))):
        with pytest.raises(InvalidArgument, match=says):
            reader.list(TEAM, **given)


READS: list[Callable[[CacheReader, Any], object]] = [
    lambda reader, given: reader.get(given, "ada"),
    lambda reader, given: reader.get(given, TEAM.id("ada")),
    lambda reader, given: reader.list(given),
    lambda reader, given: reader.revision(given),
    lambda reader, given: reader.owned(given, TEAM.id("ada", uid="1")),
]


async def test_argument_that_is_not_a_type_is_refused_by_each_read() -> None:
    reader = reader_of(stored("ada", 1))
    wrong: Any = "Team"
    says = r"a cache is read by a type, as app.type\(...\) returned it, not 'Team'"
    async with reader.view(TEAM) as view:
        for each in (reader, view):
            for read in READS:
                with pytest.raises(InvalidArgument, match=says):
                    read(each, wrong)
    with pytest.raises(InvalidArgument, match=says):
        async with reader.view(wrong):
            pytest.fail("the view was opened")
