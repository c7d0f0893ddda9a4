"""The definition of a mapper, and the requirements on its results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from typing_extensions import TypeVar

from headway.base import answer_problem, function_text, plain_problem, repr_text
from headway.cache import CachedType, CacheReader, Index, Isolation, Projected, range_of
from headway.resource import Key, Resource, ResourceId, Stored, shared_message

R = TypeVar("R", default=Any)
"""The form in which a type is read: a `Resource` or a `Projected`."""
R_contra = TypeVar("R_contra", contravariant=True, default=Any)
Answer = TypeVar("Answer")

Concerned = Iterable[ResourceId | Resource[Any] | Projected[Any]]
"""Ids or resources of the managed type. An empty list maps the change to nothing."""


@dataclass(frozen=True, slots=True)
class Need:
    """An index that a mapper reads.

    Attributes:
        type: the indexed type; None for the type that is mapped to.
        index: the index; None for the index by owner, which every watched type has, and the managed type if needed.
    """

    type: CachedType[Any] | None
    index: Index[Any, Any] | None


class ReadyMapper(Generic[R_contra]):
    """A mapper of one state, ready-made or combined from others.

    Attributes:
        name: the mapper's name in reports.
        towards: maps to resources of the given type, which is the managed type when the engine calls it.
        needs: the indexes that it reads.
    """

    __slots__ = ("name", "needs", "towards")

    def __init__(
        self,
        name: str,
        towards: Callable[[R_contra, CacheReader, CachedType[Any]], Concerned],
        needs: frozenset[Need] = frozenset(),
    ) -> None:
        self.name = name
        self.towards = towards
        self.needs = needs

    def __call__(self, resource: R_contra, cache: CacheReader) -> Concerned:
        return self.towards(resource, cache, cache.manages)

    def __repr__(self) -> str:
        return self.name


class ChangeMapper(Generic[R_contra]):
    """A mapper that is called once for each change, with both states. Created by `mappers.change`."""

    __slots__ = ("function", "name", "needs")

    def __init__(
        self,
        name: str,
        function: Callable[[R_contra | None, R_contra | None, CacheReader], Concerned],
        needs: frozenset[Need] = frozenset(),
    ) -> None:
        self.name = name
        self.function = function
        self.needs = needs

    def __repr__(self) -> str:
        return self.name


# A ready-made mapper is also callable. It is listed by name because pyright infers the type of a lambda's argument only
# from named classes: `watch(ROUTE, mappers.reference(lambda route: route.data.service))`.
StateMapper = Callable[[R, CacheReader], Concerned] | ReadyMapper[R]
Mapper = StateMapper[R] | ChangeMapper[R]
"""``mapper(resource, cache)`` returns the managed resources that are affected by ``resource``.

It is called once with the old state of a changed resource and once with the new state, after the caches of all the
controller's types have reached the change. To get both states in one call, use `mappers.change`. Return ids or
resources of the managed type, or an empty list if the change affects none. The result may depend only on the arguments.
Don't modify them, and don't wait for anything.
"""


def ask(mapper: Mapper[R], old: R | None, new: R | None, cache: CacheReader) -> list[object]:
    """Return the results of a mapper for a change, unmodified: one for each call that it needs."""
    if not isinstance(mapper, ChangeMapper):
        return [towards(mapper, state, cache, cache.manages) for state in (old, new) if state is not None]
    function = mapper.function
    if cache.isolation is None:
        return [function(old, new, cache)]
    name = f"mapper {mapper_name(mapper)}"
    return [reading(cache.isolation, name, (old, new), lambda: _gathered(function(old, new, cache)))]


def towards(mapper: StateMapper[R], resource: R, cache: CacheReader, target: CachedType[Any]) -> object:
    """Return the result of a mapper of one state that is to map to ``target``."""
    if cache.isolation is not None:
        given = partial(_towards, mapper, resource, cache, target)
        return reading(cache.isolation, f"mapper {mapper_name(mapper)}", (resource,), lambda: _gathered(given()))
    return _towards(mapper, resource, cache, target)


def _towards(mapper: StateMapper[R], resource: R, cache: CacheReader, target: CachedType[Any]) -> object:
    return mapper.towards(resource, cache, target) if isinstance(mapper, ReadyMapper) else mapper(resource, cache)


def reading(isolation: Isolation | None, who: str, given: Iterable[object], call: Callable[[], Answer]) -> Answer:
    """Call a function on these resources. With ``isolation``, check that it only reads them."""
    if isolation is not None:
        for each in given:
            if isinstance(each, Stored):
                call = partial(isolation.reading, who, shared_message(each), each, call)
    return call()


def _gathered(answer: object) -> object:
    """Return a result that no longer depends on the arguments, since a mapper may be a generator."""
    return list(answer) if isinstance(answer, Iterator) else answer


def listed(answer: object) -> Iterator[Any]:
    """Yield the elements of a result. A result that is not a list is its own element, so that `ids_of` reports it."""
    if isinstance(answer, str | Stored | ResourceId) or not isinstance(answer, Iterable):
        yield answer
    else:
        yield from answer


def needs_of(*mappers: object) -> frozenset[Need]:
    """Return the indexes that these mappers read, as far as they declare it."""
    none: frozenset[Need] = frozenset()
    return none.union(*(each.needs for each in mappers if isinstance(each, ReadyMapper | ChangeMapper)))


def mapper_name(mapper: object) -> str:
    """Return the name of a mapper or a predicate in reports."""
    return getattr(mapper, "__qualname__", None) or repr(mapper)


def failed_name(mapper: object) -> str:
    """Return the name of a mapper or a predicate that has failed. All lambdas share a name, so it has their place."""
    name = mapper_name(mapper)
    return function_text(mapper) if name.endswith("<lambda>") else name


def mapper_problem(mapper: object) -> str | None:
    """Return the problem of a mapper, or None."""
    if isinstance(mapper, ChangeMapper):
        return None
    return plain_problem(
        mapper,
        2,
        "a resource and a cache",
        what="a mapper, such as headway.mappers.owner(),",
        why="a mapper must not wait",
        may_yield=True,
    )


def ids_of(result: object, managed: CachedType[Any]) -> tuple[list[Key], list[str]]:
    """Return the keys in a mapper's result, and a sentence for each element that is invalid.

    Keys that the scope of the managed type excludes are left out.
    """
    # The checks by abstract classes take longer than the rest, and most results are lists.
    if type(result) is not list:
        if isinstance(result, Awaitable) and (problem := answer_problem(result)):
            return [], [problem]
        if result is None:
            return [], ["it returned None: return a list of ids, an empty one for none"]
        if isinstance(result, str | Stored | ResourceId) or not isinstance(result, Iterable):
            return [], [f"it returned {repr_text(result)}: return a list of ids of {managed.name}"]
    keys: list[Key] = []
    problems: list[str] = []
    elements: Any = result
    within = range_of(managed)
    for each in elements:
        id: Any = each.id if isinstance(each, Stored) else each
        if problem := id_problem(id, managed):
            problems.append(f"it returned {problem}; return ids of {managed.name}, as from TYPE.id(name)")
        elif within.matches(id.key):
            keys.append(id.key)
    return keys, problems


def id_problem(given: object, managed: CachedType[Any]) -> str | None:
    """Return what is neither an id nor a resource of the managed type, with the reason, or None if it is one."""
    id = given.id if isinstance(given, Stored) else given
    if not isinstance(id, ResourceId):
        return f"{repr_text(id)}, which is not an id"
    if id.type.unversioned != managed.kind:
        return f"{id}, of type {id.type}: the controller manages {managed.name}"
    problem = managed.tenancy_problem(id.partition, id.namespace)
    return f"{id}: {problem}" if problem else None
