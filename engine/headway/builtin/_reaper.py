"""The reaper, which deletes the resources of a deleted owner, and then the owner's tombstone.

The commit that removes an owner also stores a tombstone, and nothing can be created with an owner that does not exist.
The set of owned resources can therefore only shrink, whatever is interrupted. A new run finds the remaining tombstones
and continues. Resources that a child owned are found through the child's own tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway.builtin._remover import Remover
from headway.builtin._sweep import sweep
from headway.controller import App
from headway.errors import FailedPrecondition
from headway.queue import Backoff
from headway.reconcile import Request, RequeueAfter, Runtime, requeue_after
from headway.resource import TOMBSTONE, Resource, ResourceType, Tombstone, resource_id

LOOK_AGAIN = 5.0
"""The delay, in seconds, before another attempt while finalizers hold resources, or their type is not registered."""


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
    if await rt.client.list_by_owner(owner):
        return requeue_after(LOOK_AGAIN)
    try:
        await rt.client.delete(tombstone)
    except FailedPrecondition:
        # Resources of a type that this program does not know are left. Another program, or a later start, may know it.
        return requeue_after(LOOK_AGAIN)
    return None
