"""What a mapper is, and what every mapper must give."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from typing_extensions import TypeVar

from headway._functions import answer_problem, plain_problem
from headway._safe_text import repr_text
from headway.cache import CachedType, CacheReader, Index, Isolation, Projected
from headway.resource import Key, Resource, ResourceId, Stored, shared_message

R = TypeVar("R", default=Any)
"""What of a type is read: a `Resource`, or a `Projected`."""
R_contra = TypeVar("R_contra", contravariant=True, default=Any)
Answer = TypeVar("Answer")

Concerned = Iterable[ResourceId | Resource[Any] | Projected[Any]]
"""Ids, or resources, of the managed type; none is an empty list."""


@dataclass(frozen=True, slots=True)
class Need:
    """An index that a mapper reads.

    Attributes:
        type: that it is on; None: the type that is mapped to.
        index: None: that by owner, which a watched type has anyway and the managed one where it is needed.
    """

    type: CachedType[Any] | None
    index: Index[Any, Any] | None


class ReadyMapper(Generic[R_contra]):
    """A mapper of one state, ready-made or put together.

    Attributes:
        name: what it is called in reports.
        towards: maps to resources of the given type, which is the managed one when the engine asks.
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
    """A mapper that is asked once a change, for both of its states at once. Made by `mappers.change`."""

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


# A ready-made mapper is a callable, too. It is named because pyright looks for the type of a lambda's argument only
# among classes that it is given by name: `watch(ROUTE, mappers.reference(lambda route: route.data.service))`.
StateMapper = Callable[[R, CacheReader], Concerned] | ReadyMapper[R]
Mapper = StateMapper[R] | ChangeMapper[R]
"""``mapper(resource, cache)`` gives the managed resources that are concerned by ``resource``.

It is called with a changed resource's (or `Projected`'s) old state and with its new one, when the cache of every type
of the controller has reached the change. It must depend on its arguments alone, must not change them, and must not
wait. It returns ids, or resources, of the managed type; none is an empty list. One made by `mappers.change` gets both
states at once.
"""


def ask(mapper: Mapper[R], old: R | None, new: R | None, cache: CacheReader) -> list[object]:
    """What a mapper answers to a change: one answer for each time it has to be asked, as it gave it."""
    if cache.isolation is not None:
        return _ask_checked(cache.isolation, mapper, old, new, cache)
    if isinstance(mapper, ChangeMapper):
        return [mapper.function(old, new, cache)]
    return [mapper(state, cache) for state in (old, new) if state is not None]


def towards(mapper: StateMapper[R], resource: R, cache: CacheReader, target: CachedType[Any]) -> object:
    """What a mapper of one state gives when it is to map to ``target``."""
    if cache.isolation is not None:
        given = partial(_towards, mapper, resource, cache, target)
        return reading(cache.isolation, f"mapper {mapper_name(mapper)}", (resource,), lambda: _gathered(given()))
    return _towards(mapper, resource, cache, target)


def _towards(mapper: StateMapper[R], resource: R, cache: CacheReader, target: CachedType[Any]) -> object:
    return mapper.towards(resource, cache, target) if isinstance(mapper, ReadyMapper) else mapper(resource, cache)


def _ask_checked(
    isolation: Isolation, mapper: Mapper[R], old: R | None, new: R | None, cache: CacheReader
) -> list[object]:
    if not isinstance(mapper, ChangeMapper):
        return [towards(mapper, state, cache, cache.manages) for state in (old, new) if state is not None]
    function = mapper.function
    who = f"mapper {mapper_name(mapper)}"
    return [reading(isolation, who, (old, new), lambda: _gathered(function(old, new, cache)))]


def reading(isolation: Isolation | None, who: str, given: Iterable[object], call: Callable[[], Answer]) -> Answer:
    """Call what is given these resources; with ``isolation``, check that it only reads them."""
    if isolation is not None:
        for each in given:
            if isinstance(each, Stored):
                call = partial(isolation.reading, who, shared_message(each), each, call)
    return call()


def _gathered(answer: object) -> object:
    """An answer that is done with what it was given: a mapper may yield."""
    return list(answer) if isinstance(answer, Iterator) else answer


def listed(answer: object) -> Iterator[Any]:
    """What is in an answer. What is no list stands for itself, so that `ids_of` names it."""
    if isinstance(answer, str | Stored | ResourceId) or not isinstance(answer, Iterable):
        yield answer
    else:
        yield from answer


def needs_of(*mappers: object) -> frozenset[Need]:
    """The indexes that these mappers read, as far as they say so."""
    none: frozenset[Need] = frozenset()
    return none.union(*(each.needs for each in mappers if isinstance(each, ReadyMapper | ChangeMapper)))


def mapper_name(mapper: object) -> str:
    """What a mapper, or a predicate, is called in reports."""
    return getattr(mapper, "__qualname__", None) or repr(mapper)


def mapper_problem(mapper: object) -> str | None:
    """What is wrong with a mapper, or None."""
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
    """The keys in what a mapper returned, and a sentence for each thing in it that isn't right."""
    if isinstance(result, Awaitable) and (problem := answer_problem(result)):
        return [], [problem]
    if result is None:
        return [], ["it returned None: return a list of ids, an empty one for none"]
    if isinstance(result, str | Stored | ResourceId) or not isinstance(result, Iterable):
        return [], [f"it returned {repr_text(result)}: return a list of ids of {managed.name}"]
    keys: list[Key] = []
    problems: list[str] = []
    for each in result:
        id = each.id if isinstance(each, Stored) else each
        if not isinstance(id, ResourceId):
            problems.append(
                f"it gave {repr_text(each)}, which is no id: give {managed.name.kind} ids, as from TYPE.id(name)"
            )
        elif id.type.unversioned != managed.kind:
            problems.append(f"it gave {id}, of type {id.type}: the controller manages {managed.name}")
        elif problem := managed.tenancy_problem(id.partition, id.namespace):
            problems.append(f"it gave {id}: {problem}; give {managed.name.kind} ids, as from TYPE.id(name)")
        else:
            keys.append(id.key)
    return keys, problems
