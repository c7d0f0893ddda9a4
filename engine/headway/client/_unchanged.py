"""`Client.apply`, and the applies of a controller that need no call, because they would change nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from headway.api import Channel
from headway.client._create_apply import keep_stored, stored_already
from headway.client._writes import Writes
from headway.errors import Conflict, InvalidArgument, PayloadError
from headway.protobuf import Payload
from headway.resource import Resource, ResourceId, ResourceType, check_resource, pb, shared_message

T = TypeVar("T", bound=Payload)

Cached = Callable[[Resource[Any], float], "pb.Resource | None"]
"""A function that returns the cached state of a resource, whole and of the same incarnation.

It returns None if the cache has none, is not complete up to the given revision, or may not be relied on now.
"""

Same = Callable[[ResourceType[Any], pb.Resource, pb.Resource], bool]

_APPLY_ATTEMPTS = 8

IN_A_ROW = 8
"""The number of applies without a call after which other tasks run."""


class Unchanged:
    """Finds the applies that need no call.

    The state that is compared is never older than what the client has told its user: a user who has read a resource, or
    whose call was refused because of its state, would otherwise see an apply that ignores it. What a refused call has
    told is not known, so the next apply asks, and the answer gives its revision.
    """

    def __init__(self, cached: Cached) -> None:
        self._cached = cached
        self._read = 0.0
        # The calls that have failed so far, and how many of them had failed before a read that has been answered.
        self.failures = self._failures_before_read = 0
        self._in_a_row = 0

    def failed(self) -> None:
        """Note that a call has failed."""
        self.failures += 1

    def read(self, found: pb.Resource | None, at: pb.Position | None, failures: int) -> None:
        """Note what a read has found at a position: one resource, or many if it is None.

        ``failures`` is the number of calls that had failed when it began.
        """
        if at is None or found is None or failures > self._failures_before_read:
            self._read = max(self._read, math.inf if at is None else at.revision)
            self._failures_before_read = max(self._failures_before_read, failures)
        else:
            # Nothing is known of any other resource, whose type may be quiet and its cache far below the position.
            self._read = max(self._read, int(found.version))

    async def find(self, wanted: Resource[T], same: Same = keep_stored) -> Resource[T] | None:
        """Return the cached resource if an apply would change nothing, and None if the store has to be asked.

        ``same`` returns True if the stored resource is what the wanted one makes of it.
        """
        self._in_a_row += 1
        if self._in_a_row % IN_A_ROW:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        if self.failures > self._failures_before_read:
            return None
        stored = self._cached(wanted, self._read)
        try:
            found = stored is not None and same(wanted.type, stored, _draft(wanted))
        except PayloadError:
            # The apply reports it, if the store has it too.
            return None
        return Resource(wanted.type, stored) if found and stored is not None else None


def _draft(wanted: Resource[Any]) -> pb.Resource:
    """Return a resource as a message with metadata of its own. Its other parts are shared, and must not be changed."""
    its = shared_message(wanted)
    return wanted.changed(pb.Resource(id=its.id, owner=its.owner, metadata=dict(its.metadata), data=its.data))


class Applying:
    """The part of a client that applies."""

    _channel: Channel
    _writes: Writes | None
    _unchanged: Unchanged | None

    if TYPE_CHECKING:
        # Those of `Client`.
        async def get(self, type: ResourceType[T], id: str | ResourceId) -> Resource[T] | None: ...
        async def validate(self, resource: Resource[T]) -> Resource[T]: ...
        async def create(self, resource: Resource[T]) -> Resource[T]: ...
        async def write(self, resource: Resource[T]) -> Resource[T]: ...
        async def _write(
            self, type: ResourceType[T], message: pb.Resource, create_token: str = "", *, create_only: bool = False
        ) -> Resource[T]: ...

    async def apply(
        self,
        resource: Resource[T],
        *,
        fields: Iterable[str] | None = None,
        manager: str = "",
        force: bool = False,
    ) -> Resource[T]:
        """Create or update the stored resource so that its data and metadata match. Write nothing if they already do.

        Only fields that the payload's class knows are compared; a newer program's fields are kept. Defaults from the
        type's mutate hook don't count as a difference. For such a type, the server is asked first.
        The owner is set only on creation. Finalizers and the deletion mark stay unless your metadata has its own.

        A controller's client makes no call if the controller's cache shows that they match. The cache then has all that
        this client has written, read or been refused for.

        Args:
            fields: apply only these fields, as their owner: paths such as ``"size"``, ``"spec.replicas"``,
                ``"labels.app"`` for an entry of a map, or ``"metadata:tier"``. The type must have ``owned_fields``.
                Other fields stay as they are, except that those which the manager has owned and no longer lists are
                removed, unless they have another owner. Of the rest of ``resource``, only a new one gets the owner and
                the finalizers. If another manager owns a field with another value, FieldConflict is raised.
            manager: the name of the writer. Default: the controller, in a reconciler.
            force: take over the fields of other managers instead of raising FieldConflict.
        """
        check_resource(resource)
        if (own := resource.type.own_apply(self._channel)) is not None:
            same: Resource[T] = await own(self, resource, fields=fields, manager=manager, force=force)
            return same
        if fields is not None:
            from headway.fields import Applied, apply_fields

            fence = None if self._writes is None else self._writes.fence
            name = manager or ("" if fence is None else fence.controller)
            cached = None if self._unchanged is None else self._unchanged.find
            return await apply_fields(self, cached, Applied(resource, fields, name, force=force))
        if (manager or force) and not resource.type.foreign:
            raise InvalidArgument("manager and force mean the owner of fields: pass the fields, such as ['size'], too")
        if self._unchanged is not None and (found := await self._unchanged.find(resource)) is not None:
            return found
        type, wanted = resource.type, resource.message()
        wanted.version = ""
        for _ in range(_APPLY_ATTEMPTS):
            current = await self.get(type, resource.id)
            try:
                return await self.apply_over(current, Resource(type, wanted))
            except Conflict:
                continue
        raise Conflict(f"{resource.id} kept being changed by others while it was applied")

    async def apply_over(self, current: Resource[T] | None, wanted: Resource[T]) -> Resource[T]:
        """Apply over a ``current`` state that you have just read, or None if there was none.

        Raises Conflict if it has changed since then; AlreadyExists, which is a Conflict, if it was None.
        """
        check_resource(wanted)
        if (own := wanted.type.own_apply(self._channel)) is not None:
            applied: Resource[T] = await own(self, wanted, fields=None, manager="", force=False)
            return applied
        type, message = wanted.type, wanted.message()
        # The version and status that came with the wanted resource must not be written.
        message.version, message.status = "", {}
        if current is None:
            # Another writer may have created one since then, which has another uid.
            return await self._write(type, message, create_only=not wanted.id.uid)
        check_resource(current)
        current = current.original()
        stored = current.message()
        if await stored_already(self.validate, type, stored, message):
            return current
        message.version = stored.version
        return await self._write(type, message)
