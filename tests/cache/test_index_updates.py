"""Indexes that follow updates: of a status, of a payload that does not decode, and when they are interrupted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from headway import indexes
from headway.cache import Applied, Cache, IndexTable, Informer, Isolation, projection
from headway.events import ignore
from headway.resource import Key, Resource, pb
from tests.helpers.resources import TEAM, Team, changes, chunk, end, key, put, stored, with_status

ADA = key("ada")


def states(resource: Resource[Team]) -> list[str]:
    return [condition.type for status in resource.status.values() for condition in status.conditions]


def team(version: int, *conditions: str) -> pb.Resource:
    made = stored(
        "ada", version, status={"test": pb.Status(conditions=[pb.Condition(type=each) for each in conditions])}
    )
    made.generation = "the only one"
    return made


def test_resource_with_one_wrong_value_among_good_ones_has_none_of_them() -> None:
    """A generator as a value is refused. Otherwise the good values would stay after the resource has others."""
    given: list[list[object]] = [[*range(50), (each for each in "a")], [50]]
    table = IndexTable(
        indexes.by_many(TEAM, "given", lambda resource: given[int(resource.version) - 1]), lambda *_: None
    )
    table.build({ADA: team(1)})
    assert (set(table.values()), table.failed) == (set(), {ADA})
    table.apply([Applied(ADA, team(1), team(2), 2)])
    assert (set(table.values()), table.failed) == ({50}, set())


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

    def function(resource: Resource[Team]) -> tuple[str]:
        if interrupted:
            raise KeyboardInterrupt
        return (resource.name,)

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


def lengths(resource: Resource[Team]) -> list[str]:
    return resource.metadata.get("color", "").split()


def parents(table: IndexTable, value: Any) -> list[list[Key]]:
    return [sorted(keys) for keys in table.parents(value)]


def test_parents_are_found_after_updates_of_the_values() -> None:
    """The first lookup counts the lengths of the values, and each update counts them again."""
    table = IndexTable(indexes.by_many(TEAM, "colors", lengths), lambda *_: None)
    bob = key("bob")
    before, other = painted(1, "re red"), stored("bob", 1, metadata={"color": "re"})
    table.build({ADA: before, bob: other})
    assert parents(table, "redder") == [[ADA, bob], [ADA]]
    after = painted(2, "redder r")
    table.apply([Applied(ADA, before, after, 2)])
    assert parents(table, "redder") == [[ADA], [bob], [ADA]]
    table.apply([Applied(bob, other, None, 3)])
    assert parents(table, "redder") == [[ADA], [ADA]]
    assert parents(table, "red") == [[ADA]]
    table.apply([Applied(ADA, after, None, 4), Applied(bob, None, other, 5)])
    assert parents(table, "redder") == [[bob]]
    assert parents(table, ("re",)) == []


def test_values_of_another_class_do_not_disturb_the_lookups_of_parents() -> None:
    table = IndexTable(indexes.by_many(TEAM, "colors", lengths), lambda *_: None)
    table.build({})
    assert parents(table, ("re",)) == []
    table.apply([Applied(ADA, None, painted(1, "re"), 1)])
    assert table.failed == set()
    assert table.keys("re") == {ADA}


def test_changed_status_calls_no_function_that_reads_only_other_parts() -> None:
    """A later change of the payload calls it."""
    called: list[str] = []

    def first(team: Resource[Team]) -> str:
        called.append(team.name)
        return f"{team.data.members[0]} {team.generation}"

    table = IndexTable(indexes.by(TEAM, "first", first), lambda *_: None)
    before = stored("ada", 1, data=Team(members=["one"]))
    table.build({ADA: before})
    after = with_status(before, 2)
    called.clear()
    table.apply([Applied(ADA, before, after, 2)])
    assert (called, set(table.keys(f"one {before.generation}"))) == ([], {ADA})
    changed = stored("ada", 3, data=Team(members=["two"]))
    table.apply([Applied(ADA, after, changed, 3)])
    assert set(table.values()) == {f"two {changed.generation}"}


READS_OF_A_STATUS: dict[str, Callable[[Resource[Team]], str]] = {
    "status": lambda team: ",".join(team.status),
    "version": lambda team: team.version,
    "message": lambda team: ",".join(team.message().status),
    "original": lambda team: ",".join(team.original().status),
    "copy": lambda team: ",".join(team.copy().status),
    "copy.copy": lambda team: ",".join(copy.copy(team).status),
    "copy.deepcopy": lambda team: ",".join(copy.deepcopy(team).status),
    "repr": repr,
    "==": lambda team: str(team == TEAM.view(stored("ada", 1))),
    "only of bob": lambda team: team.version if team.name == "bob" else "",
}


@pytest.mark.parametrize("name", READS_OF_A_STATUS)
def test_index_that_reads_a_status_in_any_way_follows_it(name: str) -> None:
    """One call that reads it is enough, so that the function may do so only for some resources."""
    function = READS_OF_A_STATUS[name]
    table = IndexTable(indexes.by(TEAM, "read", function), lambda *_: None)
    bob = key("bob")
    before = {ADA: stored("ada", 1), bob: stored("bob", 1)}
    table.build(before)
    after = {each: with_status(state, 2) for each, state in before.items()}
    table.apply([Applied(each, before[each], after[each], 2) for each in before])
    expected = {function(TEAM.view(each)) for each in after.values()}
    assert set(table.values()) == expected
    assert expected != {function(TEAM.view(each)) for each in before.values()}


@pytest.mark.parametrize("name", ["status", "version"])
def test_index_whose_calls_are_checked_follows_a_status(name: str) -> None:
    """The check of each call hands out a resource that notes no reads, so every call counts as one that reads it."""
    function = READS_OF_A_STATUS[name]
    table = IndexTable(indexes.by(TEAM, "read", function), lambda *_: None, Isolation())
    before = stored("ada", 1)
    table.build({ADA: before})
    after = with_status(before, 2)
    table.apply([Applied(ADA, before, after, 2)])
    assert set(table.values()) == {function(TEAM.view(after))}


class Refused(ValueError):
    """The error of a projection's function."""


def refuse(_: Resource[Team]) -> Team:
    raise Refused


async def test_index_of_a_projection_follows_a_status() -> None:
    """This holds even where the projection's function has raised, so that all states share their missing payload."""
    slim = projection(TEAM, Team, refuse, status=["test"])
    informer = Informer(slim, ignore)
    before = stored("ada", 1)
    informer.feed(chunk(before))
    informer.feed(end(1))
    by_state = indexes.by(slim, "state", lambda team: ",".join(team.status))
    cache = Cache("teams", slim, [])
    cache.open({slim.name: informer.subscribe([by_state], lambda *_: None)})
    assert [team.version for team in cache.index(by_state, "")] == ["1"]
    informer.feed(changes(put(with_status(before, 2))))
    assert [team.version for team in cache.index(by_state, "test")] == ["2"]
    assert cache.index(by_state, "") == []


PARTS: dict[str, tuple[Callable[[Resource[Team]], object], Callable[[pb.Resource], object]]] = {
    "id": (lambda team: team.uid, lambda made: setattr(made, "id", TEAM.id("ada", uid="ada2").message())),
    "owner": (lambda team: str(team.owner), lambda made: setattr(made, "owner", TEAM.id("boss").message())),
    "generation": (lambda team: team.generation, lambda made: setattr(made, "generation", "another")),
    "metadata": (lambda team: str(team.metadata), lambda made: setattr(made, "metadata", {"color": "red"})),
    "data": (lambda team: str(team.data), lambda made: setattr(made, "data", team_of("one", "two"))),
}


def team_of(*members: str) -> Any:
    return stored("ada", 1, data=Team(members=list(members))).data


@pytest.mark.parametrize("part", PARTS)
def test_changed_part_beside_the_status_is_indexed(part: str) -> None:
    """The old and the new state share everything else, so nothing but this part shows the change."""
    function, change = PARTS[part]
    table = IndexTable(indexes.by(TEAM, "part", function), lambda *_: None)
    before = stored("ada", 1)
    table.build({ADA: before})
    after = with_status(before, 2)
    change(after)
    table.apply([Applied(ADA, before, after, 2)])
    assert set(table.values()) == {function(TEAM.view(after))}
    assert set(table.values()) != {function(TEAM.view(before))}


def test_function_that_has_raised_is_called_again_for_a_changed_status() -> None:
    failures: list[Key] = []
    table = IndexTable(
        indexes.by(TEAM, "first", lambda team: team.data.members[0]), lambda _, k, __: failures.append(k)
    )
    before = stored("ada", 1)
    table.build({ADA: before})
    table.apply([Applied(ADA, before, with_status(before, 2), 2)])
    assert (failures, table.failed) == ([ADA, ADA], {ADA})
