"""Timers: a call for each resource, again and again.

A timer is a controller whose reconciler is called by changes too, and then only says when it is due: so a call is
bounded, retried and counted as a reconcile is, and a resource that waits costs no task.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

import trio

from headway.controller._request import Request, RequeueAfter
from headway.controller._runtime import Runtime
from headway.resource import Key

Timer = Callable[[Runtime, Any], Awaitable[None]]
"""Its resource is a `Resource` or, of a projection, a `Projected`."""


class Timers:
    """What is declared by `App.timer`."""

    def __init__(self, timer: Timer, every: float, jitter: float) -> None:
        self._timer = timer
        self._every = every
        self._jitter = jitter
        # For each run: which incarnation's next call is due when.
        self._due: WeakKeyDictionary[Runtime, dict[Key, tuple[str, float]]] = WeakKeyDictionary()

    async def reconcile(self, rt: Runtime, request: Request[Any]) -> RequeueAfter | None:
        """Call the timer if it is due."""
        due, key = self._due.setdefault(rt, {}), request.id.key
        resource = rt.cache.get(rt.cache.manages, request.id)
        if resource is None or resource.is_deleting:
            due.pop(key, None)
            return None
        uid, when = due.get(key, ("", 0.0))
        left = when - trio.current_time()
        if uid == resource.uid and left > 0:
            return RequeueAfter(left)
        with rt.alive(resource) as scope:
            await self._timer(rt, resource)
        if scope.cancelled_caught:
            return None
        left = self._every * random.uniform(1 - self._jitter, 1 + self._jitter)
        due[key] = (resource.uid, trio.current_time() + left)
        return RequeueAfter(left)
