"""The base of every view of a stored resource: its id, owner, version and generation."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol, SupportsIndex

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


AT_WORK: dict[str, list[LooksAtStatuses]] = {}
"""The reconciles in progress in this process, by the names of their resources. Only the workers change it."""


def end_work(name: str, work: LooksAtStatuses) -> None:
    """Remove a reconcile that has ended."""
    works = AT_WORK[name]
    works.remove(work)
    if not works:
        del AT_WORK[name]


class AnyWork:
    """A receiver of looks that passes them to all reconciles in progress, because any of them may have asked for them.

    A reconcile may ask a task that it has not started, or a thread. Any thread may call the methods.
    """

    def look(self, at: Stored) -> None:
        """Note that the status or the version of a resource has been read, or all of it."""
        for work in tuple(AT_WORK.get(at.name, ())):
            work.look(at)

    def look_at_all(self, kind: Kind) -> None:
        """Note that something has been read that the statuses of all resources of a kind determine."""
        for works in tuple(AT_WORK.values()):
            for work in tuple(works):
                work.look_at_all(kind)


ANY_WORK = AnyWork()

LOOKING: ContextVar[LooksAtStatuses | None] = ContextVar("headway.looking", default=ANY_WORK)
"""The receiver of the looks of the current task; None if no reconcile depends on them.

Set once in each worker's task. The tasks that a reconcile starts inherit it.
"""


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

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        look_at(self)
        return super().__reduce_ex__(protocol)


def look_at(stored: Stored) -> None:
    """Note that the current task looks at what the write of a status changes in a resource."""
    if AT_WORK and (looking := LOOKING.get()) is not None:
        looking.look(stored)


def shared_message(stored: Stored) -> pb.Resource:
    """Return the shared message of a resource. It must not be changed."""
    return stored._message
