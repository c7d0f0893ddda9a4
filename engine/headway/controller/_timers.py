"""Timers: a periodic call for each resource.

A timer is implemented as a controller. A change also calls its reconciler, which then only returns when the timer is
due. Calls are therefore bounded, retried and counted like reconciles, and a waiting resource costs no task.
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
"""The function of a timer. Its resource is a `Resource`, or a `Projected` if the timer's type is a projection."""


class Timers:
    """A timer as declared by `App.timer`."""

    def __init__(self, timer: Timer, every: float, jitter: float) -> None:
        self._timer = timer
        self._every = every
        self._jitter = jitter
        # For each run and key: the incarnation, and when its next call is due.
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
