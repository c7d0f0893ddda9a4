"""Scopes of resource types, which select a part of their resources. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from headway._gen.headway.resource import v1 as pb
from headway.protobuf import Payload
from headway.resource._ids import Kind, ResourceId, Scope, TypeName
from headway.resource._resource import Resource
from headway.resource._within import Within

if TYPE_CHECKING:
    from headway.resource._types import ResourceType

T = TypeVar("T", bound=Payload)


class ScopedType(Generic[T]):
    """A scope of a resource type, declared by ``GOLDEN = ACCOUNT.within(metadata="tier=gold")``. It cannot be changed.

    Use it in place of the type: to manage, watch, cache or list only this part of its resources. Two equal scopes of a
    type are the same object while one of them is in use.

    Attributes:
        of: the type.
        range: the filter that its resources match.
    """

    __slots__ = ("__weakref__", "kind", "name", "of", "range", "scope")

    of: ResourceType[T]
    range: Within
    name: TypeName
    kind: Kind
    scope: Scope

    def __init__(self, of: ResourceType[T], range: Within) -> None:
        for field, value in (("of", of), ("range", range), ("name", of.name), ("kind", of.kind), ("scope", of.scope)):
            object.__setattr__(self, field, value)

    def __setattr__(self, field: str, value: object) -> NoReturn:
        raise AttributeError(f"{self!r} cannot be changed: declare another scope with TYPE.within(...)")

    def __delattr__(self, field: str) -> NoReturn:
        self.__setattr__(field, None)

    def __repr__(self) -> str:
        return f"<ScopedType {self.name} within {self.range}>"

    def __copy__(self) -> ScopedType[T]:
        return self

    def __deepcopy__(self, _: object) -> ScopedType[T]:
        return self

    def id(self, name: str, *, partition: str = "", namespace: str = "", uid: str = "") -> ResourceId:
        """Return the id of a resource of the type. An omitted unit is the one of the scope, or the default."""
        mine = self.range
        return self.of.id(
            name,
            partition=partition or mine.partition.replace("*", ""),
            namespace=namespace or mine.namespace.replace("*", ""),
            uid=uid,
        )

    def name_problem(self, name: object) -> str | None:
        """Return the problem with the name of a resource of the type, or None."""
        return self.of.name_problem(name)

    def tenancy_problem(self, partition: str, namespace: str) -> str | None:
        """Return the problem of tenancy units for the type's scope, or None."""
        return self.of.tenancy_problem(partition, namespace)

    def view(self, message: pb.Resource) -> Resource[T]:
        """Return a stored message as a resource for user code. Do not change the message afterwards."""
        return self.of.view(message)


def is_form_of(declared: object, asked: Any) -> bool:
    """Return True if a cache of ``declared`` is read by ``asked``: by the same object, or by the type of a scope."""
    return asked is declared or (isinstance(declared, ScopedType) and asked is declared.of)
