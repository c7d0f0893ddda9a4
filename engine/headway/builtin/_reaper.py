"""The reaper: deletes what a deleted owner owned, then the owner's tombstone.

A tombstone is stored by the very commit that removes an owner, and nothing can be created with an owner that isn't
there. So what is listed once can only become less, whoever is interrupted and wherever: a run that begins finds the
tombstones that are left, and goes on. What a child owned is found by the child's own tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway.builtin._remover import Remover
from headway.builtin._sweep import sweep
from headway.controller import App, Request, RequeueAfter, Runtime, requeue_after
from headway.errors import FailedPrecondition
from headway.queue import Backoff
from headway.resource import TOMBSTONE, Resource, ResourceType, Tombstone, resource_id

LOOK_AGAIN = 5.0
"""Seconds between two looks while finalizers hold what is left, or its type is not registered."""


def add_reaper(app: App, types: Iterable[ResourceType[Any]] = ()) -> None:
    """Declare the controller. ``types`` are all that the engine knows."""
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
    """Delete what the owner owned, as far as it can be deleted; when nothing is left, the tombstone."""
    owner = resource_id(tombstone.data.owner)
    await sweep(rt.client, await rt.client.list_by_owner(owner))
    if await rt.client.list_by_owner(owner):
        return requeue_after(LOOK_AGAIN)
    try:
        await rt.client.delete(tombstone)
    except FailedPrecondition:
        # Something is left that this program has no type for. Another one, or the next start, may have.
        return requeue_after(LOOK_AGAIN)
    return None
