"""The base of every view of a stored resource: its id, owner, version and generation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from headway._gen.headway.resource import v1 as pb
from headway.resource._ids import Kind, ResourceId, TypeName, is_marked, resource_id


class _Named(Protocol):
    @property
    def name(self) -> TypeName: ...


class LooksAtStatuses(Protocol):
    """A receiver of the looks at what the write of a status changes."""

    def look(self, at: Stored) -> None:
        """Note that the status or the version of a resource has been read, or all of it."""
        ...

    def look_at_all(self, kind: Kind) -> None:
        """Note that something has been read that the statuses of all resources of a kind determine."""
        ...


LOOKING: ContextVar[LooksAtStatuses | None] = ContextVar("headway.looking", default=None)
"""The receiver of the looks at what the current task reads; None if no reconcile depends on them.

Set once in each worker's task. The tasks that a reconcile starts inherit it. A resource keeps the receiver of the task
that has read it, so a look counts in whatever task or thread it happens.
"""


@contextmanager
def unseen() -> Iterator[None]:
    """Keep what is read in this block from counting as looks of the current task."""
    looking = LOOKING.set(None)
    try:
        yield
    finally:
        LOOKING.reset(looking)


class Stored:
    """The common base class of `Resource` and `Projected`."""

    # Invariant: the store and caches share the message in `_message`. It is never changed.
    __slots__ = ("_looking", "_message")

    type: _Named
    _message: pb.Resource
    _looking: LooksAtStatuses | None

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
        # A call of the class would run a function of Python.
        return tuple.__new__(ResourceId, (self.type.name, id.name, tenancy.partition, tenancy.namespace, id.uid))

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
        look_at(self)
        return self._message.version

    @property
    def generation(self) -> str:
        """The generation, which every Write changes and WriteStatus doesn't. A status records the one it observed."""
        return self._message.generation

    @property
    def is_deleting(self) -> bool:
        """True if the resource was marked for deletion when it was read, so that only its finalizers keep it stored."""
        return is_marked(self._message.metadata)

    def __getstate__(self) -> object:
        # Of a copy, or of a pickle, nothing is known: making it is a look.
        look_at(self)
        slots: dict[str, Any] = super().__getstate__()[1]  # type: ignore[index]
        return None, {**slots, "_looking": None}


def look_at(stored: Stored) -> None:
    """Note a look at what the write of a status changes in a resource."""
    if (looking := stored._looking) is not None:
        looking.look(stored)


def request_id(stored: Stored) -> pb.Id:
    """Return the id of a resource for a request, which the service may complete. It shares its parts."""
    its = shared_id(stored)
    return pb.Id(uid=its.uid, name=its.name, type=its.type, tenancy=its.tenancy)


def shared_id(stored: Stored) -> pb.Id:
    """Return the id of a resource as a wire message, which must not be changed."""
    id = stored._message.id
    if id is None or id.tenancy is None or id.type is None or id.type.group_version != stored.type.name.version:
        return stored.id.message()
    return id


def shared_message(stored: Stored) -> pb.Resource:
    """Return the shared message of a resource. It must not be changed."""
    return stored._message
