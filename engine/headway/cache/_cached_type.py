"""The types that a cache can hold: a stored type or a projection of one. No I/O."""

from __future__ import annotations

from typing import Protocol, TypeVar

from headway.resource import Kind, ResourceId, Scope, TypeName, pb

R_co = TypeVar("R_co", covariant=True)


class CachedType(Protocol[R_co]):
    """The interface of types that can be read, indexed and watched: a `ResourceType` or a `Projection`."""

    @property
    def name(self) -> TypeName:
        """The name of the stored type."""
        ...

    @property
    def kind(self) -> Kind:
        """The name without the version."""
        ...

    @property
    def scope(self) -> Scope:
        """The tenancy units that the type has."""
        ...

    def id(self, name: str, *, partition: str = "", namespace: str = "", uid: str = "") -> ResourceId:
        """Return the id of a resource of this type."""
        ...

    def tenancy_problem(self, partition: str, namespace: str) -> str | None:
        """Return the problem of tenancy units for the scope, or None."""
        ...

    def view(self, message: pb.Resource) -> R_co:
        """Return a cached message in the form that user code sees."""
        ...
