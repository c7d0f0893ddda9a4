"""What a resource says of itself, whether all of it is at hand or a part."""

from __future__ import annotations

from typing import Protocol

from headway._gen.headway.resource import v1 as pb
from headway.resource import _markers
from headway.resource._ids import ResourceId, TypeName, resource_id


class _Named(Protocol):
    @property
    def name(self) -> TypeName: ...


class Stored:
    """What a `Resource` and a projection of one have in common."""

    # Invariant: the object behind `_message` is shared (with the store, with caches) and never written to.
    __slots__ = ("_message",)

    type: _Named
    _message: pb.Resource

    @property
    def id(self) -> ResourceId:
        """Type, tenancy, name and (once stored) uid."""
        id = self._message.id
        assert id is not None
        tenancy = id.tenancy
        if tenancy is None:
            return ResourceId(self.type.name, id.name, uid=id.uid)
        return ResourceId(self.type.name, id.name, tenancy.partition, tenancy.namespace, id.uid)

    @property
    def name(self) -> str:
        """The name within type and tenancy."""
        assert self._message.id is not None
        return self._message.id.name

    @property
    def uid(self) -> str:
        """The incarnation, assigned by the store; empty before."""
        assert self._message.id is not None
        return self._message.id.uid

    @property
    def owner(self) -> ResourceId | None:
        """The resource with which this one is deleted; set at creation only."""
        owner = self._message.owner
        return None if owner is None else resource_id(owner)

    @property
    def version(self) -> str:
        """The decimal revision of the last change; a write that carries it happens only if it is still stored."""
        return self._message.version

    @property
    def generation(self) -> str:
        """Changes with every Write and no WriteStatus; a status says which one it has seen."""
        return self._message.generation

    @property
    def is_deleting(self) -> bool:
        """Whether it has been deleted and only finalizers still hold it, as it was when it was read."""
        return _markers.is_marked(self._message.metadata)


def shared_message(stored: Stored) -> pb.Resource:
    """The shared message behind a resource, to read only."""
    return stored._message  # the same module's
