"""The ready-made mappers, and what is made of what a mapper returns."""

from __future__ import annotations

from typing import Any

import pytest

from headway import indexes, mappers
from headway.cache import Cache, CacheReader, Index, Informer, projection
from headway.errors import DeclarationError
from headway.events import ignore
from headway.mapper import ids_of, mapper_name
from headway.resource import Key, Resource, ResourceId, ResourceType, Scope
from tests.helpers.resources import ACCOUNT, TEAM, Account, Team, chunk, end, key, stored

TEAM_2: ResourceType[Team] = ResourceType("staff", "v2", "Team", Team)


def accounts_of(team: Resource[Team]) -> list[ResourceId]:
    return [ACCOUNT.id(name) for name in team.data.members]


BY_ID = indexes.by_many(TEAM, "ids", accounts_of)
BY_REFERENCE = indexes.by_references(TEAM, "references", accounts_of)


def fail(name: str, key: Key, error: BaseException) -> None:
    raise AssertionError(f"{name} of {key}") from error


def cache(*teams: Any) -> CacheReader:
    """The cache of a controller that manages teams, indexed by what they refer to."""
    shared = Informer(TEAM, ignore)
    shared.feed(chunk(*teams))
    shared.feed(end(30))
    reader = Cache("teams", TEAM, [ACCOUNT])
    reader.open({TEAM.name: shared.subscribe([BY_ID, BY_REFERENCE], fail)})
    return reader


def account(name: str, **more: Any) -> Resource[Account]:
    return ACCOUNT.view(stored(name, 7, type=ACCOUNT, **more))


# --- the mappers -------------------------------------------------------------


def test_the_owner_is_mapped_to_where_it_is_of_the_managed_type() -> None:
    """In whatever version of it; an owner of another type, or none, is nobody's concern."""
    for owner in (TEAM.id("core", uid="core1"), TEAM_2.id("core")):
        assert list(mappers.owner()(account("ada", owner=owner), cache())) == [owner]
    assert list(mappers.owner()(account("ada", owner=ACCOUNT.id("boss")), cache())) == []
    assert list(mappers.owner()(account("ada"), cache())) == []


def test_the_same_name_is_mapped_to_in_the_same_tenancy() -> None:
    """Of the managed type, whatever its incarnation."""
    there = ACCOUNT.view(ACCOUNT.new("ada", namespace="apart").message())
    assert list(mappers.same_name()(there, cache())) == [TEAM.id("ada", namespace="apart")]
    assert list(mappers.same_name()(account("ada"), cache())) == [TEAM.id("ada")]


@pytest.mark.parametrize("by", [BY_ID, BY_REFERENCE])
def test_those_that_refer_to_it_are_mapped_to_by_an_index_of_theirs(by: Index[Any, ResourceId]) -> None:
    """By the id without its uid, since references have none."""
    teams = [stored(name, 1, data=Team(members=who)) for name, who in (("a", ["ada"]), ("b", ["ada", "x"]), ("c", []))]
    found = mappers.index(by)(account("ada"), cache(*teams))
    assert ids_of(found, TEAM) == ([key("a"), key("b")], [])


def test_a_mapper_by_index_takes_an_index() -> None:
    """Its name, given by mistake, is refused when it is declared."""
    with pytest.raises(DeclarationError, match="expects an index"):
        mappers.index("references")  # type: ignore[call-overload]  # what is tested


def test_a_mapper_is_named_in_reports() -> None:
    """By its function, or by whatever it is."""

    class Odd:
        def __call__(self, *_: object) -> list[Resource[Any]]:
            return []

        def __repr__(self) -> str:
            return "<an odd one>"

    assert mapper_name(mappers.owner()) == "mappers.owner()"
    assert mapper_name(Odd()) == "<an odd one>"
    assert mapper_name(mappers.index(BY_ID)) == "mappers.index(<Index ids on staff.v1.Team>)"


# --- what a mapper returned --------------------------------------------------


def test_ids_and_resources_of_the_managed_type_are_keys() -> None:
    """Of any version, from any iterable, in their order."""
    given = (each for each in (TEAM.id("b"), TEAM.view(stored("a", 1)), TEAM_2.id("c")))
    assert ids_of(given, TEAM) == ([key("b"), key("a"), key("c")], [])
    assert ids_of([], TEAM) == ([], [])


@pytest.mark.parametrize("result", [None, "core", TEAM.id("core"), TEAM.new("core"), 7])
def test_what_is_no_list_is_named(result: object) -> None:
    """Also where it could be iterated by accident: a text, and an id, which is a tuple."""
    keys, problems = ids_of(result, TEAM)
    assert keys == []
    assert len(problems) == 1


def test_an_id_where_the_managed_type_can_not_be_is_named() -> None:
    """It would be nobody's: one made by hand without its tenancy, or in a namespace that the scope doesn't have."""
    by_hand = ResourceId(TEAM.name, "core")
    assert ids_of([by_hand, TEAM.id("a")], TEAM)[0] == [key("a")]
    assert "TYPE.id(name)" in ids_of([by_hand], TEAM)[1][0]
    node: ResourceType[Account] = ResourceType("staff", "v1", "Node", Account, scope=Scope.CLUSTER)
    assert "cluster-scoped" in ids_of([node.id("n")._replace(namespace="apart")], node)[1][0]
    slim = projection(node, Account, lambda each: each.data)
    assert ids_of([slim.id("n"), slim.id("n")._replace(partition="p")], slim)[0] == [("", "", "n")]


def test_what_is_wrong_in_a_list_is_named_and_the_rest_is_kept() -> None:
    """Each wrong thing by a sentence of its own."""
    keys, problems = ids_of([TEAM.id("a"), ACCOUNT.id("b"), "c", None, TEAM.id("d")], TEAM)
    assert keys == [key("a"), key("d")]
    assert len(problems) == 3
    assert "Account" in problems[0]
    assert "'c'" in problems[1]
