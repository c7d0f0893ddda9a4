"""Who may do what: the questions that the service asks before it shows whether anything is there."""

from __future__ import annotations

import enum
from functools import partial
from typing import Any, Protocol

from grpclib import GRPCError

from headway.errors import PayloadError
from headway.resource import (
    Registry,
    Resource,
    ResourceId,
    TypeName,
    is_marked,
    pb,
    resource_id,
)
from headway.rpc import HandlerFault
from headway.service._ask import AUTHORIZER_FAILED, ask
from headway.service._refusals import denied, invalid, not_found
from headway.storage import Fence, Within, lease_of


class Decision(enum.Enum):
    """What an authorizer says of a read."""

    ALLOWED = enum.auto()
    DENIED = enum.auto()
    NEEDS_RESOURCE = enum.auto()
    """It depends on what the resource says; asked again with the resource."""


class Authorizer(Protocol):
    """Decides for the caller of the request that is being handled; who that is, it knows by itself.

    It is asked once the names in a request are found valid, and before any other work: before further fields are
    looked at, hooks run, or the store is read. Its answer tells nobody what there is. It must not wait.
    """

    def may_know(self, type: TypeName) -> bool:
        """Return True if the caller may do anything at all with a type of this name, registered or not.

        To other callers a registered type looks like one that isn't: every verb refuses both in the same words.
        """
        ...

    def may_read(self, id: ResourceId, resource: Resource[Any] | None) -> Decision:
        """Whether the resource may be read, by its id alone at first. With the resource NEEDS_RESOURCE is a denial."""
        ...

    def may_write(self, id: ResourceId, resource: Resource[Any] | None) -> bool:
        """Return True if the caller may write it. ``resource`` is as given, or None for a status.

        Where a mutate hook has changed what was given, this is asked again with the result.
        """
        ...

    def may_delete(self, id: ResourceId) -> bool:
        """Return True if the caller may delete it, or mark it for deletion by a write."""
        ...

    def may_take_lease(self, name: str) -> bool:
        """Return True if the caller may take the lease of this name, and so write under the fence that it governs."""
        ...

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:
        """Whether the type may be listed and watched there; ``*`` is any. Each resource is asked for besides."""
        ...


class Access:
    """What a verb asks of the authorizer. Without one everything is allowed.

    Args:
        mark: how the message of a failure begins. A verb that writes asks before its commit, and says so there.
    """

    def __init__(self, authorizer: Authorizer | None, registry: Registry, mark: str = "") -> None:
        self._authorizer = authorizer
        self._ask = partial(ask, mark=mark)
        self._registry = registry
        # Whether there is anything to ask.
        self.restricted = authorizer is not None

    def check_known(self, type: TypeName) -> None:
        """Refuse a caller who may do nothing with a type of this name, whether or not it is registered."""
        if not self.knows(type):
            raise denied(f"permission denied: no rule of yours is about type {type}")

    def knows(self, type: TypeName) -> bool:
        """Return True if the caller may do anything with a type of this name."""
        return self._authorizer is None or self._ask(self._authorizer.may_know, type)

    def check_read(self, id: pb.Id) -> None:
        """Refuse one who may not read what is called so, whether it is there or not."""
        if self._authorizer is not None:
            name = resource_id(id)
            if self._ask(self._authorizer.may_read, name, None) is Decision.DENIED:
                raise denied(f"{name} may not be read by you")

    def check_found(self, stored: pb.Resource, asked: str) -> None:
        """Refuse what may not be read for what it says, in the words for what isn't there."""
        if not self.shows(stored):
            raise not_found(asked)

    def check_write(self, id: pb.Id, resource: pb.Resource | None) -> None:
        """Refuse one who may not write what is called so, whether it is there or not."""
        if self._authorizer is not None:
            name = resource_id(id)
            view = None if resource is None else self._registry.resolve(name.type).view(resource)
            try:
                allowed = self._ask(self._authorizer.may_write, name, view)
            except PayloadError as error:
                raise invalid(f"resource.data of {name}: {error}") from None
            if not allowed:
                raise denied(f"{name} may not be written by you")

    def may_write(self, stored: pb.Resource) -> bool:
        """Return True if the caller may write a resource that is stored, as it is."""
        if self._authorizer is None:
            return True
        name = resource_id(stored.id)
        try:
            return self._authorizer.may_write(name, self._registry.resolve(name.type).view(stored))
        except PayloadError:
            return False

    def may_delete(self, id: pb.Id) -> bool:
        """Return True if the caller may delete what is called so."""
        return self._authorizer is None or self._ask(self._authorizer.may_delete, resource_id(id))

    def check_delete(self, id: pb.Id) -> None:
        """Refuse one who may not delete what is called so, whether it is there or not."""
        if not self.may_delete(id):
            raise denied(f"{resource_id(id)} may not be deleted by you")

    def check_marking(self, id: pb.Id, stored: pb.Resource | None) -> None:
        """Refuse one who may not delete it to mark what is stored, or nothing.

        To mark a resource is to delete it. A caller who carries along a mark that they may read deletes nothing.
        """
        if stored is None or not is_marked(stored.metadata) or not self.shows(stored):
            self.check_delete(id)

    def check_fence(self, fence: Fence | None) -> None:
        """Refuse a write under a fence whose lease the caller may not take, whether or not there is such a fence.

        What is answered tells where the fence stands.
        """
        if fence is not None and self._authorizer is not None:
            lease = lease_of(fence.controller, fence.member)
            if not self._ask(self._authorizer.may_take_lease, lease):
                raise denied(f"lease {lease} may not be taken by you")

    def check_list(self, type: TypeName, within: Within) -> None:
        """Refuse one who may not list a type there."""
        authorizer = self._authorizer
        if authorizer is not None and not self._ask(authorizer.may_list, type, within.partition, within.namespace):
            raise denied(f"{type} may not be listed there by you")

    def shows(self, resource: pb.Resource) -> bool:
        """Whether a resource that is there may be read."""
        if self._authorizer is None:
            return True
        name = resource_id(resource.id)
        decision = self._ask(self._authorizer.may_read, name, None)
        if decision is Decision.NEEDS_RESOURCE and name.type in self._registry:
            try:
                decision = self._ask(self._authorizer.may_read, name, self._registry.resolve(name.type).view(resource))
            except PayloadError:
                # What is stored does not decode, so that nobody can tell whether this caller may read it.
                return False
        return decision is Decision.ALLOWED

    def may_read(self, id: pb.Id) -> bool:
        """Return True if the caller may read what is called so, whatever it says."""
        return (
            self._authorizer is None or self._ask(self._authorizer.may_read, resource_id(id), None) is Decision.ALLOWED
        )

    def answered(self, stored: pb.Resource, own: pb.Resource) -> pb.Resource:
        """What a write's reply may hold: all of what is stored now, or, for who may not read it, which state it is in
        (its id, version and generation) and what is the writer's ``own``.
        """
        try:
            if not self.restricted or self.shows(stored):
                return stored
        except HandlerFault as fault:
            # The write is stored: without its mark, the failure leaves that open.
            raise HandlerFault(AUTHORIZER_FAILED, fault.cause) from fault.cause
        return pb.Resource(
            id=stored.id,
            owner=own.owner,
            version=stored.version,
            generation=stored.generation,
            metadata=own.metadata,
            status=own.status,
            data=own.data,
        )

    def redacted(self, refused: GRPCError, stored: pb.Resource) -> GRPCError:
        """A refusal for what is stored; for who may not read that, without what it says of it."""
        if self.shows(stored):
            return refused
        return GRPCError(
            refused.status, f"{resource_id(stored.id)}: what is stored forbids it, and may not be read by you"
        )
