"""The reaper: deletes what a deleted owner owned, then the owner's tombstone.

A tombstone is stored by the very commit that removes an owner, and nothing can be created with an owner that isn't
there. So what is listed once can only become less, whoever is interrupted and wherever: a run that begins finds the
tombstones that are left, and goes on. What a child owned is found by the child's own tombstone.
"""

from __future__ import annotations

from headway.builtin._sweep import sweep
from headway.controller import App, Request, RequeueAfter, Runtime, requeue_after
from headway.errors import FailedPrecondition
from headway.queue import Backoff
from headway.resource import TOMBSTONE, resource_id

LOOK_AGAIN = 5.0
"""Seconds between two looks while finalizers hold what is left, or its type is not registered."""


def add_reaper(app: App) -> None:
    """Declare the controller."""
    app.controller(manages=TOMBSTONE, concurrency=4, backoff=Backoff(0.05, 30.0), name="reaper")(reap)


async def reap(rt: Runtime, request: Request) -> RequeueAfter | None:
    """Delete what the owner owned, as far as it can be deleted; when nothing is left, the tombstone."""
    tombstone = rt.cache.get(TOMBSTONE, request.id)
    if tombstone is None:
        return None
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
