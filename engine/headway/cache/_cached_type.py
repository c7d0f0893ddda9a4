"""What a cache can hold: a type as it is stored, or a projection of one. Pure."""

from __future__ import annotations

from typing import Protocol, TypeVar

from headway.resource import Kind, ResourceId, Scope, TypeName, pb

R_co = TypeVar("R_co", covariant=True)


class CachedType(Protocol[R_co]):
    """What reads, indexes and ``watches=`` take: a `ResourceType`, which is read as `Resource`, or a `Projection`."""

    @property
    def name(self) -> TypeName:
        """The name of the stored type."""
        ...

    @property
    def kind(self) -> Kind:
        """Its name without the version."""
        ...

    @property
    def scope(self) -> Scope:
        """Which tenancy units it has."""
        ...

    def id(self, name: str, *, partition: str = "", namespace: str = "", uid: str = "") -> ResourceId:
        """The id of a resource of this type."""
        ...

    def tenancy_problem(self, partition: str, namespace: str) -> str | None:
        """What is wrong with tenancy units for the scope, or None."""
        ...

    def view(self, message: pb.Resource) -> R_co:
        """A message that a cache holds, as user code sees it."""
        ...
