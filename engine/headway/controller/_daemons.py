"""Daemons and timers: functions that are called for each resource.

Both are implemented as controllers.

- A *daemon* has a task for each resource, with the lifetime of the resource. Its controller's source holds the nursery
  of the tasks, so that they end with the run (C7, C10). Its reconciler starts a task for a resource that has none.
  Before it starts a successor, it waits until the previous task has ended.
- A *timer* is called periodically. A change also calls its reconciler, which then only returns when the timer is due.
  Calls are therefore bounded, retried and counted like reconciles, and a waiting resource costs no task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import trio

from headway.base import chance, leaving, ordinary, repr_text
from headway.cache import READING, Projected
from headway.controller._definition import Enqueue
from headway.errors import InvalidResult
from headway.events import DaemonEnded
from headway.queue import Backoff
from headway.reconcile import (
    MAPPING,
    RECONCILING,
    KeyAtWork,
    NotDue,
    Request,
    RequeueAfter,
    Runtime,
    SecretReads,
    redact_reads,
)
from headway.resource import LOOKING, Key, Resource, ResourceId

_LASTED = 60.0
"""A daemon that raises after this many seconds is called again with the delay of a first failure."""

R = TypeVar("R", bound=Resource[Any] | Projected[Any])

ResourceFunction = Callable[[Runtime, R], Awaitable[None]]
"""The function of a daemon or a timer: ``async def heartbeat(rt, resource)``."""


def _untyped(function: ResourceFunction[Any]) -> Callable[..., Awaitable[object]]:
    """Return the function as one that may return anything, because no type checker has to be used."""
    return function


def _check_result(rt: Runtime, result: object, why: str) -> None:
    """Raise InvalidResult for a result, which would have no effect."""
    if result is not None:
        raise InvalidResult(f"{rt.full_name} returned {repr_text(result)}: return None, because {why}")


class _DaemonTask:
    """The task of one resource."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.ended = trio.Event()
        # Canceled while the controller's gate is closed. The task then has no effect, and a successor replaces it.
        self.scope = trio.CancelScope()


class _Host:
    """The tasks of one run."""

    def __init__(self) -> None:
        self.nursery: trio.Nursery | None = None
        self.opened = trio.Event()
        self.reads: SecretReads | None = None
        # Invariant: at most one for each key. It is replaced only after it has ended.
        self.tasks: dict[Key, _DaemonTask] = {}


class Daemons:
    """A daemon as declared by `App.daemon`."""

    def __init__(self, daemon: ResourceFunction[Any], *, finalizer: bool, backoff: Backoff) -> None:
        self._daemon = daemon
        self._finalizer = finalizer
        self._backoff = backoff
        self._hosts: WeakKeyDictionary[Runtime, _Host] = WeakKeyDictionary()

    def around(self, wrap: Callable[[ResourceFunction[Any]], ResourceFunction[Any]]) -> Daemons:
        """Return the same daemon with another function around the user's, and no tasks of its own yet."""
        return Daemons(wrap(self._daemon), finalizer=self._finalizer, backoff=self._backoff)

    async def host(self, rt: Runtime, enqueue: Enqueue) -> NoReturn:
        """Hold the tasks of the run, and cancel them while its gate is closed. This is the source of the controller."""
        host = self._hosts.setdefault(rt, _Host())
        # The run has set it for this source.
        host.reads = reads if isinstance(reads := READING.get(), SecretReads) else None
        async with trio.open_nursery() as host.nursery:
            host.opened.set()
            while True:
                await rt.gate.wait_closed()
                for task in host.tasks.values():
                    # A daemon that has returned is not called again.
                    if not task.ended.is_set():
                        task.scope.cancel()
                await rt.gate.wait_open()
                for key, task in host.tasks.items():
                    if task.scope.cancel_called:
                        enqueue(rt.cache.manages.id(key[2], partition=key[0], namespace=key[1]))
        raise AssertionError("the tasks of a run were given up")

    async def reconcile(self, rt: Runtime, request: Request[Any]) -> None:
        """Keep a task for the resource while it exists, and none otherwise."""
        host = self._hosts.setdefault(rt, _Host())
        await host.opened.wait()
        resource = rt.cache.get(rt.cache.manages, request.id)
        if resource is None or not self._finalizer:
            await self._ensure(host, rt, request.id.key, None if resource is None or resource.is_deleting else resource)
            return
        async with rt.finalizer(resource) as guarded:
            await self._ensure(host, rt, request.id.key, guarded.resource if guarded.alive else None)

    async def _ensure(
        self, host: _Host, rt: Runtime, key: Key, resource: Resource[Any] | Projected[Any] | None
    ) -> None:
        task = host.tasks.get(key)
        if task is not None and (resource is None or task.uid != resource.uid or task.scope.cancel_called):
            # Its scope was canceled when the run received the change that is visible here, or by the gate.
            await task.ended.wait()
            del host.tasks[key]
            task = None
        if task is None and resource is not None:
            task = host.tasks[key] = _DaemonTask(resource.uid)
            if rt.gate.reason is not None:
                # This reconcile began before the gate was closed.
                task.scope.cancel()
            assert host.nursery is not None
            reads = None if host.reads is None else host.reads.another()
            name = f"daemon {rt.full_name} of {resource.id}"
            host.nursery.start_soon(self._run_task, rt, resource, task, reads, name=name)

    async def _run_task(
        self, rt: Runtime, resource: Resource[Any] | Projected[Any], task: _DaemonTask, reads: SecretReads | None
    ) -> None:
        # A reconcile started this task, but the daemon's writes and reads are not that reconcile's.
        RECONCILING.set(None)
        LOOKING.set(None)
        READING.set(reads)
        if reads is not None:
            reads.keep(resource)
        MAPPING.set(KeyAtWork(resource.id.key))
        try:
            with task.scope, rt.alive(resource) as scope:
                if not scope.cancel_called and not task.scope.cancel_called:
                    await self._call(rt, resource)
        except BaseException as raised:  # noqa: BLE001  # cancellation and interrupts are raised again
            error = ordinary(raised)
            if error is None:
                raise leaving(raised) from None
            # The function raised while it was being canceled.
            redact_reads(error)
            rt.report(DaemonEnded(rt.full_name, resource.id, error, None))
        finally:
            task.ended.set()

    async def _call(self, rt: Runtime, resource: Resource[Any] | Projected[Any]) -> None:
        failures = 0
        id: ResourceId = resource.id
        while True:
            began = trio.current_time()
            try:
                result: object = await _untyped(self._daemon)(rt, rt.cache.get(resource.type, id) or resource)
                _check_result(rt, result, "a daemon is called again only if it raises")
            except BaseException as raised:
                # A user's function may raise anything; it is called again.
                error = ordinary(raised)
                if error is None:
                    raise
                if trio.current_time() - began >= _LASTED:
                    failures = 0
                delay = self._backoff.delay(failures)
                failures += 1
                redact_reads(error)
                rt.report(DaemonEnded(rt.full_name, id, error, delay))
            else:
                rt.report(DaemonEnded(rt.full_name, id, None, None))
                return
            await trio.sleep(delay)


class Timers:
    """A timer as declared by `App.timer`."""

    def __init__(self, timer: ResourceFunction[Any], every: float, jitter: float) -> None:
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
            return NotDue(left)
        with rt.alive(resource) as scope:
            _check_result(rt, await _untyped(self._timer)(rt, resource), "`every=` says when a timer is called again")
        if scope.cancelled_caught:
            return None
        left = self._every * chance.uniform(1 - self._jitter, 1 + self._jitter)
        due[key] = (resource.uid, trio.current_time() + left)
        return RequeueAfter(left)
