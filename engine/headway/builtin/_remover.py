"""The remover: the reaper's part for owners that are still there, marked for deletion and held by no finalizer.

The write that takes the last finalizer stores a tombstone that awaits the removal in the same commit. So nothing is
missed, whoever wrote it and whatever ends in between, and nothing is held here but what is still to be done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from headway.controller import RequeueAfter, Runtime, requeue_after
from headway.errors import Conflict, FailedPrecondition, InvalidArgument
from headway.resource import Kind, Resource, ResourceId, ResourceType, Tombstone, resource_id

GRACE = 1.0
"""Seconds that the owner of the last finalizer has to delete the resource itself, as clients made for Consul do."""

LOOK_AGAIN = 0.2
"""Seconds until the next attempt where another write came in between."""

LOOK_AGAIN_RARELY = 5.0
"""Seconds between two looks at what can't be removed now: its type is not registered, or it stands for others."""


class Remover:
    """Removes what tombstones say. ``types`` are all that the engine knows."""

    def __init__(self, types: Iterable[ResourceType[Any]]) -> None:
        self._versions: dict[Kind, list[ResourceType[Any]]] = {}
        for type in types:
            self._versions.setdefault(type.kind, []).append(type)
        # When each may be removed, by Trio's clock. A process that starts waits anew.
        self._due: dict[str, float] = {}

    def forget(self, name: str) -> None:
        """A tombstone has gone."""
        self._due.pop(name, None)

    async def remove(self, rt: Runtime, pending: Resource[Tombstone]) -> RequeueAfter | None:
        """Remove the resource that a tombstone stands for, once its time has come, by uid and version."""
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
                # The pending tombstone goes by the same commit.
                await rt.client.delete(resource, version=resource.version)
        except Conflict:
            return requeue_after(LOOK_AGAIN)
        except FailedPrecondition:
            return requeue_after(LOOK_AGAIN_RARELY)
        return None

    async def _read(self, rt: Runtime, id: ResourceId) -> Resource[Any] | None:
        """Return a resource in any version of its kind. Raises InvalidArgument if this program knows none that fits.

        Since the tombstone was stored, the resource may have become another version, and its former one is perhaps no
        longer declared.
        """
        versions = self._versions.get(id.type.unversioned, [])
        for type in sorted(versions, key=lambda each: each.name != id.type):
            try:
                return await rt.client.get(
                    type, type.id(id.name, partition=id.partition, namespace=id.namespace, uid=id.uid)
                )
            except InvalidArgument:
                # It is stored as a version that no converter connects with this one.
                continue
        raise InvalidArgument(f"no version of {id.type} that this program declares can be read")
