"""Indexes over what changes within a generation, which counts changes of the payload and not those of a status."""

from __future__ import annotations

from headway import indexes
from headway.cache import Applied, IndexTable
from headway.resource import Resource, pb
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
