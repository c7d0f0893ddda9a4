"""Checks of declarations. Each error names what was given and shows the correct form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_type_hints

from headway.base import async_problem, either_problem, ended, plain_problem, value_problem
from headway.cache import OWNER_INDEX, PRIORITY_INDEX, CachedType, Index, Projection, stored_type
from headway.controller._definition import Definition, GivenControllerOptions, Options
from headway.errors import DeclarationError
from headway.mapper import Predicate, Watch, predicate
from headway.resource import Registry, ResourceType, ScopedType, TypeName, did_you_mean, is_form_of, name_problem

if TYPE_CHECKING:
    from collections.abc import Container

FORM = """
    @app.controller(manages=TEAM, watches=[headway.watch(ACCOUNT, headway.mappers.owner())])
    async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None: ..."""


def refuse(name: str, problem: str, form: str = FORM) -> DeclarationError:
    """Return the error for a problem in a controller's declaration."""
    return DeclarationError(f"controller {name!r}: {ended(problem)} The form is:{form}")


@cache
def _allowed() -> Mapping[str, Any]:
    """Return the type of each option. Finding them takes a quarter of the time in which an engine opens."""
    return {**get_type_hints(Options), **get_type_hints(GivenControllerOptions, include_extras=True)}


def checked_options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Options` for the given options. Those left out, or given as None, have their defaults."""
    for option, value in given.items():
        problem = value_problem(option, _allowed()[option], value, _EXAMPLES.get(option, ""))
        if problem:
            raise refuse(name, problem)
    frozen: dict[str, Callable[[Any], object]] = {
        "watches": partial(_by_type, name),
        "indexes": tuple,
        "queries": tuple,
        "sources": lambda value: MappingProxyType(dict(value)),
        "reads": frozenset,
        "writes": frozenset,
    }
    return {
        option: frozen[option](value) if option in frozen else value
        for option, value in given.items()
        if value is not None
    }


def _by_type(name: str, watches: Sequence[Watch[Any]]) -> Mapping[CachedType[Any], Watch[Any]]:
    found: dict[CachedType[Any], Watch[Any]] = {}
    for each in watches:
        if each.type in found:
            raise refuse(name, f"watches has {each.type.name} twice: combine the mappers with mappers.union")
        found[each.type] = each
    return MappingProxyType(found)


_EXAMPLES = {
    "watches": "[headway.watch(ACCOUNT, headway.mappers.owner())]",
    "indexes": "[BY_TEAM], with BY_TEAM = headway.indexes.by(ACCOUNT, 'team', lambda account: ...)",
    "queries": "[members_of], with @headway.query(...) above members_of",
    "sources": "{'resync': headway.sources.every(60)}",
    "reads": "[ACCOUNT]",
    "writes": "[ACCOUNT]",
    "backoff": "headway.Backoff(0.5, 60.0)",
    "write_limit": "headway.WriteLimit(10, burst=50)",
    "min_interval": "2.0",
    "placement": "headway.sharded(shards=16)",
}


def checked_when(name: str, given: Any) -> Predicate[Any] | None:
    """Return the predicate of ``when``, or None if the option is not declared. Raises DeclarationError."""
    if given is None:
        return None
    try:
        return predicate("when", given)
    except DeclarationError as error:
        raise refuse(name, str(error)) from error


def check(definition: Definition, app: str, registry: Registry, taken: Container[str]) -> None:
    """Raise DeclarationError for the first problem of a definition."""
    for problem in _problems(definition, app, registry, taken):
        if problem:
            raise refuse(definition.name, problem)


def _problems(definition: Definition, app: str, registry: Registry, taken: Container[str]) -> Iterator[str | None]:
    """Yield a problem or None for each check. Each check relies on those before it having passed."""
    yield function_problem("the reconciler", definition.reconcile, "a runtime and a request")
    if not definition.name:
        yield f"{definition.reconcile!r} has no name for the controller: set it with name='...'"
    yield name_problem("a controller's name", definition.name)
    yield f"the name {definition.name!r} already exists" if definition.name in taken else None
    yield from _types_problems(definition, app, registry)
    if definition.priority is not None and (problem := plain_problem(definition.priority, 1, "a resource")):
        yield f"priority {problem}"
    yield _indexes_problem(definition)
    yield _queries_problem(definition)
    yield needs_problem(definition)
    for name, source in definition.sources.items():
        yield function_problem(f"source {name!r}", source, "a runtime and a function to enqueue ids")
    yield _optional("the initialiser", definition.initialiser, "a runtime")
    yield _optional("on_start", definition.on_start, "a runtime", plain=True)
    yield _optional("on_stop", definition.on_stop, "a runtime and an error", plain=True)


def _optional(what: str, function: object, takes: str, *, plain: bool = False) -> str | None:
    return None if function is None else function_problem(what, function, takes, plain=plain)


def function_problem(what: str, function: object, takes: str, *, plain: bool = False) -> str | None:
    """Return the problem of a function that must be async (``plain``: may be) and accept these arguments, or None.

    ``takes`` has one or two arguments: "a runtime and a request".
    """
    problem = (either_problem if plain else async_problem)(function, 1 + takes.count(" and "), takes)
    return None if problem is None else f"{what} {problem}"


def check_options(name: str, given: Iterable[str], known: Iterable[str], form: str) -> None:
    """Raise DeclarationError for an unknown option, which would otherwise be ignored."""
    known = set(known)
    for each in given:
        if each in _OF_CONTROLLERS and each not in known:
            raise refuse(name, f"{each}= is not an option here: {_OF_CONTROLLERS[each]}", form)
        if each not in known:
            raise refuse(name, f"unknown option {each!r}{did_you_mean(each, known)}", form)


# The options of a controller that a daemon or a timer does not have.
_OF_CONTROLLERS = {
    "manages": "give the type first, as in the form",
    "when": "a daemon runs, and a timer is called, as long as its resource exists",
    "sources": "use @app.controller, whose keys a source can enqueue",
    "priority": "use @app.controller, whose keys may have to wait for a worker",
    "placement": "a daemon or timer runs in one process; use @app.controller for another placement",
}


def _types_problems(definition: Definition, app: str, registry: Registry) -> Iterator[str]:
    for field, types in (
        ("manages", [definition.manages]),
        ("watches", list(definition.watches)),
        ("reads", sorted(definition.reads or (), key=str)),
        ("writes", sorted(definition.writes or (), key=str)),
    ):
        for type in types:
            given: object = type
            if not isinstance(given, ResourceType | ScopedType | Projection):
                yield f"{field}: {given!r} is not a type: use what app.type(...) returned"
            elif type.name not in registry or registry.resolve(type.name) is not stored_type(type):
                yield f"{field}: {type.name} is not a type of app {app!r}: declare it with app.type(...)"
    yield from forms_problems(definition)


def forms_problems(definition: Definition) -> Iterator[str]:
    """Yield a problem for each type that is managed or watched in two forms."""
    forms: dict[TypeName, CachedType[Any]] = {}
    for type in definition.types:
        other = forms.setdefault(type.name, type)
        if other is not type:
            yield (
                f"{type.name} is used in two forms, {other!r} and {type!r}: manage and watch the whole type, or one "
                "scope or projection of it"
            )


def _indexes_problem(definition: Definition) -> str | None:
    taken = set()
    for index in definition.indexes:
        if not definition.caches(index.type):
            return f"indexes has {index!r}: {index.type!r} is neither managed nor watched"
        if index.name in (OWNER_INDEX, PRIORITY_INDEX):
            return f"indexes has {index!r}, whose name is reserved for the engine"
        if (index.type, index.name) in taken:
            return f"indexes has {index!r} twice, or two indexes of the same name"
        taken.add((index.type, index.name))
    return None


def _queries_problem(definition: Definition) -> str | None:
    taken = set()
    for query in definition.queries:
        if query.name in taken:
            return f"queries has {query!r} twice, or two queries of the same name"
        taken.add(query.name)
        for need in query.needs:
            if isinstance(need, Index) and need not in definition.indexes:
                return f"{query!r} needs {need!r}: add it to `indexes`"
            if not isinstance(need, Index) and not definition.caches(need):
                return f"{query!r} needs {need!r}, which is neither managed nor watched: add it to `watches`"
    return None


def needs_problem(definition: Definition) -> str | None:
    """Return a problem if a mapper reads an undeclared index, since it would fail only at the first change."""
    for watch in definition.watches.values():
        for need in sorted(watch.needs, key=str):
            type = need.type or definition.manages
            if not definition.caches(type):
                return f"{watch} goes through {type!r}, which the controller neither manages nor watches"
            index = need.index
            if index is None:
                continue
            if not is_form_of(type, index.type):
                return f"{watch} reads {index!r} to map to {type!r}: give it an index on that"
            if index not in definition.indexes:
                same = any(each.type is type and each.name == index.name for each in definition.indexes)
                hint = ", which has another index of that name: use the same object in both places" if same else ""
                return f"{watch} reads {index!r}: add it to `indexes`{hint}"
    return None
