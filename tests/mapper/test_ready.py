"""The mapper library: the keys that each mapper returns, and the misuses that are refused when a mapper is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import headway
from headway import indexes, mappers
from headway.cache import OWNER_INDEX, Cache, CachedType, CacheReader, Index, Informer, projection
from headway.errors import DeclarationError
from headway.events import ignore
from headway.mapper import Need, StateMapper, ask, ids_of, mapper_name
from headway.resource import Resource, ResourceType, Scope, pb
from tests.helpers.resources import ACCOUNT, TEAM, Account, Team, chunk, end, stored

POD: ResourceType[Account] = ResourceType("staff", "v1", "Pod", Account)
NODE: ResourceType[Account] = ResourceType("staff", "v1", "Node", Account, scope=Scope.CLUSTER)


def fail(name: str, *_: object) -> None:
    raise AssertionError(name)


def reader(
    held: Mapping[CachedType[Any], Sequence[Any]], indexes: Mapping[CachedType[Any], Sequence[Index[Any, Any]]]
) -> CacheReader:
    """Return the cache of a controller that manages teams. The cache has these resources."""
    opened = {}
    for type in {**held, **indexes}:
        informer = Informer(type, ignore)
        informer.feed(chunk(*held.get(type, ())))
        informer.feed(end(30))
        opened[type.name] = informer.subscribe(list(indexes.get(type, ())), fail)
    cache = Cache("teams", TEAM, list(held))
    cache.open(opened)
    return cache


EMPTY = reader({TEAM: []}, {TEAM: [indexes.by_owner(TEAM, name=OWNER_INDEX)]})


def account(name: str, login: str = "", **more: Any) -> Resource[Account]:
    return ACCOUNT.view(stored(name, 7, type=ACCOUNT, data=Account(login=login), **more))


def names(mapper: headway.mappers.Mapper[Any], *states: Resource[Any] | None, cache: CacheReader = EMPTY) -> list[str]:
    """Return the keys that a change from old to new maps to. A change of one state is a creation."""
    old, new = states if len(states) == 2 else (None, states[0])
    keys = []
    for answer in ask(mapper, old, new, cache):
        found, problems = ids_of(answer, TEAM)
        assert not problems
        keys += [key[2] for key in found]
    return keys


def test_resource_of_the_managed_type_is_mapped_to_itself() -> None:
    assert names(mappers.itself(), TEAM.view(stored("core", 1))) == ["core"]
    assert names(mappers.itself(), account("ada")) == []


def test_owned_mapper_maps_to_owned_resources() -> None:
    """Owners match by uid, so resources of other owners are not included."""
    teams = [
        stored(name, 1, owner=ACCOUNT.id("ada", uid=uid)) for name, uid in (("a", "ada1"), ("b", "x"), ("c", "ada1"))
    ]
    cache = reader({TEAM: [*teams, stored("d", 1)]}, {TEAM: [indexes.by_owner(TEAM, name=OWNER_INDEX)]})
    assert names(mappers.owned(), account("ada"), cache=cache) == ["a", "c"]
    assert names(mappers.owned(), account("bob"), cache=cache) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("core", ["core"]),
        ("", []),
        (None, []),
        (TEAM.id("core"), ["core"]),
        (TEAM.id("core").reference(), ["core"]),
        (ACCOUNT.id("core"), []),
        (ACCOUNT.id("core").reference(), []),
        ("Not a name", []),
        ("a/b", []),
        ("x" * 300, []),
        (pb.Reference(type=TEAM.message, name="Not a name"), []),
        (pb.Reference(type=TEAM.message, name="core", tenancy=pb.Tenancy(namespace="Not a name")), []),
    ],
)
def test_reference_mapper_maps_to_the_referenced_resource(given: Any, expected: list[str]) -> None:
    """The function may return an id, a reference or a name. None and what no resource can have map to nothing."""
    assert names(mappers.reference(lambda _: given), account("ada")) == expected
    assert names(mappers.references(lambda _: [given, "other", given]), account("ada")) == [
        *expected,
        "other",
        *expected,
    ]


def test_reference_without_tenancy_is_resolved_in_the_referring_tenancy() -> None:
    """Missing units come from there. The namespace does so only if the partition is the same."""
    apart = ACCOUNT.view(ACCOUNT.new("ada", Account(), namespace="apart").message())

    def given(**units: str) -> list[object]:
        reference = pb.Reference(type=TEAM.message, name="core", tenancy=pb.Tenancy(**units))
        return list(mappers.reference(lambda _: reference)(apart, EMPTY))

    assert given() == [TEAM.id("core", namespace="apart")]
    assert given(namespace="own") == [TEAM.id("core", namespace="own")]
    assert given(partition="far") == [TEAM.id("core", partition="far")]


@pytest.mark.parametrize("texts", [True, False])
def test_index_prefix_and_parents_mappers_match_prefixes(texts: bool) -> None:
    """The prefix mapper finds values that begin with the key, and the parents mapper values that are a prefix of it.

    None maps to nothing.
    """

    def path(of: str) -> Any:
        return of if texts else tuple(of)

    by_path: Index[Any, Any] = indexes.by_many(TEAM, "path", lambda team: map(path, team.data.members))
    teams = [stored(name, 1, data=Team(members=who)) for name, who in (("a", ["p"]), ("b", ["pq", "x"]), ("c", ["q"]))]
    cache = reader({TEAM: teams}, {TEAM: [by_path]})
    beginning = mappers.index_prefix(by_path, lambda each: path(each.data.login) if each.data.login else None)
    parents = mappers.index_parents(by_path, lambda each: path(each.data.login) if each.data.login else None)
    assert names(beginning, account("ada", "p"), cache=cache) == ["a", "b"]
    assert names(parents, account("ada", "pqr"), cache=cache) == ["a", "b"]
    assert names(parents, account("ada", "p"), cache=cache) == ["a"]
    assert names(mappers.union(beginning, parents), account("ada"), cache=cache) == []
    assert beginning.needs == parents.needs == {Need(None, by_path)}


def test_index_mapper_takes_a_function_for_the_value() -> None:
    """The default value is the id of the changed resource."""
    by_member = indexes.by_many(TEAM, "member", lambda team: team.data.members)
    cache = reader({TEAM: [stored("a", 1, data=Team(members=["ada", "bob"]))]}, {TEAM: [by_member]})
    assert names(mappers.index(by_member, value=lambda each: each.name), account("bob"), cache=cache) == ["a"]
    by_id = indexes.by_references(TEAM, "of", lambda team: map(ACCOUNT.id, team.data.members))
    cache = reader({TEAM: [stored("a", 1, data=Team(members=["ada", "bob"]))]}, {TEAM: [by_member, by_id]})
    assert names(mappers.index(by_id, value=lambda _: None), account("bob"), cache=cache) == []
    assert names(mappers.index(by_member), account("bob"), cache=cache) == []  # type: ignore[arg-type]  # what is tested


def test_union_combines_all_its_mappers() -> None:
    """The mappers may map one state or both."""
    plain = mappers.union(mappers.owner(), mappers.reference(lambda each: each.data.login))
    assert names(plain, account("ada", "x", owner=TEAM.id("core"))) == ["core", "x"]

    def moved(old: Resource[Account] | None, new: Resource[Account] | None, _: CacheReader) -> list[headway.ResourceId]:
        return [] if old is None or new is None or old.data == new.data else [TEAM.id("movers")]

    both = mappers.union(mappers.reference(lambda each: each.data.login), mappers.change(moved))
    assert names(both, account("ada", "x"), account("ada", "y")) == ["x", "y", "movers"]
    assert names(both, account("ada", "x"), account("ada", "x")) == ["x", "x"]


@pytest.mark.parametrize("wrong", [None, "core"])
def test_invalid_result_of_a_part_of_a_union_is_refused(wrong: Any) -> None:
    """None and a text are not lists, also in a union."""
    answers = ask(mappers.union(mappers.owner(), lambda _, __: wrong), None, account("ada"), EMPTY)
    assert repr(wrong) in ids_of(answers[0], TEAM)[1][0]


def test_condition_applies_to_each_state_separately() -> None:
    """The keys of the old state are reconciled when the condition stops being true."""
    mapper = mappers.only_if(lambda each: each.data.login != "gone", mappers.reference(lambda each: each.name))
    assert names(mapper, account("a", "x"), account("b", "gone")) == ["a"]
    assert names(mapper, account("a", "gone"), account("b", "x")) == ["b"]

    seen: list[tuple[bool, bool]] = []

    def both(old: Any, new: Any, _: CacheReader) -> list[headway.ResourceId]:
        seen.append((old is not None, new is not None))
        return []

    change = mappers.only_if(lambda each: each.data.login != "gone", mappers.change(both))
    names(change, account("a", "x"), account("a", "gone"))
    names(change, account("a", "gone"), account("a", "gone"))
    assert seen == [(True, False)]


def test_through_mapper_maps_by_way_of_a_third_type() -> None:
    """The mapper maps a node to its pods, and these to their owners. It maps each existing pod once."""
    pods = [
        stored(name, 1, type=POD, owner=TEAM.id(team), data=Account(login="n1"))
        for name, team in (("p", "a"), ("q", "b"))
    ]
    by_node = indexes.by(POD, "node", lambda pod: pod.data.login)
    cache = reader({TEAM: [], POD: pods}, {POD: [by_node]})
    node = NODE.view(stored("n1", 7, type=NODE))
    of_node: StateMapper[Any] = mappers.index(by_node, value=lambda node: node.name)
    assert names(mappers.through(POD, of_node, mappers.owner()), node, cache=cache) == ["a", "b"]
    named = mappers.through(POD, mappers.references(lambda _: ["p", "p", "gone"]), mappers.owner())
    assert names(named, account("x"), cache=cache) == ["a"]


def test_through_mapper_accepts_a_projection() -> None:
    """The second mapper gets the projection, whatever the first one returns."""
    slim = projection(POD, Account, lambda pod: Account(login=f"{pod.data.login}-slim"))
    pod = stored("p", 1, type=POD, data=Account(login="core"))
    cache = reader({TEAM: [], slim: [pod]}, {})
    firsts: list[StateMapper[Any]] = [
        mappers.references(lambda _: ["p"]),
        lambda _, cache: cache.list(slim),
        lambda *_: [POD.view(pod)],
    ]
    for first in firsts:
        through = mappers.through(slim, first, mappers.reference(lambda each: each.data.login))
        assert names(through, account("x"), cache=cache) == ["core-slim"]


def test_mapper_declares_the_indexes_that_it_needs() -> None:
    """A missing index is found when the controller is declared."""
    by_node, a, b = indexes.by(POD, "node", lambda pod: pod.id), indexes.by(TEAM, "a", lambda _: TEAM.id("x")), BY_ID
    through = mappers.through(POD, mappers.index(by_node), mappers.owned())
    assert through.needs == {Need(POD, by_node), Need(None, None)}
    union = mappers.union(
        mappers.index(a), mappers.only_if(lambda _: True, mappers.index(b)), mappers.change(lambda *_: [])
    )
    assert getattr(union, "needs", None) == {Need(None, a), Need(None, b)}


BY_ID = indexes.by(TEAM, "b", lambda team: team.id)
BY_NAME = indexes.by(TEAM, "name", lambda team: team.name)


def of_login(each: Resource[Account]) -> str:
    return each.data.login


def test_every_mapper_has_a_descriptive_name() -> None:
    union = mappers.union(mappers.owner(), mappers.only_if(bool, mappers.itself()), mappers.reference(of_login))
    assert (
        mapper_name(union)
        == "mappers.union(mappers.owner(), mappers.only_if(bool, mappers.itself()), mappers.reference(of_login))"
    )
    assert mapper_name(mappers.through(POD, mappers.index(BY_ID), mappers.same_name())) == (
        "mappers.through(staff.v1.Pod, mappers.index(<Index b on staff.v1.Team>), mappers.same_name())"
    )


async def waits(_: Resource[Any]) -> str:
    return ""


MISUSES: list[tuple[str, Callable[[], object]]] = [
    ("mappers.union expects mappers", mappers.union),
    ("mappers.union: each mapper must be a mapper", lambda: mappers.union(mappers.owner(), "map_owner")),  # type: ignore[arg-type]
    ("mappers.union: each mapper must take a resource and a cache", lambda: mappers.union(list)),  # type: ignore[arg-type]
    ("mappers.reference must be a function, not 'service'", lambda: mappers.reference("service")),  # type: ignore[arg-type]
    ("mappers.reference must be a plain function", lambda: mappers.reference(waits)),  # type: ignore[arg-type]
    ("mappers.references must take a resource", lambda: mappers.references(lambda: ["core"])),  # type: ignore[misc, arg-type]
    ("only_if must take a resource, but takes", lambda: mappers.only_if(mappers.owner(), None)),  # type: ignore[arg-type]
    ("mappers.change must take old, new and a cache", lambda: mappers.change(lambda _: [])),  # type: ignore[misc, arg-type]
    ("through(): type must be a type", lambda: mappers.through("Pod", mappers.owner(), mappers.owner())),  # type: ignore[arg-type]
    ("mappers of one state", lambda: mappers.through(POD, mappers.change(lambda *_: []), mappers.owner())),  # type: ignore[arg-type]
    ("mappers.index(): index must be an index from", lambda: mappers.index(3)),  # type: ignore[call-overload]
    ("mappers.index_prefix(): index must be an index from", lambda: mappers.index_prefix("b", repr)),  # type: ignore[call-overload]
    ("mappers.index_parents(): index must be an index from", lambda: mappers.index_parents("b", repr)),  # type: ignore[call-overload]
    ("mappers.index_parents: value must be a function", lambda: mappers.index_parents(BY_NAME, "b")),  # type: ignore[call-overload]
]


@pytest.mark.parametrize(("says", "misuse"), MISUSES, ids=[str(number) for number in range(len(MISUSES))])
def test_mapper_misuse_is_refused_when_it_is_built(says: str, misuse: Callable[[], object]) -> None:
    with pytest.raises(DeclarationError) as caught:
        misuse()
    assert says in str(caught.value)
