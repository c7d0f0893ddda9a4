"""The ready-made mappers: by owner, name, reference or index, and combinations of mappers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar, overload

from headway.base import check_plain, checked
from headway.cache import CachedType, CacheReader, Index, Projected
from headway.errors import DeclarationError
from headway.mapper._mappers import (
    ChangeMapper,
    Concerned,
    Mapper,
    Need,
    R,
    ReadyMapper,
    StateMapper,
    ask,
    listed,
    mapper_name,
    mapper_problem,
    needs_of,
    reading,
    towards,
)
from headway.resource import (
    Resource,
    ResourceId,
    Stored,
    pb,
    tenancy_within,
    type_name,
)

V = TypeVar("V", bound=Hashable)
P = TypeVar("P", bound=tuple[str, ...])
Either = Resource[Any] | Projected[Any]

Reference = ResourceId | pb.Reference | str | None
"""A reference to a resource: an id, a reference, or a name. None and an empty name refer to nothing."""


@checked()
def itself() -> ReadyMapper[Any]:
    """Map to the changed resource itself, if it is of the managed type."""
    return ReadyMapper("mappers.itself()", _self)


def _self(resource: Either, _: CacheReader, target: CachedType[Any]) -> Concerned:
    return [resource.id] if resource.type.kind == target.kind else []


@checked()
def owner() -> ReadyMapper[Any]:
    """Map to the owner, if it is of the managed type."""
    return ReadyMapper("mappers.owner()", _owner)


def _owner(resource: Either, _: CacheReader, target: CachedType[Any]) -> Concerned:
    id = resource.owner
    return [] if id is None or id.type.unversioned != target.kind else [id]


@checked()
def owned() -> ReadyMapper[Any]:
    """Map to the managed resources that the changed resource owns."""
    return ReadyMapper("mappers.owned()", _owned, frozenset({Need(None, None)}))


def _owned(resource: Either, cache: CacheReader, target: CachedType[Any]) -> Concerned:
    return cache.owned(target, resource)


@checked()
def same_name() -> ReadyMapper[Any]:
    """Map to the managed resource of the same name, in the same tenancy as far as the managed type has one."""
    return ReadyMapper("mappers.same_name()", _same_name)


def _same_name(resource: Either, _: CacheReader, target: CachedType[Any]) -> Concerned:
    return [_named(resource.name, resource.id, target)]


@checked()
def reference(refers_to: Callable[[R], Reference]) -> ReadyMapper[R]:
    """Map to the managed resource in a reference: ``mappers.reference(lambda route: route.data.service)``.

    The function returns an id, a reference or a name. A name is looked up in the changed resource's own tenancy. None,
    an empty name, and a resource of another type map to nothing. So does a name or a reference that is invalid, because
    it comes from users, and no resource can have it.
    """
    check_plain("mappers.reference", refers_to, 1, "a resource", "mappers.reference(lambda route: route.data.service)")
    return ReadyMapper(
        f"mappers.reference({mapper_name(refers_to)})",
        lambda resource, _, target: _referred([refers_to(resource)], resource, target),
    )


@checked()
def references(refers_to: Callable[[R], Iterable[Reference]]) -> ReadyMapper[R]:
    """Map like `mappers.reference`, to several resources: ``mappers.references(lambda team: team.data.members)``."""
    form = "mappers.references(lambda team: team.data.members)"
    check_plain("mappers.references", refers_to, 1, "a resource", form, may_yield=True)
    return ReadyMapper(
        f"mappers.references({mapper_name(refers_to)})",
        lambda resource, _, target: _referred(listed(refers_to(resource)), resource, target),
    )


def _referred(given: Iterable[Any], resource: Any, target: CachedType[Any]) -> Concerned:
    found: list[Any] = []
    for each in given:
        if isinstance(each, str):
            id = _named(each, resource.id, target)
            if _can_exist(id, target):
                found.append(id)
        elif isinstance(each, ResourceId):
            if each.type.unversioned == target.kind:
                found.append(each)
        elif isinstance(each, pb.Reference):
            id = _of_reference(each, resource.id, target)
            if id.type.unversioned == target.kind and _can_exist(id, target):
                found.append(id)
        elif each is not None:
            # Not an id. It is passed on, so that the error names it.
            found.append(each)
    return found


def _can_exist(id: ResourceId, target: CachedType[Any]) -> bool:
    return target.name_problem(id.name) is None and target.tenancy_problem(id.partition, id.namespace) is None


def _named(name: str, beside: ResourceId, target: CachedType[Any]) -> ResourceId:
    """Return the id of a name in the tenancy of the referring resource, as far as the type's scope has one."""
    return ResourceId(target.name, name, *tenancy_within(target.scope, ("", ""), (beside.partition, beside.namespace)))


def _of_reference(reference: pb.Reference, beside: ResourceId, target: CachedType[Any]) -> ResourceId:
    given = reference.tenancy or pb.Tenancy()
    units = tenancy_within(target.scope, (given.partition, given.namespace), (beside.partition, beside.namespace))
    return ResourceId(type_name(reference.type), reference.name, *units)


@overload
def index(index: Index[Any, ResourceId]) -> ReadyMapper[Any]: ...
@overload
def index(index: Index[Any, V], *, value: Callable[[R], V | None]) -> ReadyMapper[R]: ...
@checked()
def index(index: Index[Any, Any], *, value: Callable[[R], Any] | None = None) -> ReadyMapper[R]:
    """Map to the managed resources whose value in an index is the changed resource's id (without its uid).

    The index is on the managed type and by what its resources refer to, as `headway.indexes.by_reference` makes it. If
    the index holds something other than ids, ``value`` computes it: ``mappers.index(BY_TEAM, value=lambda team:
    team.name)``. None maps to nothing.
    """
    if value is not None:
        check_plain(
            "mappers.index: value", value, 1, "a resource", "mappers.index(BY_TEAM, value=lambda team: team.name)"
        )

    def by_index(resource: Any, cache: CacheReader, _: CachedType[Any]) -> Concerned:
        given = resource.id.without_uid() if value is None else value(resource)
        found: list[Either] = [] if given is None else cache.index(index, given)
        return found

    return ReadyMapper(f"mappers.index({index!r})", by_index, frozenset({Need(None, index)}))


@overload
def index_prefix(index: Index[Any, str], value: Callable[[R], str | None]) -> ReadyMapper[R]: ...
@overload
def index_prefix(index: Index[Any, P], value: Callable[[R], tuple[str, ...] | None]) -> ReadyMapper[R]: ...
@checked()
def index_prefix(index: Index[Any, Any], value: Callable[[R], Any]) -> ReadyMapper[R]:
    """Map to the managed resources with a value that begins with ``value(resource)``; None maps to nothing.

    The index is on the managed type, by texts or paths, as for `CacheReader.index_prefix`.
    """
    return _by_path("mappers.index_prefix", index, value, lambda cache, given: cache.index_prefix(index, given))


@overload
def index_parents(index: Index[Any, str], value: Callable[[R], str | None]) -> ReadyMapper[R]: ...
@overload
def index_parents(index: Index[Any, P], value: Callable[[R], tuple[str, ...] | None]) -> ReadyMapper[R]: ...
@checked()
def index_parents(index: Index[Any, Any], value: Callable[[R], Any]) -> ReadyMapper[R]:
    """Map to the managed resources with a value that is a prefix of the result of ``value(resource)``, or equal to it.

    ``mappers.index_parents(BY_PREFIX, lambda pod: pod.name)`` returns the resources that select pods by a prefix of
    their names. The index is as for `mappers.index_prefix`.
    """
    return _by_path("mappers.index_parents", index, value, lambda cache, given: cache.index_parents(index, given))


def _by_path(
    where: str, index: Index[Any, Any], value: Callable[[R], Any], read: Callable[[CacheReader, Any], Concerned]
) -> ReadyMapper[R]:
    check_plain(f"{where}: value", value, 1, "a resource", f"{where}(BY_PREFIX, lambda pod: pod.name)")

    def by_path(resource: Any, cache: CacheReader, _: CachedType[Any]) -> Concerned:
        given = value(resource)
        return [] if given is None else read(cache, given)

    return ReadyMapper(f"{where}({index!r}, {mapper_name(value)})", by_path, frozenset({Need(None, index)}))


@checked()
def union(*mappers: Mapper[R]) -> Mapper[R]:
    """Map to everything that any of these mappers maps to, without duplicates."""
    _check("mappers.union", *mappers)
    name = f"mappers.union({', '.join(map(mapper_name, mappers))})"
    states = tuple(each for each in mappers if not isinstance(each, ChangeMapper))
    if len(states) == len(mappers):
        return ReadyMapper(
            name,
            lambda resource, cache, target: [
                each for mapper in states for each in listed(towards(mapper, resource, cache, target))
            ],
            needs_of(*mappers),
        )
    return ChangeMapper(
        name,
        lambda old, new, cache: [
            each for mapper in mappers for answer in ask(mapper, old, new, cache) for each in listed(answer)
        ],
        needs_of(*mappers),
    )


@checked()
def only_if(condition: Callable[[R], bool], mapper: Mapper[R]) -> Mapper[R]:
    """Map like ``mapper``, but only with states that satisfy ``condition(resource)``.

    A change that makes the condition true or false for a resource is mapped as well, by the state that satisfies the
    condition.
    """
    check_plain(
        "mappers.only_if",
        condition,
        1,
        "a resource",
        "mappers.only_if(lambda pod: pod.data.ready, headway.mappers.owner())",
    )
    _check("mappers.only_if", mapper)
    asked = mapper_name(condition)

    def met(state: R, cache: CacheReader) -> bool:
        return reading(cache.isolation, f"condition {asked}", (state,), lambda: condition(state))

    name, needs = f"mappers.only_if({asked}, {mapper_name(mapper)})", needs_of(mapper)
    if isinstance(mapper, ChangeMapper):

        def states(old: R | None, new: R | None, cache: CacheReader) -> Concerned:
            old = old if old is not None and met(old, cache) else None
            new = new if new is not None and met(new, cache) else None
            return [] if old is None and new is None else listed(ask(mapper, old, new, cache)[0])

        return ChangeMapper(name, states, needs)

    def state(resource: R, cache: CacheReader, target: CachedType[Any]) -> Concerned:
        return listed(towards(mapper, resource, cache, target)) if met(resource, cache) else []

    return ReadyMapper(name, state, needs)


@checked()
def change(
    function: Callable[[R | None, R | None, CacheReader], Concerned],
) -> ChangeMapper[R]:
    """Map with the old and the new state at once: ``mappers.change(lambda old, new, cache: ...)``.

    The old state is None for a creation, and for a resource that existed when the run began. The new state is None for
    a deletion. Include the resources that only the old state affects, because they need a reconcile too.
    """
    form = "mappers.change(lambda old, new, cache: [...])"
    check_plain("mappers.change", function, 3, "old, new and a cache", form, may_yield=True)
    return ChangeMapper(f"mappers.change({mapper_name(function)})", function)


@checked()
def through(type: CachedType[Any], first: StateMapper[R], then: StateMapper[Any]) -> ReadyMapper[R]:
    """Map by way of a third type: ``first`` maps to resources of ``type``, and ``then`` maps each existing one of them.

    With ``mappers.through(POD, mappers.index(PODS_BY_NODE), mappers.owner())`` a changed node affects the owners of the
    pods that have it as a value of the index. A ready-made mapper given as ``first`` maps to ``type``. Changes of
    ``type`` itself are not mapped: watch it as well, with ``then`` as its mapper. ``type`` may be a projection.
    """
    _check("mappers.through", first, then)
    both: list[object] = [first, then]
    if any(isinstance(each, ChangeMapper) for each in both):
        raise DeclarationError("mappers.through expects mappers of one state, but mappers.change(...) maps two")

    def through(resource: R, cache: CacheReader, target: CachedType[Any]) -> Concerned:
        found: dict[ResourceId, Any] = {}
        for each in listed(towards(first, resource, cache, type)):
            whole = isinstance(each, Stored)
            # `then` needs the form of the resource that it is declared for.
            between = each if whole and each.type is type else cache.get(type, each.id if whole else each)
            if between is not None:
                found.setdefault(between.id, between)
        return [each for between in found.values() for each in listed(towards(then, between, cache, target))]

    reads = {Need(need.type or type, need.index) for need in needs_of(first)}
    return ReadyMapper(
        f"mappers.through({type.name}, {mapper_name(first)}, {mapper_name(then)})", through, needs_of(then) | reads
    )


def _check(where: str, *mappers: object) -> None:
    if not mappers:
        raise DeclarationError(f"{where} expects mappers, such as headway.mappers.owner(), but got none")
    for each in mappers:
        problem = mapper_problem(each)
        if problem:
            raise DeclarationError(f"{where}: each mapper {problem}")
