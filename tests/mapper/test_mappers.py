"""The ready-made mappers, and the check of a mapper's result."""

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
    """Return the cache of a controller that manages teams, indexed by their references."""
    informer = Informer(TEAM, ignore)
    informer.feed(chunk(*teams))
    informer.feed(end(30))
    reader = Cache("teams", TEAM, [ACCOUNT])
    reader.open({TEAM.name: informer.subscribe([BY_ID, BY_REFERENCE], fail)})
    return reader


def account(name: str, **more: Any) -> Resource[Account]:
    return ACCOUNT.view(stored(name, 7, type=ACCOUNT, **more))


# --- the mappers -------------------------------------------------------------


def test_owner_mapper_maps_to_owners_of_the_managed_type() -> None:
    """Any version of the type counts. An owner of another type, or a missing owner, maps to nothing."""
    for owner in (TEAM.id("core", uid="core1"), TEAM_2.id("core")):
        assert list(mappers.owner()(account("ada", owner=owner), cache())) == [owner]
    assert list(mappers.owner()(account("ada", owner=ACCOUNT.id("boss")), cache())) == []
    assert list(mappers.owner()(account("ada"), cache())) == []


def test_same_name_mapper_maps_to_the_same_name_and_tenancy() -> None:
    """The id is of the managed type, without a uid."""
    there = ACCOUNT.view(ACCOUNT.new("ada", namespace="apart").message())
    assert list(mappers.same_name()(there, cache())) == [TEAM.id("ada", namespace="apart")]
    assert list(mappers.same_name()(account("ada"), cache())) == [TEAM.id("ada")]


@pytest.mark.parametrize("by", [BY_ID, BY_REFERENCE])
def test_reference_index_mapper_maps_to_referring_resources(by: Index[Any, ResourceId]) -> None:
    """The lookup is by the id without its uid, since references have none."""
    teams = [stored(name, 1, data=Team(members=who)) for name, who in (("a", ["ada"]), ("b", ["ada", "x"]), ("c", []))]
    found = mappers.index(by)(account("ada"), cache(*teams))
    assert ids_of(found, TEAM) == ([key("a"), key("b")], [])


def test_index_mapper_refuses_the_name_of_an_index() -> None:
    """The error comes at the declaration."""
    with pytest.raises(DeclarationError, match=r"index must be an index from headway\.indexes\.by.*, not 'references'"):
        mappers.index("references")  # type: ignore[call-overload]  # what is tested


def test_reports_name_the_mapper() -> None:
    """The name is the name of the function or of the object."""

    class Odd:
        def __call__(self, *_: object) -> list[Resource[Any]]:
            return []

        def __repr__(self) -> str:
            return "<an odd one>"

    assert mapper_name(mappers.owner()) == "mappers.owner()"
    assert mapper_name(Odd()) == "<an odd one>"
    assert mapper_name(mappers.index(BY_ID)) == "mappers.index(<Index ids on staff.v1.Team>)"


# --- results of a mapper -------------------------------------------------------


def test_ids_and_resources_of_the_managed_type_become_keys() -> None:
    """The resources may be of any version of the type and come from any iterable. Their order is kept."""
    given = (each for each in (TEAM.id("b"), TEAM.view(stored("a", 1)), TEAM_2.id("c")))
    assert ids_of(given, TEAM) == ([key("b"), key("a"), key("c")], [])
    assert ids_of([], TEAM) == ([], [])


@pytest.mark.parametrize("result", [None, "core", TEAM.id("core"), TEAM.new("core"), 7])
def test_mapper_result_that_is_not_a_list_is_refused(result: object) -> None:
    """The invalid results include a text and an id, which is a tuple. Both could be iterated by accident."""
    keys, problems = ids_of(result, TEAM)
    assert keys == []
    assert len(problems) == 1


def test_id_outside_the_scope_of_the_managed_type_is_refused() -> None:
    """An invalid id was made by hand, without its tenancy or with a namespace that the scope doesn't have."""
    by_hand = ResourceId(TEAM.name, "core")
    assert ids_of([by_hand, TEAM.id("a")], TEAM)[0] == [key("a")]
    assert "TYPE.id(name)" in ids_of([by_hand], TEAM)[1][0]
    node: ResourceType[Account] = ResourceType("staff", "v1", "Node", Account, scope=Scope.CLUSTER)
    assert "cluster-scoped" in ids_of([node.id("n")._replace(namespace="apart")], node)[1][0]
    slim = projection(node, Account, lambda each: each.data)
    assert ids_of([slim.id("n"), slim.id("n")._replace(partition="p")], slim)[0] == [("", "", "n")]


def test_invalid_items_of_a_result_are_named_and_the_others_are_kept() -> None:
    """The error has one sentence for each invalid item."""
    keys, problems = ids_of([TEAM.id("a"), ACCOUNT.id("b"), "c", None, TEAM.id("d")], TEAM)
    assert keys == [key("a"), key("d")]
    assert len(problems) == 3
    assert "Account" in problems[0]
    assert "'c'" in problems[1]
