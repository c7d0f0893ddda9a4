"""An app whose functions are recorded in a trace: what each sees at its start, what it reads, and how it ends.

A run's reconciles, sources and callbacks get the one `Runtime` that the run has made: a program may keep its state by
it, as daemons and timers do. Only the runtime's cache is replaced, by one that records reads, and events are
noted instead of stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

import trio

from headway.cache import Cache, Content
from headway.controller import App, Daemons, Definition, Source
from headway.reconcile import RequeueAfter, Runtime
from headway.resource import Key, Kind, ResourceId, Within, pb
from headway.testing.simulation._trace import Reconcile, Reconciled
from headway.testing.simulation.world._injector import Injector

RECONCILE: ContextVar[Reconcile | None] = ContextVar("headway.simulation.reconcile", default=None)
"""The call that the current task works for: a reconcile, or a call of another function of the program.

Set around each call and inherited by the tasks that it starts.
"""

T = TypeVar("T")
_NO_KEY = ("", "", "")


def traced_app(app: App, injector: Injector, process: str) -> App:
    """Return a copy of the app that records what its functions do in a process."""
    traced = App(app.name)
    traced.registry = app.registry
    traced.controllers = {
        name: _Tracer(definition, injector, process).traced() for name, definition in app.controllers.items()
    }
    return traced


class _Tracer:
    """Wraps the functions of one controller in one process."""

    def __init__(self, definition: Definition, injector: Injector, process: str) -> None:
        self._definition = definition
        self._injector = injector
        self._process = process

    def traced(self) -> Definition:
        """Return the controller's definition with its functions wrapped."""
        given = self._definition
        reconcile = given.reconcile
        sources: dict[str, Source] = {name: partial(self._source, name, each) for name, each in given.sources.items()}
        daemons = getattr(reconcile, "__self__", None)
        if isinstance(daemons, Daemons):
            daemons = daemons.around(lambda daemon: partial(self._daemon, daemon))
            reconcile, sources = daemons.reconcile, dict.fromkeys(given.sources, daemons.host)
        return dataclasses.replace(
            given,
            reconcile=partial(self._reconcile, reconcile),
            sources=sources,
            initialiser=given.initialiser and partial(self._initialiser, given.initialiser),
            on_start=given.on_start and partial(self._callback, "on_start", given.on_start),
            on_stop=given.on_stop and partial(self._callback, "on_stop", given.on_stop),
        )

    async def _reconcile(self, reconcile: Callable[..., Awaitable[Any]], rt: Runtime, request: Any) -> Any:
        definition = self._definition
        if self._injector.before_reconcile is not None:
            await self._injector.before_reconcile()
        call = Reconcile(
            trio.current_time(),
            self._process,
            definition.name,
            request.id.type.unversioned,
            request.id.key,
            ", ".join(str(reason) for reason in request.reasons),
            rt.term,
            {str(type.name.kind): rt.cache.revision(type) for type in definition.types},
            steps=len(self._injector.trace.steps),
            trace=self._injector.trace.entries,
        )
        return await self._traced(call, rt, lambda: reconcile(rt, request))

    async def _daemon(self, daemon: Callable[..., Awaitable[None]], rt: Runtime, resource: Any) -> None:
        call = self._call("the daemon", rt, resource.id.type.unversioned, resource.id.key)
        await self._traced(call, rt, lambda: daemon(rt, resource))

    async def _source(self, name: str, source: Callable[..., Awaitable[None]], rt: Runtime, enqueue: Any) -> None:
        await self._traced(self._call(f"source {name}", rt), rt, lambda: source(rt, enqueue))

    async def _initialiser(self, initialiser: Callable[..., Awaitable[None]], rt: Runtime) -> None:
        await self._traced(self._call("the initialiser", rt), rt, lambda: initialiser(rt))

    async def _callback(self, name: str, callback: Callable[..., Any], rt: Runtime, *rest: Any) -> None:
        async def called() -> None:
            answer = callback(rt, *rest)
            if isawaitable(answer):
                await answer

        await self._traced(self._call(name, rt), rt, called)

    def _call(self, function: str, rt: Runtime, kind: Kind | None = None, key: Key = _NO_KEY) -> Reconcile:
        of = kind or self._definition.manages.name.unversioned
        trace = self._injector.trace
        return Reconcile(
            trio.current_time(),
            self._process,
            self._definition.name,
            of,
            key,
            "",
            rt.term,
            {},
            steps=len(trace.steps),
            trace=trace.entries,
            function=function,
        )

    def _note_event(self, of: ResourceId, reason: str, text: str, warning: bool) -> None:
        """Record an event in the story alone.

        It changes nothing that a program reads or a check compares, so it is not a step, and no fault strikes it.
        """
        warns = ", a warning" if warning else ""
        self._injector.note(f"{self._process}: {self._definition.name} records{warns}: {of}: {reason}: {text}")

    async def _traced(self, call: Reconcile, rt: Runtime, function: Callable[[], Awaitable[T]]) -> T:
        self._injector.begin_reconcile(call)
        if not isinstance(rt.cache, _TracedCache):
            rt.cache = _traced_cache(rt.cache)
            rt.record_event = self._note_event
        token = RECONCILE.set(call)
        result = "canceled"
        try:
            answer = await function()
            result = f"again after {answer.seconds} s" if isinstance(answer, RequeueAfter) else "done"
            return answer
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
            raise
        finally:
            RECONCILE.reset(token)
            self._injector.trace.add(Reconciled(trio.current_time(), call, result))


class _TracedCache(Cache):
    """A run's cache that records its reads. It shares all state with the original."""

    def _content(self, type: Any) -> Content:
        content, reconcile = super()._content(type), RECONCILE.get()
        if reconcile is None:
            return content
        return _TracedContent(content, type.kind, reconcile, self.range_of(type))


class _TracedContent:
    """A `Content` that records reads for a call of the program."""

    def __init__(self, content: Content, kind: Kind, reconcile: Reconcile, within: Within) -> None:
        self._content = content
        self._within = within
        self._kind = kind
        self._reconcile = reconcile
        self.revision = content.revision
        self.table = content.table

    def find(self, key: Key) -> pb.Resource | None:
        found = self._content.find(key)
        self._reconcile.saw(self._kind, key, int(found.version) if found is not None else 0, "read", self._within)
        return found

    def everything(self) -> Mapping[Key, pb.Resource]:
        found = self._content.everything()
        for key, each in found.items():
            self._reconcile.saw(self._kind, key, int(each.version), "read", self._within)
        return found


def _traced_cache(cache: Cache) -> Cache:
    traced = _TracedCache.__new__(_TracedCache)
    traced.__dict__ = cache.__dict__
    return traced
