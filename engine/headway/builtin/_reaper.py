"""The reaper, which deletes the resources of a deleted owner, and then the owner's tombstone.

The commit that removes an owner also stores a tombstone, and nothing can be created with an owner that does not exist.
The set of owned resources can therefore only shrink, whatever is interrupted. A new run finds the remaining tombstones
and continues. Resources that a child owned are found through the child's own tombstone.

An owner that is only marked for deletion may lose its last finalizer in a write. That write also stores, in the same
commit, a tombstone that awaits the removal of the owner itself. Nothing is missed, whatever writer it was and whatever
is interrupted, and only pending removals are stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from headway.client import Client
from headway.controller import App
from headway.errors import Conflict, FailedPrecondition, Fenced, HeadwayError, InvalidArgument, Unavailable
from headway.queue import Backoff
from headway.reconcile import Request, RequeueAfter, Runtime, requeue_after
from headway.resource import TOMBSTONE, Kind, Resource, ResourceId, ResourceType, Tombstone, resource_id

GRACE = 1.0
"""The time, in seconds, in which the owner of the last finalizer may delete the resource, as Consul's clients do."""

AFTER_CONFLICT = 0.2
"""The delay, in seconds, before the next attempt after a concurrent write."""

LOOK_AGAIN = 5.0
"""The delay, in seconds, before another attempt while others depend on a resource, or a type is not registered."""

REST = 20
"""How many times as long as a look has taken the next one waits, if that is more than its delay."""

LONGEST_REST = 60.0
"""The maximum of that, in seconds: a look may also have taken long because the store was slow."""


def look_again(delay: float, began: float) -> RequeueAfter:
    """Return when to look again, after a look that began at this time of Trio's clock.

    Finalizers may hold very many resources for ever. A look lists all of them, so the more there are, the rarer it is.
    """
    return requeue_after(max(delay, min(REST * (trio.current_time() - began), LONGEST_REST)))


async def sweep(client: Client, resources: Iterable[Resource[Any]]) -> None:
    """Delete each resource by its uid, whether or not it has changed. Those with finalizers are marked for deletion.

    If some could not be deleted, raise Unavailable at the end, naming the first. Raise Fenced at once.
    """
    failed: list[tuple[Resource[Any], HeadwayError]] = []
    for resource in resources:
        if resource.is_deleting and resource.finalizers:
            continue
        try:
            await client.delete(resource)
        except Fenced:
            raise
        except HeadwayError as error:
            failed.append((resource, error))
    if failed:
        resource, first = failed[0]
        raise Unavailable(f"{len(failed)} resources could not be deleted, the first {resource.id}: {first}") from first


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
            return requeue_after(LOOK_AGAIN)
        try:
            if resource is None or not resource.is_deleting or resource.finalizers:
                await rt.client.delete(pending)
            else:
                # The same commit removes the pending tombstone.
                await rt.client.delete(resource, version=resource.version)
        except Conflict:
            return requeue_after(AFTER_CONFLICT)
        except FailedPrecondition:
            return requeue_after(LOOK_AGAIN)
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


def add_reaper(app: App, types: Iterable[ResourceType[Any]] = ()) -> None:
    """Declare the controller. ``types`` are all types that the engine knows."""
    remover = Remover(types)

    async def reap(rt: Runtime, request: Request) -> RequeueAfter | None:
        tombstone = rt.cache.get(TOMBSTONE, request.id)
        if tombstone is None:
            remover.forget(request.id.name)
            return None
        if tombstone.data.awaits_removal:
            return await remover.remove(rt, tombstone)
        return await _reap(rt, tombstone)

    app.controller(manages=TOMBSTONE, concurrency=4, backoff=Backoff(0.05, 30.0), name="reaper")(reap)


async def _reap(rt: Runtime, tombstone: Resource[Tombstone]) -> RequeueAfter | None:
    """Delete what the owner owned, as far as possible. If nothing is left, delete the tombstone."""
    owner = resource_id(tombstone.data.owner)
    await sweep(rt.client, await rt.client.list_by_owner(owner))
    began = trio.current_time()
    if await rt.client.list_by_owner(owner):
        return look_again(LOOK_AGAIN, began)
    try:
        await rt.client.delete(tombstone)
    except FailedPrecondition:
        # Resources of a type that this program does not know are left. Another program, or a later start, may know it.
        return requeue_after(LOOK_AGAIN)
    return None
