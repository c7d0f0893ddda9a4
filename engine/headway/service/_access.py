"""The checks of what a caller may do, which the service makes before it reveals whether a resource exists."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from headway.api import ProgramFailed, ProgramFailedLate, error_of, row_of
from headway.errors import HeadwayError, InvalidArgument, PayloadError, PermissionDenied
from headway.resource import (
    Key,
    Kind,
    Registry,
    Resource,
    ResourceId,
    ResourceType,
    TypeName,
    is_marked,
    pb,
    resource_id,
)
from headway.service._refusals import authorizer_failed
from headway.storage import Fence, Within, lease_of

Answer = TypeVar("Answer")


def ask(question: Callable[..., Answer], *about: object) -> Answer:
    """Return the authorizer's answer. An authorizer that raises is a failure of the service, not of the request.

    A PayloadError about a resource passes through: the authorizer has read a payload that does not decode.
    """
    try:
        return question(*about)
    except ProgramFailed:
        raise
    except Exception as error:
        if isinstance(error, PayloadError) and any(isinstance(each, Resource) for each in about):
            raise
        raise authorizer_failed(error) from error


RIGHTS = "#"
"""It separates the versions in a position from the digest of the caller's rights."""

_DIGEST = 16
"""The number of characters of the digest."""


class Decision(enum.Enum):
    """An authorizer's answer to a read."""

    ALLOWED = enum.auto()
    DENIED = enum.auto()
    NEEDS_RESOURCE = enum.auto()
    """The answer depends on the content of the resource. The service asks again with the resource."""

    def __bool__(self) -> bool:
        raise TypeError("a Decision is neither true nor false: compare it, as in `is Decision.ALLOWED`")


class Permissions(Protocol):
    """The permissions of the caller of the current request. An implementation is made for one caller.

    The service calls these methods after it has checked the names in a request, and before it checks further fields,
    runs hooks or reads the store. So a refusal reveals nothing about stored resources. The methods must not block.

    An implementation whose answers may change between two requests also has ``rights_to_read(type: TypeName) -> str``.
    It returns a text that changes whenever `may_read` may answer otherwise for a resource of the type, and that reveals
    nothing else. A watch under other rights than before then begins with a snapshot.

    An implementation that gives everyone a permission on some types also has ``may_ask(type: TypeName) -> bool``. It
    returns what `may_know` does, and True for these types, so that calls for their resources are not refused.
    """

    def may_know(self, type: TypeName) -> bool:
        """Return True if the caller has any permission on a type of this name, registered or not.

        For a caller without any, every verb refuses a registered type in the same words as an unregistered one.
        """
        ...

    def may_read(self, id: ResourceId, resource: Resource[Any] | None) -> Decision:
        """Decide whether the caller may read the resource, at first by its id alone.

        When called again with the resource, NEEDS_RESOURCE counts as a denial.
        """
        ...

    def may_write(self, id: ResourceId, resource: Resource[Any] | None) -> bool:
        """Return True if the caller may write it. ``resource`` is the given one, or None for a status.

        If a mutate hook has changed the resource, this is called again with the result.
        """
        ...

    def may_delete(self, id: ResourceId) -> bool:
        """Return True if the caller may delete it, or mark it for deletion by a write."""
        ...

    def may_take_lease(self, name: str) -> bool:
        """Return True if the caller may acquire the lease of this name, and so write under the fence it governs."""
        ...

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:
        """Return True if the caller may list and watch the type there; ``*`` is any.

        In addition, `may_read` is called for each resource.
        """
        ...


class Sight(NamedTuple):
    """Whether a caller may read a resource, and whether the content of the resource decides that."""

    visible: bool
    by_content: bool


_SEEN, _UNSEEN = Sight(visible=True, by_content=False), Sight(visible=False, by_content=False)
_SHOWN, _HIDDEN = Sight(visible=True, by_content=True), Sight(visible=False, by_content=True)


class AccessChecks:
    """The checks that a verb makes of its caller's permissions. Without permissions everything is allowed.

    Attributes:
        registry: the types of the service.
        restricted: True if there are permissions, so that something may be denied.
        caller_name: the caller as the journal names it, such as ``token ada``; empty if everyone may do everything.
        privileged: True for Headway's own controllers. Rules of extensions may refuse to others what these write.
        rules: the rules of extensions for writes.
    """

    def __init__(
        self,
        permissions: Permissions | None,
        registry: Registry,
        *,
        privileged: bool = False,
        rules: Sequence[WriteRules] = (),
    ) -> None:
        self.privileged, self.rules = privileged, rules
        self._permissions = permissions
        self.registry = registry
        self.restricted = permissions is not None
        self.caller_name: str = getattr(permissions, "caller_name", "")

    def contained(self, type: TypeName, versions: str) -> str:
        """Return what a list or a watch of the type contains, in the format of a position.

        It is the versions, and a digest of the caller's rights to read. A watch that resumed under other rights would
        lack the resources that have become visible, and keep those that no longer are.
        """
        rights = getattr(self._permissions, "rights_to_read", None)
        return versions if rights is None else f"{versions}{RIGHTS}{ask(rights, type)[:_DIGEST]}"

    def check_known(self, type: TypeName) -> None:
        """Refuse a caller without any permission on a type of this name, registered or not."""
        permissions = self._permissions
        if permissions is not None and not ask(getattr(permissions, "may_ask", permissions.may_know), type):
            raise PermissionDenied(f"permission denied: none of your rules covers type {type}")

    def check_any_known(self) -> None:
        """Refuse a caller without any permission on any type of this server."""
        if self.restricted and not any(self.knows(type.name) for type in self.registry):
            raise PermissionDenied("permission denied: none of your rules covers a type of this server")

    def knows(self, type: TypeName) -> bool:
        """Return True if the caller has any permission on a type of this name."""
        return self._permissions is None or ask(self._permissions.may_know, type)

    def check_read(self, id: pb.Id) -> None:
        """Refuse a caller who may not read this id, whether or not the resource exists."""
        if self._permissions is not None:
            name = resource_id(id)
            if ask(self._permissions.may_read, name, None) is Decision.DENIED:
                raise PermissionDenied(f"permission denied: you may not read {name}")

    def check_write(self, id: pb.Id, resource: pb.Resource | None) -> None:
        """Refuse a caller who may not write this id, whether or not the resource exists."""
        if self._permissions is not None:
            name = resource_id(id)
            view = None if resource is None else self.registry.resolve(name.type).view(resource)
            try:
                allowed = ask(self._permissions.may_write, name, view)
            except PayloadError as error:
                raise InvalidArgument(f"resource.data of {name}: {error}") from None
            if not allowed:
                raise PermissionDenied(f"permission denied: you may not write {name}")

    def may_write(self, stored: pb.Resource) -> bool:
        """Return True if the caller may write this stored resource as it is."""
        if self._permissions is None:
            return True
        name = resource_id(stored.id)
        try:
            return ask(self._permissions.may_write, name, self.registry.resolve(name.type).view(stored))
        except PayloadError:
            return False

    def check_read_all(self, type: TypeName, partition: str, namespace: str, field: str) -> None:
        """Refuse a caller who may not read all resources of the type there. ``field`` asks for it."""
        if self._permissions is not None:
            everything = ResourceId(type, "", partition, namespace)
            if ask(self._permissions.may_read, everything, None) is not Decision.ALLOWED:
                raise PermissionDenied(f"permission denied: {field}: you may not read all of {type} there")

    def may_delete(self, id: pb.Id) -> bool:
        """Return True if the caller may delete the resource with this id."""
        return self._permissions is None or ask(self._permissions.may_delete, resource_id(id))

    def check_delete(self, id: pb.Id) -> None:
        """Refuse a caller who may not delete this id, whether or not the resource exists."""
        if not self.may_delete(id):
            raise PermissionDenied(f"permission denied: you may not delete {resource_id(id)}")

    def check_marking(self, id: pb.Id, stored: pb.Resource | None) -> None:
        """Refuse a caller who marks a resource for deletion without the right to delete it.

        Marking a resource deletes it. A write that only repeats a stored mark deletes nothing, if the caller may read
        the mark.
        """
        if stored is None or not is_marked(stored.metadata) or not self.shows(stored):
            self.check_delete(id)

    def check_fence(self, fence: Fence | None) -> None:
        """Refuse a write under a fence whose lease the caller may not acquire, whether or not the fence exists.

        Otherwise the answer would reveal the state of the fence.
        """
        if fence is not None and self._permissions is not None:
            lease = lease_of(fence.controller, fence.member)
            if not ask(self._permissions.may_take_lease, lease):
                raise PermissionDenied(f"permission denied: you may not acquire lease {lease}")

    def check_list(self, type: TypeName, within: Within, verb: str = "list") -> None:
        """Refuse a caller who may not list the type there. ``verb`` says what the caller does: list or watch."""
        permissions = self._permissions
        if permissions is not None and not ask(permissions.may_list, type, within.partition, within.namespace):
            raise PermissionDenied(f"permission denied: you may not {verb} {type} there")

    def shows(self, resource: pb.Resource) -> bool:
        """Return True if the caller may read this existing resource."""
        return self._permissions is None or self.sight(resource).visible

    def sight(self, resource: pb.Resource) -> Sight:
        """Return whether the caller may read this existing resource, and whether its content decides that."""
        if self._permissions is None:
            return _SEEN
        name = resource_id(resource.id)
        decision = ask(self._permissions.may_read, name, None)
        if decision is not Decision.NEEDS_RESOURCE:
            return _SEEN if decision is Decision.ALLOWED else _UNSEEN
        if name.type not in self.registry:
            return _UNSEEN
        try:
            decision = ask(self._permissions.may_read, name, self.registry.resolve(name.type).view(resource))
        except PayloadError:
            # The stored payload does not decode, so the authorizer cannot decide whether this caller may read it.
            return _HIDDEN
        return _SHOWN if decision is Decision.ALLOWED else _HIDDEN

    def may_show(self, type: TypeName, key: Key) -> bool:
        """Return True if the caller may read a resource with this key, at least if it has the right content."""
        partition, namespace, name = key
        id = ResourceId(type, name, partition, namespace)
        return self._permissions is None or ask(self._permissions.may_read, id, None) is not Decision.DENIED

    def may_read(self, id: pb.Id) -> bool:
        """Return True if the caller may read this id, whatever the resource contains."""
        return self._permissions is None or ask(self._permissions.may_read, resource_id(id), None) is Decision.ALLOWED

    def answered(self, stored: pb.Resource, own: pb.Resource) -> pb.Resource:
        """Return the part of a stored resource that a write's reply may contain.

        A caller who may read the resource gets all of it. Other callers get its id, version and generation, and what
        they wrote themselves (``own``).
        """
        try:
            if self.shows(stored):
                return stored
        except ProgramFailed as failed:
            # The write is stored, so the error must not say that nothing was written.
            raise ProgramFailedLate(str(failed), failed.cause) from failed.cause
        return pb.Resource(
            id=stored.id,
            owner=own.owner,
            version=stored.version,
            generation=stored.generation,
            metadata=own.metadata,
            status=own.status,
            data=own.data,
        )

    def redact(self, refused: HeadwayError, stored: pb.Resource) -> None:
        """Raise a refusal caused by a stored resource without its details, if the caller may not read the resource."""
        row = row_of(refused)
        # The base error of its status, because a reason would tell more. Unavailable, for example, tells nothing.
        kind = None if row is None else error_of(row.code, None)
        if kind is not None and not self.shows(stored):
            text = f"{resource_id(stored.id)}: the stored resource forbids it, and you may not read it"
            raise kind(text) from None


class WriteRules:
    """Rules for what callers write, such as for one kind. Each method raises a `HeadwayError` to refuse.

    The methods are called after the caller's rights to the resource are checked: for the ``kinds``, or every kind if
    they are None, and for all kinds in partitions other than the default one. ``access.privileged`` is True for a write
    of Headway's own controllers.
    """

    kinds: frozenset[Kind] | None = None

    def check_key(self, access: AccessChecks, kind: Kind, key: Key) -> None:
        """Refuse a Write, a WriteStatus or a Delete of a resource with this key, whatever it contains."""

    def admit(self, access: AccessChecks, type: ResourceType[Any], key: Key, resource: pb.Resource) -> None:
        """Refuse a resource as it is given, before its hooks, and before anything is read from the store."""

    def replace(
        self, access: AccessChecks, type: ResourceType[Any], key: Key, stored: pb.Resource, resource: pb.Resource
    ) -> None:
        """Refuse a resource in place of the stored one."""
