"""Two watches are the same if they would map every change alike, whenever they were created."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import headway
from headway import field, mappers, predicates
from headway.mapper import Watch, changed_captures, same_watch


@headway.message(name="same.Thing")
class Thing:
    refers: str = field(1)


app = headway.App("same")
TEAM = app.type("same", "v1", "Team", Thing)
ACCOUNT = app.type("same", "v1", "Account", Thing)
BY_NAME = headway.indexes.by(TEAM, "name", lambda team: team.name)


def of_account(account: Any, _: Any) -> list[Any]:
    return [TEAM.id(account.data.refers)]


class Maps:
    def of(self, account: Any, _: Any) -> list[Any]:
        return [TEAM.id(account.name)]


MAPS = Maps()


def named(prefix: str) -> Callable[[Any, Any], list[Any]]:
    def map_named(account: Any, _: Any) -> list[Any]:
        return [TEAM.id(prefix + account.name)]

    return map_named


def captures_itself() -> Callable[[Any, Any], list[Any]]:
    def deep(account: Any, cache: Any) -> list[Any]:
        return [TEAM.id(account.name)] if account else deep(account, cache)

    return deep


def of_prefix(prefix: str, account: Any, _: Any) -> list[Any]:
    return [TEAM.id(prefix + account.name)]


MADE: list[Callable[[], Watch[Any]]] = [
    lambda: headway.watch(ACCOUNT, of_account),
    lambda: headway.watch(TEAM, of_account),
    lambda: headway.watch(ACCOUNT, lambda account, _: [TEAM.id(account.data.refers)]),
    lambda: headway.watch(ACCOUNT, lambda account, _, other="x": [TEAM.id(other + account.name)]),
    lambda: headway.watch(ACCOUNT, lambda account, _, other="y": [TEAM.id(other + account.name)]),
    lambda: headway.watch(ACCOUNT, lambda account, _, *, other="y": [TEAM.id(other + account.name)]),
    lambda: headway.watch(ACCOUNT, named("a-")),
    lambda: headway.watch(ACCOUNT, named("b-")),
    lambda: headway.watch(ACCOUNT, captures_itself()),
    lambda: headway.watch(ACCOUNT, MAPS.of),
    lambda: headway.watch(ACCOUNT, functools.partial(of_prefix, "a")),
    lambda: headway.watch(ACCOUNT, functools.partial(of_prefix, "b")),
    lambda: headway.watch(ACCOUNT, mappers.owner()),
    lambda: headway.watch(ACCOUNT, mappers.same_name()),
    lambda: headway.watch(ACCOUNT, mappers.index(BY_NAME, value=lambda account: account.name)),
    lambda: headway.watch(ACCOUNT, mappers.index(BY_NAME, value=lambda account: account.data.refers)),
    lambda: headway.watch(ACCOUNT, mappers.reference(lambda account: account.data.refers)),
    lambda: headway.watch(ACCOUNT, mappers.reference(lambda account: account.name)),
    lambda: headway.watch(ACCOUNT, mappers.union(mappers.owner(), of_account)),
    lambda: headway.watch(ACCOUNT, mappers.union(of_account, mappers.owner())),
    lambda: headway.watch(ACCOUNT, mappers.change(lambda old, new, _: [])),  # noqa: ARG005  # the form of a mapper
    lambda: headway.watch(ACCOUNT, mappers.only_if(lambda account: bool(account.name), mappers.owner())),
    lambda: headway.watch(ACCOUNT, mappers.owner(), when=predicates.data_changed()),
    lambda: headway.watch(ACCOUNT, mappers.owner(), when=predicates.metadata_changed("a")),
    lambda: headway.watch(ACCOUNT, mappers.owner(), when=predicates.metadata_changed("b")),
    lambda: headway.watch(
        ACCOUNT, mappers.owner(), when=predicates.any_of(predicates.data_changed(), predicates.status_changed())
    ),
    lambda: headway.watch(ACCOUNT, mappers.owner(), when=lambda old, new: old is not new),
]


@pytest.mark.parametrize("number", range(len(MADE)))
def test_watch_is_the_same_when_it_is_created_again_and_differs_from_all_others(number: int) -> None:
    one = MADE[number]()
    assert same_watch(one, MADE[number]())
    assert [other for other, make in enumerate(MADE) if same_watch(one, make())] == [number]


def test_function_that_captures_a_mutable_or_incomparable_value_is_only_the_same_as_itself() -> None:
    class Refuses:
        def __eq__(self, other: object) -> bool:
            raise LookupError

        def __hash__(self) -> int:
            return 1

    def capturing(value: Any) -> Watch[Any]:
        return headway.watch(ACCOUNT, lambda account, _: value and [TEAM.id(account.name)])

    for first, second in (([1], [1]), ({1: 2}, {1: 2}), (Refuses(), Refuses())):
        watch = capturing(first)
        assert same_watch(watch, watch)
        assert same_watch(watch, capturing(first))
        assert not same_watch(watch, capturing(second))


def test_captured_variables_that_differ_are_named() -> None:
    def capturing(prefix: str, found: list[str], condition: bool) -> Watch[Any]:
        def deep(account: Any, cache: Any) -> list[Any]:
            return [prefix, found] if account else deep(account, cache)

        mapper = mappers.union(mappers.owner(), deep)
        return headway.watch(ACCOUNT, mapper, when=predicates.all_of(lambda old, new: condition or old is new))

    one = capturing("a", [], True)
    assert changed_captures(one, one) == []
    assert changed_captures(one, capturing("a", [], True)) == ["found"]
    assert changed_captures(one, capturing("b", [], False)) == ["found", "prefix", "condition"]
    assert changed_captures(one, headway.watch(ACCOUNT, mappers.owner())) == []


def test_projections_of_one_type_are_different_types() -> None:
    small, other = (headway.projection(ACCOUNT, Thing, lambda account: account.data) for _ in range(2))
    assert same_watch(headway.watch(small, mappers.owner()), headway.watch(small, mappers.owner()))
    assert not same_watch(headway.watch(small, mappers.owner()), headway.watch(other, mappers.owner()))
