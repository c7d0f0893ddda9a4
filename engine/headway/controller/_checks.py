"""Checks of declarations. Each error names what was given and shows the correct form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headway.base import async_problem, either_problem, ended, repr_text
from headway.cache import OWNER_INDEX, CachedType, Index, Projection, Query, stored_type
from headway.controller._definition import Definition, placement_problem
from headway.controller._write_limit import WriteLimit
from headway.errors import DeclarationError
from headway.mapper import Predicate, Watch, predicate
from headway.queue import Backoff
from headway.resource import Registry, ResourceType, ScopedType, TypeName, did_you_mean, is_form_of, name_problem

if TYPE_CHECKING:
    from collections.abc import Container

FORM = """
    @app.controller(manages=TEAM, watches=[headway.watch(ACCOUNT, headway.mappers.owner())])
    async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None: ..."""


def refuse(name: str, problem: str, form: str = FORM) -> DeclarationError:
    """Return the error for a problem in a controller's declaration."""
    return DeclarationError(f"controller {name!r}: {ended(problem)} The form is:{form}")


def frozen_options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Options` for the given options. Those left out, or given as None, have their defaults."""
    return {
        option: _FROZEN[option](name, value) if option in _FROZEN else value
        for option, value in given.items()
        if value is not None or option not in _FROZEN
    }


def _frozen_mapping(name: str, given: object) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise refuse(name, f"sources must be a mapping, such as {{'resync': headway.sources.every(60)}}, not {given!r}")
    return MappingProxyType(dict(given))


def _frozen_list(field: str, example: str, name: str, given: object) -> tuple[Any, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise refuse(name, f"{field} must be a list, such as {example}, not {given!r}")
    return tuple(given)


def _frozen_watches(name: str, given: object) -> Mapping[CachedType[Any], Watch[Any]]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        form = "[headway.watch(ACCOUNT, headway.mappers.owner())]"
        raise refuse(name, f"watches must be a list, such as {form}, not {given!r}")
    found: dict[CachedType[Any], Watch[Any]] = {}
    for each in given:
        if not isinstance(each, Watch):
            raise refuse(name, f"watches must be a list of headway.watch(TYPE, mapper), but contains {each!r}")
        if each.type in found:
            raise refuse(name, f"watches has {each.type.name} twice: combine the mappers with mappers.union")
        found[each.type] = each
    return MappingProxyType(found)


def _frozen_types(field: str, name: str, given: object) -> frozenset[ResourceType[Any]]:
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise refuse(name, f"{field} must be a list of types, such as [ACCOUNT], not {given!r}")
    types = list(given)
    for each in types:
        if not isinstance(each, ResourceType):
            raise refuse(name, f"{field}: {each!r} is not a type: use what app.type(...) returned")
    return frozenset(types)


def checked_backoff(name: str, given: object) -> Backoff:
    """Return a Backoff. Raises DeclarationError for anything else."""
    if not isinstance(given, Backoff):
        raise refuse(name, f"backoff must be a headway.Backoff(base, maximum), not {given!r}")
    return given


def _checked_write_limit(name: str, given: object) -> WriteLimit:
    if not isinstance(given, WriteLimit):
        raise refuse(name, f"write_limit must be a headway.WriteLimit(per_second, burst=...), not {given!r}")
    return given


_FROZEN: dict[str, Callable[[str, Any], object]] = {
    "watches": _frozen_watches,
    "indexes": partial(_frozen_list, "indexes", "[BY_TEAM]"),
    "queries": partial(_frozen_list, "queries", "[members_of]"),
    "sources": _frozen_mapping,
    "reads": partial(_frozen_types, "reads"),
    "writes": partial(_frozen_types, "writes"),
    "backoff": checked_backoff,
    "write_limit": _checked_write_limit,
}
"""A function for each option that may be given as None and is copied or checked when it is declared."""


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
    yield _indexes_problem(definition)
    yield _queries_problem(definition)
    yield needs_problem(definition)
    yield _numbers_problem(definition)
    yield placement_problem(definition.placement)
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


def check_type_given(what: str, type: object, form: str) -> None:
    """Raise DeclarationError if a daemon or timer has no type, as after `@app.daemon` without parentheses."""
    if not isinstance(type, ResourceType | ScopedType | Projection):
        raise DeclarationError(f"a {what} needs a type, as app.type(...) returned it, not {type!r}. The form is:{form}")


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
        given: object = index
        if not isinstance(given, Index):
            form = "headway.indexes.by(ACCOUNT, 'team', lambda account: ...)"
            return f"indexes: {given!r} is not an index: use what {form} returned"
        if not definition.caches(index.type):
            return f"indexes has {index!r}: {index.type!r} is neither managed nor watched"
        if index.name == OWNER_INDEX:
            return f"indexes has {index!r}, whose name is reserved for the engine"
        if (index.type, index.name) in taken:
            return f"indexes has {index!r} twice, or two indexes of the same name"
        taken.add((index.type, index.name))
    return None


def _queries_problem(definition: Definition) -> str | None:
    taken = set()
    for query in definition.queries:
        given: object = query
        if not isinstance(given, Query):
            return f"queries: {given!r} is not a query: use functions decorated with @headway.query(...)"
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


def _numbers_problem(definition: Definition) -> str | None:
    concurrency: object = definition.concurrency
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        return f"concurrency must be a whole number from 1 on, not {concurrency!r}"
    interval: object = definition.min_interval
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 <= interval < math.inf:
        return f"min_interval must be a finite number of seconds >= 0, such as 2.0, not {repr_text(interval)}"
    return seconds_problem("deadline", definition.deadline)


def seconds_problem(what: str, given: object) -> str | None:
    """Return the problem of a number of seconds that must be above 0, or None."""
    if not isinstance(given, int | float) or isinstance(given, bool) or math.isnan(given) or given <= 0:
        return f"{what} must be a number of seconds above 0, not {given!r}"
    return None
