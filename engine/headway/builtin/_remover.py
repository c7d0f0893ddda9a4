"""The remover, a part of the reaper for owners that still exist, marked for deletion and without finalizers.

The write that removes the last finalizer also stores, in the same commit, a tombstone that awaits the removal. Nothing
is missed, whatever writer it was and whatever is interrupted, and only pending removals are stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from headway.errors import Conflict, FailedPrecondition, InvalidArgument
from headway.reconcile import RequeueAfter, Runtime, requeue_after
from headway.resource import Kind, Resource, ResourceId, ResourceType, Tombstone, resource_id

GRACE = 1.0
"""The time, in seconds, in which the owner of the last finalizer may delete the resource, as Consul's clients do."""

LOOK_AGAIN = 0.2
"""The delay, in seconds, before the next attempt after a concurrent write."""

LOOK_AGAIN_RARELY = 5.0
"""The delay, in seconds, before another attempt if a resource's type is unregistered or others depend on it."""


class Remover:
    """The remover of resources that have a pending tombstone. ``types`` are all types that the engine knows."""

    def __init__(self, types: Iterable[ResourceType[Any]]) -> None:
        self._versions: dict[Kind, list[ResourceType[Any]]] = {}
        for type in types:
            self._versions.setdefault(type.kind, []).append(type)
        # When each may be removed, on Trio's clock. After a restart, the process waits again.
        self._due: dict[str, float] = {}

    def forget(self, name: str) -> None:
        """Forget a tombstone that no longer exists."""
        self._due.pop(name, None)

    async def remove(self, rt: Runtime, pending: Resource[Tombstone]) -> RequeueAfter | None:
        """Remove a tombstone's resource, by uid and version, once it is due."""
        now = trio.current_time()
        due = self._due.setdefault(pending.name, now + GRACE)
        if due > now:
            return requeue_after(due - now)
        try:
            resource = await self._read(rt, resource_id(pending.data.owner))
        except InvalidArgument:
            return requeue_after(LOOK_AGAIN_RARELY)
        try:
            if resource is None or not resource.is_deleting or resource.finalizers:
                await rt.client.delete(pending)
            else:
                # The same commit removes the pending tombstone.
                await rt.client.delete(resource, version=resource.version)
        except Conflict:
            return requeue_after(LOOK_AGAIN)
        except FailedPrecondition:
            return requeue_after(LOOK_AGAIN_RARELY)
        return None

    async def _read(self, rt: Runtime, id: ResourceId) -> Resource[Any] | None:
        """Return a resource in any version of its kind. Raises InvalidArgument if no declared version is suitable.

        Since the tombstone was stored, the resource may have been stored in another version, and the program may no
        longer declare its earlier version.
        """
        versions = self._versions.get(id.type.unversioned, [])
        for type in sorted(versions, key=lambda each: each.name != id.type):
            try:
                return await rt.client.get(
                    type, type.id(id.name, partition=id.partition, namespace=id.namespace, uid=id.uid)
                )
            except InvalidArgument:
                # It is stored in a version that no converter connects with this one.
                continue
        raise InvalidArgument(f"no version of {id.type} that this program declares can be read")
