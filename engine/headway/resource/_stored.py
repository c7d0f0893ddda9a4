"""The base of every view of a stored resource: its id, owner, version and generation."""

from __future__ import annotations

from typing import Protocol

from headway._gen.headway.resource import v1 as pb
from headway.resource._ids import ResourceId, TypeName, is_marked, resource_id


class _Named(Protocol):
    @property
    def name(self) -> TypeName: ...


class Stored:
    """The common base class of `Resource` and `Projected`."""

    # Invariant: the store and caches share the message in `_message`. It is never changed.
    __slots__ = ("_message",)

    type: _Named
    _message: pb.Resource

    @property
    def carried_secrets(self) -> tuple[str | bytes, ...]:
        """Secret values that no field of the payload declares. Only projections have any, from their resources."""
        return ()

    @property
    def id(self) -> ResourceId:
        """The type, tenancy, name and, once stored, the uid."""
        id = self._message.id
        assert id is not None
        tenancy = id.tenancy
        if tenancy is None:
            return ResourceId(self.type.name, id.name, uid=id.uid)
        return ResourceId(self.type.name, id.name, tenancy.partition, tenancy.namespace, id.uid)

    @property
    def name(self) -> str:
        """The name, which is unique within the type and tenancy."""
        assert self._message.id is not None
        return self._message.id.name

    @property
    def uid(self) -> str:
        """The uid of this incarnation, assigned by the store. Empty before the resource is stored."""
        assert self._message.id is not None
        return self._message.id.uid

    @property
    def owner(self) -> ResourceId | None:
        """The owner: this resource is deleted with it. The owner can be set only at creation."""
        owner = self._message.owner
        return None if owner is None else resource_id(owner)

    @property
    def version(self) -> str:
        """The revision of the last change, in decimal. A write with a version succeeds only if it is current."""
        return self._message.version

    @property
    def generation(self) -> str:
        """The generation, which every Write changes and WriteStatus doesn't. A status records the one it observed."""
        return self._message.generation

    @property
    def is_deleting(self) -> bool:
        """True if the resource was marked for deletion when it was read, so that only its finalizers keep it stored."""
        return is_marked(self._message.metadata)


def shared_message(stored: Stored) -> pb.Resource:
    """Return the shared message of a resource. It must not be changed."""
    return stored._message
