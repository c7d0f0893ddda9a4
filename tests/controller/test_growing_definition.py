"""The watches that may be added to a controller at run time, and the errors for others."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from headway import field, mappers
from headway.controller import MOST_ADDED, GrowingDefinition
from headway.errors import DeclarationError, NotDeclared


@headway.message(name="growing.Thing")
class Thing:
    refers: str = field(1)


app = headway.App("growing")
TEAM = app.type("growing", "v1", "Team", Thing)
ACCOUNT = app.type("growing", "v1", "Account", Thing)
LAPTOP = app.type("growing", "v1", "Laptop", Thing)
OTHER_APP = headway.App("other")
OTHER = OTHER_APP.type("growing", "v1", "Other", Thing)
NAMES = headway.projection(ACCOUNT, Thing, lambda account: account.data)
BY_NAME = headway.indexes.by(TEAM, "name", lambda team: team.name)


def of_account(account: Any, _: Any) -> list[Any]:
    return [TEAM.id(account.data.refers)]


def growing(**options: Any) -> GrowingDefinition:
    """Return a controller of teams that watches accounts."""
    declared = headway.App("declared")
    for type in (TEAM, ACCOUNT, LAPTOP):
        declared.registry.register(type)

    @declared.controller(manages=TEAM, watches=[headway.watch(ACCOUNT, of_account)], name="teams", **options)
    async def teams(rt: headway.Runtime, request: headway.Request) -> None: ...

    return GrowingDefinition(declared.controllers["teams"], declared.registry)


def test_added_watch_is_in_the_current_definition_once() -> None:
    definition = growing()
    watch = headway.watch(LAPTOP, mappers.owner(), when=lambda old, new: old is not new)
    assert not definition.added
    assert definition.lacking([watch, watch]) == [watch]
    definition.add([watch])
    assert definition.lacking([watch, headway.watch(ACCOUNT, of_account)]) == []
    assert list(definition.added) == [watch]
    assert definition.current.types == [TEAM, ACCOUNT, LAPTOP]
    assert [index.name for index in definition.current.indexes_of(LAPTOP)] == ["headway.owner"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "rt.watch expects a watch, but got none: await rt.watch(headway.watch("),
        ([ACCOUNT], "rt.watch expects headway.watch(TYPE, mapper), not <ResourceType growing.v1.Account>"),
        ([headway.watch(OTHER, mappers.owner())], "growing.v1.Other is not a type of this program's apps: declare"),
        (
            [headway.watch(ACCOUNT, mappers.owner())],
            "controller 'teams': it already watches growing.v1.Account by of_account, and the watch given now is "
            "another one, growing.v1.Account by mappers.owner()",
        ),
        ([headway.watch(LAPTOP, mappers.owner()), headway.watch(LAPTOP, mappers.same_name())], "already watches"),
        ([headway.watch(NAMES, mappers.owner())], "growing.v1.Account is used in two forms"),
        ([headway.watch(LAPTOP, mappers.index(BY_NAME, value=lambda laptop: laptop.name))], "add it to `indexes`"),
    ],
)
def test_watch_that_cannot_be_added_is_refused(given: list[Any], text: str) -> None:
    definition = growing()
    with pytest.raises(DeclarationError) as raised:
        definition.lacking(given)
    assert text in str(raised.value)
    assert definition.added == ()


@pytest.mark.parametrize(
    ("options", "allowed"),
    [({}, True), ({"reads": [LAPTOP]}, True), ({"reads": [], "writes": [LAPTOP]}, True), ({"reads": []}, False)],
)
def test_type_must_be_among_the_declared_reads(options: dict[str, Any], allowed: bool) -> None:
    definition = growing(**options)
    watch = headway.watch(LAPTOP, mappers.owner())
    if allowed:
        assert definition.lacking([watch]) == [watch]
        return
    with pytest.raises(NotDeclared) as raised:
        definition.lacking([watch])
    assert "doesn't declare that it reads growing.v1.Laptop: add the type, @app.controller(..., reads=[" in str(
        raised.value
    )


def test_number_of_added_watches_is_bounded() -> None:
    """Declared watches do not count."""
    many = headway.App("many")
    types = [many.type("growing", "v1", f"Many{number}", Thing) for number in range(MOST_ADDED + 1)]
    many.registry.register(TEAM)

    @many.controller(manages=TEAM)
    async def teams(rt: headway.Runtime, request: headway.Request) -> None: ...

    definition = GrowingDefinition(many.controllers["teams"], many.registry)

    def watches(*types: headway.ResourceType[Any]) -> list[headway.Watch[Any]]:
        return [headway.watch(each, mappers.owner()) for each in types]

    definition.add(definition.lacking(watches(*types[:-2])))
    with pytest.raises(DeclarationError, match="would have added 101 watches, and may add 100: declare them"):
        definition.lacking(watches(*types[-2:]))
    definition.add(definition.lacking(watches(types[-2])))
    assert len(definition.added) == MOST_ADDED
    with pytest.raises(DeclarationError, match="may add 100"):
        definition.lacking(watches(types[-1]))
    assert definition.lacking(watches(*types[:-1])) == []
