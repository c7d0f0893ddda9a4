"""Ready-made indexes: by metadata, by owner, and by references. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from headway._keywords import check_keywords
from headway.cache._cached_type import CachedType
from headway.cache._indexes import Index, checked_index
from headway.errors import DeclarationError
from headway.protobuf import Payload
from headway.resource import Resource, ResourceId, ResourceType, pb, resource_id

R = TypeVar("R")
T = TypeVar("T", bound=Payload)

Referred = ResourceId | pb.Reference
"""A reference to another resource in a payload. It must include its tenancy, because nothing is filled in."""

_BOUND = "bound_references"


@check_keywords
def by_metadata(type: CachedType[R], key: str, *, name: str = "") -> Index[R, str]:
    """Return an index by the value of one metadata entry. Its name defaults to the entry's key."""
    return Index(type, name or key, lambda message: message.metadata.get(key), single=True, raw=True)


@check_keywords
def by_owner(type: CachedType[R], *, name: str = "owner") -> Index[R, str]:
    """Return an index by the uid of the owner, since an incarnation is what owns a resource."""
    return Index(
        type, name, lambda message: message.owner.uid if message.owner is not None else None, single=True, raw=True
    )


@check_keywords
def by_reference(type: CachedType[R], name: str, function: Callable[[R], Referred | None]) -> Index[R, ResourceId]:
    """Return an index by a single reference: ``lambda route: SERVICE.id(route.data.service)``.

    A reference means whichever resource has the name. A uid and the version of the type are ignored, both in the result
    of the function and in lookups.
    """

    def referred(resource: R) -> ResourceId | None:
        given = function(resource)
        return None if given is None else _normal(given)

    return checked_index(Index(type, name, referred, single=True, normal=_normal), function)


@check_keywords
def by_references(type: CachedType[R], name: str, function: Callable[[R], Iterable[Referred]]) -> Index[R, ResourceId]:
    """Return an index like `by_reference` for resources that each refer to any number of resources."""
    made: Index[R, ResourceId] = Index(
        type, name, lambda resource: map(_normal, function(resource)), single=False, normal=_normal
    )
    return checked_index(made, function)


@check_keywords
def by_bound_references(type: ResourceType[T], *, name: str = _BOUND) -> Index[Resource[T], ResourceId]:
    """Return an index like `by_references`, by the payload's field ``bound_references``, a list of references."""
    if _BOUND not in type.payload.__dataclass_fields__:
        raise DeclarationError(
            f"{type.name}: {type.payload.__name__} has no field {_BOUND!r}: add it, "
            f"`{_BOUND}: list[headway.Reference] = field(...)`, or use headway.indexes.by_references"
        )
    return by_references(type, name, lambda resource: getattr(resource.data, _BOUND))


def _normal(given: Referred) -> ResourceId:
    """Return the normal form of a reference in an index."""
    if isinstance(given, pb.Reference):
        given = resource_id(pb.Id(name=given.name, type=given.type, tenancy=given.tenancy))
    if not isinstance(given, ResourceId):
        raise TypeError(f"{given!r} is not a reference: return TYPE.id(name) or resource.id.reference()")
    return given._replace(type=given.type._replace(version=""), uid="")
