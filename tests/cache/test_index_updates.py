"""Indexes that follow updates: of a status, of a payload that does not decode, and when they are interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headway import indexes
from headway.cache import Applied, IndexTable
from headway.resource import Key, Resource, pb
from tests.helpers.resources import TEAM, Team, key, stored

ADA = key("ada")


def states(resource: Resource[Team]) -> list[str]:
    return [condition.type for status in resource.status.values() for condition in status.conditions]


def team(version: int, *conditions: str) -> pb.Resource:
    made = stored(
        "ada", version, status={"test": pb.Status(conditions=[pb.Condition(type=each) for each in conditions])}
    )
    made.generation = "the only one"
    return made


def test_update_of_a_status_is_indexed() -> None:
    """It leaves the generation as it is."""
    table = IndexTable(indexes.by_many(TEAM, "states", states), lambda *_: None)
    before = team(1)
    table.build({ADA: before})
    for version, conditions in ((2, ["Ready"]), (3, ["Ready", "Full"]), (4, ["Full"]), (5, [])):
        after = team(version, *conditions)
        table.apply([Applied(ADA, before, after, version)])
        assert {value: set(table.keys(value)) for value in table.values()} == {each: {ADA} for each in conditions}
        before = after


def colors(resource: Resource[Team]) -> list[str]:
    if resource.metadata.get("color") == "illegible":
        raise ValueError("illegible")
    return resource.metadata.get("color", "").split()


def painted(version: int, color: str) -> pb.Resource:
    return stored("ada", version, metadata={"color": color})


def test_resource_that_becomes_legible_again_is_indexed_like_any_other() -> None:
    """While its payload does not decode it has no values. It is never listed as failed."""
    failures: list[Key] = []
    table = IndexTable(
        indexes.by_many(TEAM, "colors", colors),
        lambda _, key, __: failures.append(key),
        is_undecodable=lambda _, resource: resource.metadata.get("color") == "illegible",
    )
    before = painted(1, "illegible")
    table.build({ADA: before})
    for version, color in enumerate(("red", "blue green", "illegible", "illegible", "green", ""), start=2):
        after = painted(version, color)
        table.apply([Applied(ADA, before, after, version)])
        expected = [] if color == "illegible" else color.split()
        assert {value: set(table.keys(value)) for value in table.values()} == {each: {ADA} for each in expected}
        before = after
    assert failures == []
    assert not table.failed


@pytest.mark.parametrize("declare", [indexes.by, indexes.by_many])
def test_interrupt_in_an_index_function_is_raised(declare: Any) -> None:
    """Ctrl-C may strike anywhere. It is not a failure of the index."""
    interrupted = False

    def function(resource: Resource[Team]) -> str:
        if interrupted:
            raise KeyboardInterrupt
        return resource.name

    failures: list[Key] = []
    table = IndexTable(declare(TEAM, "name", function), lambda _, key, __: failures.append(key))
    old, new = painted(1, ""), painted(2, "")
    table.build({ADA: old})
    interrupted = True
    strikes: list[Callable[[], None]] = [
        lambda: table.build({ADA: old}),
        lambda: table.apply([Applied(ADA, None, new, 2)]),
        lambda: table.apply([Applied(ADA, old, None, 2)]),
    ]
    for strike in strikes:
        with pytest.raises(KeyboardInterrupt):
            strike()
    assert failures == []
