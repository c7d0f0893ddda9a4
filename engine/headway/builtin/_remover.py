"""The remover: removes what is marked for deletion once its last finalizer has gone.

The write that takes the last finalizer stores a `Removal` in the same commit. So nothing is missed, whoever wrote it
and whatever ends in between, and this controller holds nothing but what it still has to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import trio

from headway.controller import App, Request, RequeueAfter, Runtime, requeue_after
from headway.errors import Conflict, FailedPrecondition
from headway.queue import Backoff
from headway.resource import REMOVAL, ResourceType, resource_id

GRACE = 1.0
"""Seconds that the owner of the last finalizer has to delete the resource itself, as clients made for Consul do."""

LOOK_AGAIN = 0.2
"""Seconds until the next attempt where another write came in between."""

LOOK_AGAIN_RARELY = 5.0
"""Seconds between two looks at what can't be removed now: its type is not registered, or it stands for others."""

Reconciler = Callable[[Runtime, Request], Awaitable[RequeueAfter | None]]


def add_remover(app: App, types: Iterable[ResourceType[Any]]) -> None:
    """Declare the controller. ``types`` are all that the engine knows."""
    known = {type.name: type for type in types}
    # When each may be removed, by Trio's clock. A process that starts waits anew.
    due: dict[str, float] = {}

    async def remove(rt: Runtime, request: Request) -> RequeueAfter | None:
        name = request.id.name
        removal = rt.cache.get(REMOVAL, request.id)
        if removal is None:
            due.pop(name, None)
            return None
        now = trio.current_time()
        if due.setdefault(name, now + GRACE) > now:
            return requeue_after(due[name] - now)
        id = resource_id(removal.data.resource)
        type = known.get(id.type)
        if type is None:
            return requeue_after(LOOK_AGAIN_RARELY)
        resource = await rt.client.get(type, id)
        if resource is None or not resource.is_deleting or resource.finalizers:
            await rt.client.delete(removal)
            return None
        try:
            await rt.client.delete(resource, version=resource.version)
        except Conflict:
            return requeue_after(LOOK_AGAIN)
        except FailedPrecondition:
            return requeue_after(LOOK_AGAIN_RARELY)
        return None

    app.controller(manages=REMOVAL, concurrency=4, backoff=Backoff(0.05, 30.0), name="remover")(remove)
