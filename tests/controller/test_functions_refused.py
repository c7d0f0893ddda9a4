"""Every place that takes a user's function. Each refuses, at the declaration, a function that can't work."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import pytest
import trio

import headway
import headway.access
import headway.observe
from headway.errors import DeclarationError
from headway.testing import simulation
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff

STAFF = Staff()
TEAM, ACCOUNT = STAFF.team, STAFF.account
BY_NAME = headway.indexes.by(TEAM, "name", lambda team: team.name)


async def waits(*_: Any) -> Any:
    """Wait, with any arguments."""


async def waits_and_yields(*_: Any) -> AsyncIterator[int]:
    """Yield asynchronously, with any arguments."""
    yield 1


def yields(*_: Any) -> Iterator[int]:
    """Yield, with any arguments."""
    yield 1


def lonely() -> None:
    """Take no argument, although every place passes one."""


def crowded(_: object, __: object, ___: object, ____: object) -> None:
    """Take more arguments than any place passes."""


class Waits:
    """An object with an async `__call__`."""

    async def __call__(self, *_: Any) -> None:
        """Do nothing."""


class Place(NamedTuple):
    """A place that takes a function.

    Attributes:
        declare: declares something with a function there, on an app of its own.
        may_yield: what the function gives is iterated, so that it may be a generator function.
    """

    name: str
    declare: Callable[[Any], object]
    may_yield: bool = False


def _controller(**options: Any) -> None:
    staff = Staff()

    @staff.app.controller(manages=staff.team, **options)
    async def teams(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""


def _watching(mapper: Any) -> None:
    staff = Staff()

    @staff.app.controller(manages=staff.team, watches=[headway.watch(staff.account, mapper)])
    async def teams(_: headway.Runtime, __: headway.Request) -> None:
        """Do nothing."""


CHANNEL: Any = trio.open_memory_channel[str](1)[1]
PLAIN = [
    Place("Hooks.mutate", lambda given: headway.Hooks(mutate=given)),
    Place("Hooks.validate", lambda given: headway.Hooks(validate=given)),
    Place("index", lambda given: headway.indexes.by(TEAM, "x", given)),
    Place("index_many", lambda given: headway.indexes.by_many(TEAM, "x", given), may_yield=True),
    Place("index_reference", lambda given: headway.indexes.by_reference(TEAM, "x", given)),
    Place("index_references", lambda given: headway.indexes.by_references(TEAM, "x", given), may_yield=True),
    Place("projection", lambda given: headway.projection(TEAM, Account, given)),
    Place("watches", _watching, may_yield=True),
    Place("watch", lambda given: headway.watch(ACCOUNT, given), may_yield=True),
    Place("watch when", lambda given: headway.watch(ACCOUNT, headway.mappers.owner(), when=given)),
    Place("when", lambda given: _controller(when=given)),
    Place("priority", lambda given: _controller(priority=given)),
    Place("all_of", headway.predicates.all_of),
    Place("any_of", headway.predicates.any_of),
    Place("none_of", headway.predicates.none_of),
    Place("map_reference", headway.mappers.reference),
    Place("map_references", headway.mappers.references, may_yield=True),
    Place("map_change", headway.mappers.change, may_yield=True),
    Place("mappers.index value", lambda given: headway.mappers.index(BY_NAME, value=given)),
    Place("map_index_prefix", lambda given: headway.mappers.index_prefix(BY_NAME, given)),
    Place("map_index_parents", lambda given: headway.mappers.index_parents(BY_NAME, given)),
    Place("map_union", headway.mappers.union, may_yield=True),
    Place(
        "map_through", lambda given: headway.mappers.through(ACCOUNT, given, headway.mappers.owner()), may_yield=True
    ),
    Place("only_if condition", lambda given: headway.mappers.only_if(given, headway.mappers.owner())),
    Place("only_if mapper", lambda given: headway.mappers.only_if(lambda _: True, given), may_yield=True),
    Place("from_channel key", lambda given: headway.sources.from_channel(CHANNEL, given), may_yield=True),
    Place("from_iterator key", lambda given: headway.sources.from_iterator(waits_and_yields, given), may_yield=True),
    Place("every keys", lambda given: headway.sources.every(1, given), may_yield=True),
    Place("reports", headway.observe.reports),
]
ASYNC = [
    Place("reconciler", lambda given: STAFF.app.controller(manages=TEAM, name="teams")(given)),
    Place("daemon", lambda given: STAFF.app.daemon(TEAM, name="beats")(given)),
    Place("timer", lambda given: STAFF.app.timer(TEAM, every=1, name="ticks")(given)),
    Place("initialiser", lambda given: _controller(initialiser=given)),
    Place("sources", lambda given: _controller(sources={"clock": given})),
]
EITHER = [
    Place("on_start", lambda given: _controller(on_start=given)),
    Place("on_stop", lambda given: _controller(on_stop=given)),
]
WRONG: list[tuple[Place, Any]] = [
    *((place, given) for place in PLAIN for given in (waits, waits_and_yields, Waits(), functools.partial(waits))),
    *((place, yields) for place in PLAIN if not place.may_yield),
    *((place, given) for place in ASYNC for given in (lambda *_: None, yields, waits_and_yields)),
    *((place, given) for place in EITHER for given in (yields, waits_and_yields)),
    *((place, given) for place in (*PLAIN, *ASYNC, *EITHER) for given in (lonely, crowded, "core")),
]


def test_function_that_cannot_work_is_refused_where_it_is_declared() -> None:
    """The function is async but not awaited, or plain but awaited, or it yields, or it takes other arguments."""
    accepted = []
    for place, given in WRONG:
        try:
            place.declare(given)
        except DeclarationError as error:
            text = str(error)
            assert any(word in text for word in ("async", "yield", "must take", "must be a", "takes a")), text
        else:
            accepted.append((place.name, given))
    assert accepted == []


async def swapped(request: headway.Request[Team], rt: headway.Runtime) -> None:
    """Take the arguments of a reconciler in the wrong order."""


async def of_resource(team: headway.Resource[Team], rt: headway.Runtime) -> None:
    """Take the arguments of a daemon in the wrong order."""


def mapped(cache: headway.CacheReader | None, team: headway.Resource[Team]) -> list[headway.ResourceId]:
    """Take the arguments of a mapper in the wrong order."""
    return [team.id] if cache is None else []


ORDERS: list[tuple[str, Any, str]] = [
    ("reconciler", swapped, "a runtime and a request, in this order, but its first parameter is `request: Request`"),
    ("daemon", of_resource, "a runtime and a resource, in this order, but its first parameter is `team: Resource`"),
    ("timer", swapped, "a runtime and a resource, in this order, but its first parameter is `request: Request`"),
    ("map_union", mapped, "a resource and a cache, in this order, but its first parameter is `cache: CacheReader`"),
]


@pytest.mark.parametrize(("name", "given", "problem"), ORDERS)
def test_annotations_in_the_wrong_order_are_refused(name: str, given: Any, problem: str) -> None:
    place = next(each for each in (*PLAIN, *ASYNC) if each.name == name)
    with pytest.raises(DeclarationError, match=f"must take {problem}"):
        place.declare(given)


def world_alone(_: simulation.World) -> Any:
    """Take what only a scenario gets."""


def world_first(_: simulation.World, __: Any) -> Any:
    """Take what only a scenario gets in the first place."""


def world_before(_: simulation.World, __: Any, ___: Any) -> Any:
    """Take what only a scenario gets in the first of three places."""


async def waits_for_the_world(_: simulation.World) -> Any:
    """Wait, with what only a scenario gets."""


async def waits_for_the_world_first(_: simulation.World, __: Any) -> Any:
    """Wait, with what only a scenario gets in the first place."""


OF_THE_WORLD = (world_alone, world_first, world_before, waits_for_the_world, waits_for_the_world_first)
LOOSE = {"from_channel key", "from_iterator key", "every keys", "reports"}
"""The places whose argument may be anything, or has many classes."""


@pytest.mark.parametrize("place", [*PLAIN, *ASYNC, *EITHER], ids=lambda place: place.name)
def test_annotation_of_what_another_place_gets_is_refused_everywhere(place: Place) -> None:
    texts = []
    for given in OF_THE_WORLD:
        try:
            place.declare(given)
        except DeclarationError as error:
            texts.append(str(error))
    problem = "in this order, but its first parameter is `_: World`"
    assert any(problem in text for text in texts) is (place.name not in LOOSE)


UNCALLED: list[tuple[str, Callable[[], object]]] = [
    ("mappers.owner()", lambda: _watching(headway.mappers.owner)),
    ("mappers.reference(...)", lambda: _watching(headway.mappers.reference)),
    ("mappers.union(...)", lambda: _watching(headway.mappers.union)),
    ("mappers.owned()", lambda: headway.mappers.union(wrongly(headway.mappers.owned))),
    ("predicates.data_changed()", lambda: _controller(when=headway.predicates.data_changed)),
    ("predicates.metadata_changed(...)", lambda: _controller(when=headway.predicates.metadata_changed)),
    ("predicates.data_changed()", lambda: headway.predicates.all_of(wrongly(headway.predicates.data_changed))),
    ("indexes.by(...)", lambda: headway.mappers.reference(wrongly(headway.indexes.by))),
    ("sources.every(...)", lambda: _controller(sources={"clock": headway.sources.every})),
]


def wrongly(given: Any) -> Any:
    """Return the function without its signature, so that the type checker accepts it in the wrong place."""
    return given


@pytest.mark.parametrize(("call", "declare"), UNCALLED)
def test_ready_made_function_without_parentheses_is_refused(call: str, declare: Callable[[], object]) -> None:
    """The usual error about a signature that doesn't fit would not say that the parentheses are missing."""
    name = call.partition("(")[0]
    with pytest.raises(DeclarationError) as caught:
        declare()
    assert f"must be the result of {call}, not the function {name}: add the parentheses" in str(caught.value)


def test_query_must_be_plain_and_take_a_cache_first() -> None:
    """The callers pass the other arguments, so a query may take more of them."""
    needs: Any = headway.query(TEAM)
    for wrong in (waits, waits_and_yields, lonely, "core"):
        with pytest.raises(DeclarationError, match="the function of a query must"):
            needs(wrong)
    assert needs(crowded).name == "crowded"


@pytest.mark.parametrize("report", [waits, waits_and_yields, lonely, "log"])
async def test_async_report_is_refused(report: Any) -> None:
    """An async report is never awaited, so no event would be reported."""
    with pytest.raises(DeclarationError, match="report must"):
        async with headway.open_engine("memory:", STAFF.app, report=report):
            pass
    with pytest.raises(DeclarationError, match="report must"):
        async with headway.open_workers("127.0.0.1:9", STAFF.app, report=report):
            pass


async def test_functions_of_pages_and_metrics_are_checked() -> None:
    """A status that is called instead of passed is refused, and so are async functions."""
    metrics = headway.observe.Metrics()
    wrong: list[Any] = [[], waits, crowded]
    for given in wrong:
        with pytest.raises(DeclarationError, match=r"Metrics\.watch must"):
            metrics.watch(given)
        with pytest.raises(DeclarationError, match="the pages' status must"):
            headway.observe.Pages(given)
        with pytest.raises(DeclarationError, match="the pages' store must"):
            headway.observe.Pages(list, None, given)


def wrong_program(process: simulation.Process) -> None:
    """Forget to return the app."""


EXPLORATIONS: list[tuple[str, dict[str, Any]]] = [
    ("the function that makes the app, wrong_program .* it returned None", {"app": wrong_program}),
    ("the app must be a headway.App, or a function that makes one", {"app": "staff"}),
    ("the app must be .* must take a process, but takes", {"app": lambda: STAFF.app}),
    ("the scenario .*must be an async function", {"scenario": lambda _: None}),
    ("the scenario must take the world, but takes", {"scenario": lambda: None}),
    ("outside must be a function, not .*, such as outside=Cloud, not Cloud", {"outside": object()}),
    ("processes must be a whole number >= 1, such as processes=1, not 0", {"processes": 0}),
    ("processes must be a whole number >= 1, such as processes=1, not '2'", {"processes": "2"}),
    ("holds must be a list, such as holds=.check., not <function", {"holds": wrong_program}),
    ("holds must take the world, but takes", {"holds": [lambda: None]}),
    ("always must be a list, such as always=.check., not <function", {"always": wrong_program}),
    ("may_differ must be a list of strings, such as may_differ=.'Account.login'., not 'Team'", {"may_differ": "Team"}),
    ("without must be a list of strings, such as without=.'restore'., not 'restore'", {"without": "restore"}),
]


@pytest.mark.parametrize(("said", "given"), EXPLORATIONS)
def test_wrong_arguments_of_an_exploration_are_refused(said: str, given: dict[str, Any]) -> None:
    """They raised TypeError or IndexError, or a text was taken for its letters."""
    arguments: dict[str, Any] = {"app": STAFF.app, "scenario": writes_one, "plan": "none"}
    with pytest.raises(DeclarationError, match=said):
        simulation.explore(**{**arguments, **given})


async def writes_one(world: simulation.World) -> None:
    await world.client.apply(TEAM.new("core"))
    await world.wait_idle()


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("unknown option 'concurency'; did you mean 'concurrency'?", {"concurency": 1}),
    ("unknown option 'dead_line'; did you mean 'deadline'?", {"dead_line": 1}),
    ("unknown option 'frobnicate'; known: ", {"frobnicate": 1}),
    ("placement= is not an option here: a daemon or timer runs in one process", {"placement": "every_process"}),
    ("sources= is not an option here: use @app.controller", {"sources": {}}),
    ("when= is not an option here", {"when": None}),
]


@pytest.mark.parametrize(("says", "options"), OPTIONS)
def test_unknown_option_of_a_daemon_or_timer_is_refused(says: str, options: dict[str, Any]) -> None:
    """The error suggests the closest valid option."""
    staff = Staff()

    async def lives(_: headway.Runtime, __: headway.Resource[Team]) -> None:
        """Do nothing."""

    for declare in (staff.app.daemon(staff.team, **options), staff.app.timer(staff.team, every=1, **options)):
        with pytest.raises(DeclarationError) as caught:
            declare(lives)
        assert says in str(caught.value)
        assert "The form is:" in str(caught.value)
    assert staff.app.controllers == {}
