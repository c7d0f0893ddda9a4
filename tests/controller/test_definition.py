"""Declarations of an app and its controllers. Every misuse is refused at once, with the valid form."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

import headway
from headway.errors import DeclarationError, InvalidArgument
from headway.mapper import ReadyMapper
from tests.helpers.plain_types import Thing

app = headway.App("misused")
THING = app.type("test", "v1", "Thing", Thing)
OTHER = app.type("test", "v1", "Other", Thing)
STRANGER = headway.App("stranger").type("test", "v1", "Stranger", Thing)


async def reconcile(rt: headway.Runtime, request: headway.Request) -> None:
    """Take the right arguments."""


async def no_arguments() -> None:
    """Take too few arguments."""


def plain(rt: headway.Runtime, request: headway.Request) -> None:
    """Run without async."""


async def async_mapper(resource: headway.Resource[Any], cache: headway.CacheReader) -> list[headway.ResourceId]:
    """Map asynchronously, which a mapper must not do."""
    return [resource.id for _ in (cache,)]


def lonely_mapper(resource: headway.Resource[Any]) -> list[headway.ResourceId]:
    """Take no cache argument."""
    return [resource.id]


INDEX = headway.indexes.by(THING, "name", lambda thing: thing.name)
SAME_NAME = headway.indexes.by_many(THING, "name", lambda thing: [thing.name])
ELSEWHERE = headway.indexes.by(OTHER, "name", lambda thing: thing.name)
BY_ID, ANOTHER_BY_ID = (headway.indexes.by(THING, "id", lambda thing: thing.id) for _ in range(2))
STRANGE = headway.indexes.by(STRANGER, "x", lambda stranger: stranger.id)
PART = headway.projection(THING, Thing, lambda thing: thing.data)


@headway.query(THING, INDEX)
def named(cache: headway.CacheReader, name: str) -> list[headway.Resource[Thing]]:
    return cache.index(INDEX, name)


@headway.query(OTHER)
def others(cache: headway.CacheReader) -> list[headway.Resource[Thing]]:
    return cache.list(OTHER)


def by_id() -> ReadyMapper[Any]:
    return headway.mappers.index(BY_ID)


MISUSES: list[tuple[str, Mapping[str, Any]]] = [
    ("manages: 'Thing' is not a type", {"manages": "Thing"}),
    ("manages: test.v1.Stranger is not a type of app 'misused'", {"manages": STRANGER}),
    ("watches: test.v1.Stranger", {"watches": [headway.watch(STRANGER, headway.mappers.owner())]}),
    (
        "watches[0] must be a Watch, as in [headway.watch(ACCOUNT, headway.mappers.owner())], not <ResourceType",
        {"watches": [OTHER]},
    ),
    ("watches must be a list, such as [headway.watch(ACCOUNT, ", {"watches": {OTHER: headway.mappers.owner()}}),
    ("indexes must be a list, such as [BY_TEAM], with BY_TEAM = headway.indexes.by(", {"indexes": {THING: [INDEX]}}),
    ("lambda account: ...), not <Index", {"indexes": INDEX}),
    ("indexes[0] must be an index from headway.indexes.by(...), as in [BY_TEAM], with", {"indexes": ["name"]}),
    ("indexes has <Index name on test.v1.Thing> twice, or two indexes of the same name", {"indexes": [INDEX, INDEX]}),
    (
        "indexes has <Index name on test.v1.Thing> twice, or two indexes of the same name",
        {"indexes": [INDEX, SAME_NAME]},
    ),
    ("is neither managed nor watched", {"indexes": [ELSEWHERE]}),
    ("is neither managed nor watched", {"manages": PART, "indexes": [INDEX]}),
    ("whose name is reserved for the engine", {"indexes": [headway.indexes.by_owner(THING, name="headway.owner")]}),
    (
        "queries must be a list, such as [members_of], with @headway.query(...) above members_of, not <Query named>",
        {"queries": named},
    ),
    (
        "queries[0] must be a Query, as in [members_of], with @headway.query(...) above members_of, not 'named'",
        {"queries": ["named"]},
    ),
    ("queries has <Query named> twice", {"queries": [named, named], "indexes": [INDEX]}),
    ("<Query named> needs <Index name on test.v1.Thing>: add it to `indexes`", {"queries": [named]}),
    ("<Query others> needs <ResourceType test.v1.Other>, which is neither managed nor", {"queries": [others]}),
    ("test.v1.Thing is used in two forms", {"watches": [headway.watch(PART, headway.mappers.owner())]}),
    ("watches must be a list, such as [headway.watch(ACCOUNT, ", {"watches": "Other"}),
    (
        "combine the mappers with mappers.union",
        {"watches": [headway.watch(OTHER, headway.mappers.owner())] * 2},
    ),
    ("when must be a predicate, such as headway.predicates.content_changed(), not True", {"when": True}),
    ("when must be the result of predicates.content_changed()", {"when": headway.predicates.content_changed}),
    ("reads <Index id on test.v1.Thing>: add it to `indexes`", {"watches": [headway.watch(OTHER, by_id())]}),
    ("use the same object in both places", {"watches": [headway.watch(OTHER, by_id())], "indexes": [ANOTHER_BY_ID]}),
    ("to map to <Projection test.v1.Thing as Thing>", {"manages": PART, "watches": [headway.watch(OTHER, by_id())]}),
    ("reads <Index id on test.v1.Thing>", {"watches": [headway.watch(OTHER, headway.mappers.only_if(bool, by_id()))]}),
    (
        "reads <Index name on test.v1.Thing>: add it",
        {"watches": [headway.watch(OTHER, headway.mappers.index_parents(INDEX, lambda _: "x"))]},
    ),
    (
        "reads <Index id on test.v1.Thing>",
        {"watches": [headway.watch(OTHER, headway.mappers.union(headway.mappers.owner(), by_id()))]},
    ),
    (
        "reads <Index id on test.v1.Thing>",
        {"watches": [headway.watch(OTHER, headway.mappers.through(OTHER, headway.mappers.owner(), by_id()))]},
    ),
    (
        "goes through <ResourceType test.v1.Stranger>, which the controller neither manages nor watches",
        {
            "watches": [
                headway.watch(
                    OTHER, headway.mappers.through(STRANGER, headway.mappers.index(STRANGE), headway.mappers.owner())
                )
            ]
        },
    ),
    ("reads must be a list, such as [ACCOUNT], not 'Other'", {"reads": "Other"}),
    ("writes must be a list, such as [ACCOUNT], not {", {"writes": {OTHER: None}}),
    ("writes[0] must be a resource type from app.type(...), as in [ACCOUNT], not 'Other'", {"writes": ["Other"]}),
    ("writes[0] must be a resource type from app.type(...), as in [ACCOUNT], not <Projection", {"writes": [PART]}),
    ("reads: test.v1.Stranger is not a type of app", {"reads": [STRANGER]}),
    ("on_start must be a function, not 3", {"on_start": 3}),
    ("on_start must take a runtime", {"on_start": reconcile}),
    ("on_stop must take a runtime and an error", {"on_stop": no_arguments}),
    ("deadline must be a number of seconds above 0, not True", {"deadline": True}),
    ("sources must be a mapping", {"sources": [reconcile]}),
    ("source 'clock' must take a runtime and a function to enqueue ids", {"sources": {"clock": no_arguments}}),
    ("source 'clock' <function plain", {"sources": {"clock": plain}}),
    ("the initialiser must take a runtime", {"initialiser": reconcile}),
    ("the initialiser must be an async function, not 3", {"initialiser": 3}),
    ("concurrency must be a whole number >= 1, not 0", {"concurrency": 0}),
    ("concurrency must be a whole number >= 1, not True", {"concurrency": True}),
    ("concurrency must be a whole number >= 1, not 2.0", {"concurrency": 2.0}),
    ("deadline must be a number of seconds above 0, not 0", {"deadline": 0}),
    ("deadline must be a number of seconds above 0, not nan", {"deadline": math.nan}),
    ("deadline must be a number of seconds above 0, not '5'", {"deadline": "5"}),
    ("backoff must be a Backoff, such as headway.Backoff(0.5, 60.0), not 5", {"backoff": 5}),
    ("a controller's name", {"name": "Not A Name"}),
    ("unknown option 'concurency'; did you mean 'concurrency'?", {"concurency": 5}),
    ("unknown option 'watch'; did you mean 'watches'?", {"watch": {}}),
    ("manages: None is not a type", {"manages": None}),
]


@pytest.mark.parametrize(("says", "arguments"), MISUSES, ids=[f"{index}" for index in range(len(MISUSES))])
def test_misuse_is_refused_with_the_argument_and_the_right_form(says: str, arguments: Mapping[str, Any]) -> None:
    """The error also has the value and the controller's name. The declaration is not kept."""
    with pytest.raises(DeclarationError) as caught:
        app.controller(**{"manages": THING, **arguments})(reconcile)

    assert says in str(caught.value)
    assert "@app.controller(manages=TEAM" in str(caught.value)
    assert str(caught.value).startswith("controller ")
    assert not app.controllers


WRONG_WATCHES: list[tuple[str, object, object]] = [
    ("watches[test.v1.Other] must be a mapper, such as headway.mappers.owner(), not None", OTHER, None),
    ("watches[test.v1.Other] must be a plain function", OTHER, async_mapper),
    ("watches[test.v1.Other] must take a resource and a cache", OTHER, lonely_mapper),
    ("watches[test.v1.Other] must be the result of mappers.owner()", OTHER, headway.mappers.owner),
    ("watches[test.v1.Other] must be a mapper", OTHER, headway.watch(OTHER, headway.mappers.owner())),
    ("watch(): type must be a type from app.type(...), not 'Other'. The form is: ", "Other", headway.mappers.owner()),
]


@pytest.mark.parametrize(("says", "type", "mapper"), WRONG_WATCHES, ids=[str(n) for n in range(len(WRONG_WATCHES))])
def test_watch_rejects_wrong_arguments(says: str, type: Any, mapper: Any) -> None:
    with pytest.raises(DeclarationError, match=re.escape(says)):
        headway.watch(type, mapper)


@pytest.mark.parametrize("function", [plain, no_arguments, "reconcile", None])
def test_reconciler_must_be_an_async_function_of_two_arguments(function: Any) -> None:
    """The decorator has the same check."""
    with pytest.raises(DeclarationError, match="the reconciler"):
        app.controller(manages=THING, name="thing")(function)


def test_reconciler_without_a_name_needs_one() -> None:
    """A `functools.partial` has no name."""
    with pytest.raises(DeclarationError, match=r"functools.partial.*has no name for the controller.*name='...'"):
        app.controller(manages=THING)(functools.partial(reconcile))
    nothing: Any = None
    with pytest.raises(DeclarationError, match="the reconciler must be an async function, not None"):
        app.controller(manages=THING)(nothing)


def test_controller_names_are_unique_within_an_app() -> None:
    """This holds for explicit names and for names that are taken from the function."""
    own = headway.App("own")
    thing = own.type("test", "v1", "Thing", Thing)
    own.controller(manages=thing)(reconcile)

    with pytest.raises(DeclarationError, match="the name 'reconcile' already exists"):
        own.controller(manages=thing, name="reconcile")(reconcile)


def test_controller_name_from_a_function_has_hyphens() -> None:
    """Names don't allow underscores."""
    own = headway.App("own")

    @own.controller(manages=own.type("test", "v1", "Thing", Thing))
    async def keep_things(rt: headway.Runtime, request: headway.Request) -> None:
        """Do nothing."""

    assert list(own.controllers) == ["keep-things"]


def test_object_with_an_async_call_may_reconcile() -> None:
    """The object needs an explicit name."""
    own = headway.App("own")

    class Reconciler:
        async def __call__(self, rt: headway.Runtime, request: headway.Request) -> None:
            """Do nothing."""

    own.controller(manages=own.type("test", "v1", "Thing", Thing), name="object")(Reconciler())

    assert list(own.controllers) == ["object"]


@pytest.mark.parametrize("name", ["", "With Blank", "UPPER"])
def test_app_needs_a_valid_name(name: Any) -> None:
    """The app's name is part of its fences' names."""
    with pytest.raises(DeclarationError, match="an app's name"):
        headway.App(name)
    with pytest.raises(DeclarationError, match=r"App\(\): name must be a string, not 3"):
        headway.App(3)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan, "5", None])
def test_requeue_refuses_an_invalid_delay(seconds: Any) -> None:
    """The error comes where the requeue is made, not when the queue gets it."""
    with pytest.raises(InvalidArgument, match="seconds must be a finite number >= 0, not True"):
        headway.requeue_after(True)
    with pytest.raises(InvalidArgument, match="seconds must be a finite number >= 0"):
        headway.requeue_after(seconds)
    with pytest.raises(InvalidArgument, match="seconds must be a finite number >= 0"):
        headway.RequeueAfter(seconds)


@pytest.mark.parametrize(("base", "maximum"), [(2.0, 1.0), (-1.0, 1.0), (0.0, 1.0), (1.0, math.inf)])
def test_invalid_back_off_is_refused(base: float, maximum: float) -> None:
    """The base is above the maximum, or is not a positive time."""
    with pytest.raises(ValueError, match=r"Backoff\(\): "):
        headway.Backoff(base, maximum)


def test_declared_arguments_are_copied() -> None:
    """A later mutation by the caller doesn't change a controller, and a controller's own collections are immutable."""
    own = headway.App("own")
    thing, other = (own.type("test", "v1", kind, Thing) for kind in ("Thing", "Other"))
    watches = [headway.watch(other, headway.mappers.owner())]
    index = headway.indexes.by(thing, "name", lambda each: each.name)

    @headway.query(thing)
    def things(cache: headway.CacheReader) -> list[headway.Resource[Thing]]:
        return cache.list(thing)

    indexes, queries = [index], [things]
    sources: dict[str, Any] = {"clock": headway.sources.every(1)}
    reads, writes = [other], [other]
    given: dict[str, Any] = {
        "watches": watches,
        "indexes": indexes,
        "queries": queries,
        "sources": sources,
        "reads": reads,
        "writes": writes,
    }
    own.controller(manages=thing, **given)(reconcile)
    for each in given.values():
        each.clear()

    made = own.controllers["reconcile"]
    assert list(made.watches) == [other]
    assert made.indexes == (index,)
    assert made.queries == (things,)
    assert list(made.sources) == ["clock"]
    assert made.reads == made.writes == frozenset({other})
    for held in (made.watches, made.sources):
        with pytest.raises(TypeError):
            held[thing] = ()  # type: ignore[index]  # what is tested
