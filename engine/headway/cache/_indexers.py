"""Ready-made indexes: by metadata, by owner, and by what a resource refers to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from headway._keywords import check_keywords
from headway.cache._cached_type import CachedType
from headway.cache._indexes import Index, checked_index
from headway.errors import DeclarationError
from headway.resource import Payload, Resource, ResourceId, ResourceType, pb, resource_id

R = TypeVar("R")
T = TypeVar("T", bound=Payload)

Referred = ResourceId | pb.Reference
"""What a payload refers to another resource by. Its tenancy must be there: nothing is filled in."""

_BOUND = "bound_references"


@check_keywords
def by_metadata(type: CachedType[R], key: str, *, name: str = "") -> Index[R, str]:
    """An index by the text of one metadata entry; named like it, unless named otherwise."""
    return Index(type, name or key, lambda message: message.metadata.get(key), single=True, raw=True)


@check_keywords
def by_owner(type: CachedType[R], *, name: str = "owner") -> Index[R, str]:
    """An index by the uid of the owner: ownership is of an incarnation."""
    return Index(
        type, name, lambda message: message.owner.uid if message.owner is not None else None, single=True, raw=True
    )


@check_keywords
def by_reference(type: CachedType[R], name: str, function: Callable[[R], Referred | None]) -> Index[R, ResourceId]:
    """An index by the one resource that each refers to: ``lambda route: SERVICE.id(route.data.service)``.

    A reference means whoever bears the name: a uid, and the version of the type, play no part, neither in what the
    function gives nor in what is asked for.
    """

    def referred(resource: R) -> ResourceId | None:
        given = function(resource)
        return None if given is None else _normal(given)

    return checked_index(Index(type, name, referred, single=True, normal=_normal), function)


@check_keywords
def by_references(type: CachedType[R], name: str, function: Callable[[R], Iterable[Referred]]) -> Index[R, ResourceId]:
    """As `by_reference`, where each may refer to any number of resources."""
    made: Index[R, ResourceId] = Index(
        type, name, lambda resource: map(_normal, function(resource)), single=False, normal=_normal
    )
    return checked_index(made, function)


@check_keywords
def by_bound_references(type: ResourceType[T], *, name: str = _BOUND) -> Index[Resource[T], ResourceId]:
    """As `by_references`, by the field ``bound_references`` of the payload: a list of references."""
    if _BOUND not in type.payload.__dataclass_fields__:
        raise DeclarationError(
            f"{type.name}: {type.payload.__name__} has no field {_BOUND!r}: give it one, "
            f"`{_BOUND}: list[headway.Reference] = field(...)`, or use headway.indexes.by_references"
        )
    return by_references(type, name, lambda resource: getattr(resource.data, _BOUND))


def _normal(given: Referred) -> ResourceId:
    """The one form of a reference in an index."""
    if isinstance(given, pb.Reference):
        given = resource_id(pb.Id(name=given.name, type=given.type, tenancy=given.tenancy))
    if not isinstance(given, ResourceId):
        raise TypeError(f"{given!r} is no reference: give what TYPE.id(name) or resource.id.reference() gives")
    return given._replace(type=given.type._replace(version=""), uid="")
