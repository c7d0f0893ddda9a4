"""The checking mode: a function that mutates its argument is found and named (C9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events, indexes, testing
from headway.cache import Index
from headway.resource import Resource
from tests.helpers.resources import ACCOUNT, TEAM, Account, Team

Change = Callable[[Resource[Team]], object]

CHANGES: dict[str, Change] = {
    "data": lambda team: team.data.members.append("me"),
    "metadata": lambda team: team.metadata.update(mine="yes"),
    "status": lambda team: team.status["ready"].conditions.clear(),
    "in a status": lambda team: setattr(team.status["ready"], "observed_generation", "mine"),
    "held": lambda team: team._message.metadata.update(mine="yes"),
}


def well_behaved(team: Resource[Team]) -> object:
    return (sorted(team.data.members), team.metadata.get("mine"), list(team.status), team.finalizers)


def app_with(where: str, change: Change) -> headway.App:
    """Return an app with a controller of accounts, in which one function receives each team and acts on it."""
    app = headway.App("staff")
    for type in (TEAM, ACCOUNT):
        app.registry.register(type)

    def in_index(team: Resource[Team]) -> str:
        change(team)
        return team.name

    def in_index_of_many(team: Resource[Team]) -> Iterator[str]:
        yield team.name
        change(team)

    def in_mapper(team: Resource[Team], _: headway.CacheReader) -> Iterable[headway.ResourceId]:
        if "predicate" not in where:
            change(team)
        return []

    def innocent(_: object, __: headway.CacheReader) -> Iterable[headway.ResourceId]:
        return [TEAM.id("core")]

    def yields(team: Resource[Team], _: headway.CacheReader) -> Iterator[headway.ResourceId]:
        yield ACCOUNT.id("ada")
        change(team)

    def condition(team: Resource[Team]) -> bool:
        change(team)
        return True

    def in_projection(team: Resource[Team]) -> Account:
        change(team)
        return Account(login=team.name)

    def in_change_mapper(
        _: Resource[Team] | None, new: Resource[Team] | None, cache: headway.CacheReader
    ) -> Iterable[headway.ResourceId]:
        return [] if new is None else in_mapper(new, cache)

    def in_predicate(old: Resource[Team] | None, new: Resource[Team] | None) -> bool:
        if new is not None:
            change(new)
        return old is None

    watched: Any = TEAM
    mappers: dict[str, Any] = {
        "change mapper": headway.mappers.change(in_change_mapper),
        "mapper that yields": yields,
        "one of a union": headway.mappers.union(headway.mappers.owner(), headway.mappers.only_if(bool, in_mapper)),
        "one of a union of both": headway.mappers.union(
            headway.mappers.owner(), headway.mappers.change(in_change_mapper)
        ),
        "change mapper under a condition": headway.mappers.only_if(bool, headway.mappers.change(in_change_mapper)),
        "condition": headway.mappers.only_if(condition, headway.mappers.owner()),
        "first": headway.mappers.through(TEAM, in_mapper, headway.mappers.owner()),
        "second": headway.mappers.through(TEAM, innocent, in_mapper),
    }
    mapper: Any = mappers.get(where, in_mapper if where == "mapper" else lambda *_: [])
    when: Any = None
    declared: list[Index[Any, Any]] = []
    if where == "index":
        declared = [indexes.by(TEAM, "one", in_index)]
    elif where == "index of many":
        declared = [indexes.by_many(TEAM, "many", in_index_of_many)]
    elif where == "projection":
        watched = headway.projection(TEAM, Account, in_projection)
    elif where == "predicate":
        when = headway.predicates.all_of(
            headway.predicates.any_of(in_predicate, in_predicate), headway.predicates.content_changed()
        )

    @app.controller(manages=ACCOUNT, watches=[headway.watch(watched, mapper, when=when)], indexes=declared)
    async def accounts(_: headway.Runtime, __: headway.Request) -> None:
        """Nothing to do."""

    return app


IN_MAPPER = "mapper app_with.<locals>.in_mapper"
IN_CHANGE_MAPPER = "mapper mappers.change(app_with.<locals>.in_change_mapper)"
NAMED = {
    "index": "the function of <Index one on staff.v1.Team>",
    "index of many": "the function of <Index many on staff.v1.Team>",
    "mapper": IN_MAPPER,
    "mapper that yields": "mapper app_with.<locals>.yields",
    "change mapper": IN_CHANGE_MAPPER,
    "one of a union": IN_MAPPER,
    "one of a union of both": IN_CHANGE_MAPPER,
    "change mapper under a condition": IN_CHANGE_MAPPER,
    "condition": "condition app_with.<locals>.condition",
    "first": IN_MAPPER,
    "second": IN_MAPPER,
    "predicate": "predicate app_with.<locals>.in_predicate",
    "projection": "the function of <Projection staff.v1.Team as Account>",
}


async def run(app: headway.App, heard: list[object], *, check_isolation: bool) -> None:
    async with testing.open_engine("memory:", app, report=heard.append, check_isolation=check_isolation) as engine:
        team = TEAM.new("core", Team(members=["ada"]), metadata={"colour": "red"})
        await engine.client.write_status(await engine.client.write(team), "ready", [headway.Condition("Ready")])
        with trio.move_on_after(5):
            await engine.wait_idle()


@pytest.mark.parametrize(
    ("where", "change"),
    [
        pytest.param(where, change, marks=[pytest.mark.wide] * (where != "mapper" and change != "data"))
        for change in CHANGES
        for where in NAMED
    ],
)
async def test_function_that_mutates_its_argument_is_named(where: str, change: str, autojump_clock: MockClock) -> None:
    """The report of the failure names the function, and so does the engine's error at the end."""
    heard: list[object] = []
    with pytest.raises(headway.errors.IsolationBroken) as caught:
        await run(app_with(where, CHANGES[change]), heard, check_isolation=True)
    what = "cached data" if change == "held" else "its argument"
    assert str(caught.value).startswith(f"{NAMED[where]} has changed {what}: ")
    assert "'core' at version" in str(caught.value)
    failures = (events.IndexFailed, events.MappingFailed, events.ProjectionFailed)
    assert any(isinstance(each, failures) and each.error is caught.value for each in heard)
    assert autojump_clock.current_time() < 60


@pytest.mark.parametrize("where", NAMED)
async def test_function_that_only_reads_passes(where: str, autojump_clock: MockClock) -> None:
    heard: list[object] = []
    await run(app_with(where, well_behaved), heard, check_isolation=True)
    failures = (events.IndexFailed, events.MappingFailed, events.ProjectionFailed)
    assert not [each for each in heard if isinstance(each, failures)]
    assert autojump_clock.current_time() < 60


async def test_mutations_are_not_checked_by_default(autojump_clock: MockClock) -> None:
    """The function changes its own copy, so no other reader is affected."""
    heard: list[object] = []
    await run(app_with("mapper", CHANGES["data"]), heard, check_isolation=False)
    assert not [each for each in heard if isinstance(each, events.MappingFailed)]
    assert autojump_clock.current_time() < 60
