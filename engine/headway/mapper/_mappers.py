"""Ready-made mappers, and what every mapper must give."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headway.cache import CachedType, CacheReader, Index, Projected
from headway.errors import DeclarationError
from headway.resource import Key, Resource, ResourceId

Mapper = Callable[[Any, CacheReader], "Iterable[ResourceId | Resource[Any] | Projected[Any]]"]
"""``mapper(resource, cache)`` gives the managed resources that are concerned by ``resource``.

It is called with a changed resource's (or `Projected`'s) old state and with its new one, when the cache of every type
of the controller has reached the change. It must depend on its arguments alone, must not change them, and must not
wait. It returns ids, or resources, of the managed type; none is an empty list.
"""


def map_owner() -> Mapper:
    """The owner, where it is of the managed type."""

    def owner(resource: Resource[Any], cache: CacheReader) -> Iterable[ResourceId]:
        id = resource.owner
        return [] if id is None or id.type.unversioned != cache.manages.kind else [id]

    return owner


def map_same_name() -> Mapper:
    """The managed resource with the same name and tenancy."""

    def same_name(resource: Resource[Any], cache: CacheReader) -> Iterable[ResourceId]:
        return [resource.id._replace(type=cache.manages.name, uid="")]

    return same_name


def map_index(index: Index[Any, ResourceId]) -> Mapper:
    """The managed resources that have the changed resource's id (without its uid) as a value of this index.

    The index is one on the managed type, and says what each of its resources refers to: `headway.index_reference`.
    """
    given: object = index
    if not isinstance(given, Index):
        raise DeclarationError(f"map_index takes an index on the managed type, as headway.index made it, not {given!r}")

    def by_index(resource: Resource[Any], cache: CacheReader) -> Iterable[Any]:
        return cache.index(index, resource.id.without_uid())

    by_index.__name__ = by_index.__qualname__ = f"map_index({index!r})"
    return by_index


def mapper_name(mapper: Mapper) -> str:
    """What a mapper is called in reports."""
    return getattr(mapper, "__qualname__", None) or repr(mapper)


def ids_of(result: object, managed: CachedType[Any]) -> tuple[list[Key], list[str]]:
    """The keys in what a mapper returned, and a sentence for each thing in it that isn't right."""
    if result is None:
        return [], ["it returned None: return a list of ids, an empty one for none"]
    if isinstance(result, str | Resource | Projected | ResourceId) or not isinstance(result, Iterable):
        return [], [f"it returned {result!r}: return a list of ids of {managed.name}"]
    keys: list[Key] = []
    problems: list[str] = []
    for each in result:
        id = each.id if isinstance(each, Resource | Projected) else each
        if not isinstance(id, ResourceId):
            problems.append(f"it gave {each!r}, which is no id: give {managed.name.kind} ids, as from TYPE.id(name)")
        elif id.type.unversioned != managed.kind:
            problems.append(f"it gave {id}, of type {id.type}: the controller manages {managed.name}")
        else:
            keys.append(id.key)
    return keys, problems
