"""An app whose reconciles are recorded in a trace: what each sees at its start, what it reads, and how it ends."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import trio

from headway.cache import Cache, Content
from headway.controller import App, Definition
from headway.reconcile import RequeueAfter, Runtime
from headway.resource import Key, Kind, pb
from headway.testing.simulation._injector import Injector
from headway.testing.simulation._trace import Reconcile, Reconciled

RECONCILE: ContextVar[Reconcile | None] = ContextVar("headway.simulation.reconcile", default=None)
"""The reconcile that the current task works for, set around each reconcile and inherited by the tasks it starts."""


def traced_app(app: App, injector: Injector, process: str) -> App:
    """Return a copy of the app that records what its reconcilers do in a process."""
    traced = App(app.name)
    traced.registry = app.registry
    traced.controllers = {
        name: dataclasses.replace(definition, reconcile=_TracedReconciler(definition, injector, process))
        for name, definition in app.controllers.items()
    }
    return traced


class _TracedReconciler:
    """A wrapper around a reconciler."""

    def __init__(self, definition: Definition, injector: Injector, process: str) -> None:
        self._definition = definition
        self._injector = injector
        self._process = process

    async def __call__(self, rt: Runtime, request: Any) -> Any:
        definition, trace = self._definition, self._injector.trace
        if self._injector.before_reconcile is not None:
            await self._injector.before_reconcile()
        reconcile = Reconcile(
            trio.current_time(),
            self._process,
            definition.name,
            request.id.type.unversioned,
            request.id.key,
            ", ".join(str(reason) for reason in request.reasons),
            rt.term,
            {str(type.name.kind): rt.cache.revision(type) for type in definition.types},
            steps=len(trace.steps),
            trace=trace.entries,
        )
        self._injector.begin_reconcile(reconcile)
        seen = copy.copy(rt)
        seen.cache = _traced_cache(rt.cache)
        token = RECONCILE.set(reconcile)
        result = "canceled"
        try:
            answer = await definition.reconcile(seen, request)
            result = f"again after {answer.seconds} s" if isinstance(answer, RequeueAfter) else "done"
            return answer
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
            raise
        finally:
            RECONCILE.reset(token)
            trace.add(Reconciled(trio.current_time(), reconcile, result))


class _TracedCache(Cache):
    """A run's cache that records its reads. It shares all state with the original."""

    def _content(self, type: Any) -> Content:
        content, reconcile = super()._content(type), RECONCILE.get()
        return content if reconcile is None else _TracedContent(content, type.kind, reconcile)


class _TracedContent:
    """A `Content` that records reads for a reconcile."""

    def __init__(self, content: Content, kind: Kind, reconcile: Reconcile) -> None:
        self._content = content
        self._kind = kind
        self._reconcile = reconcile
        self.revision = content.revision
        self.table = content.table

    def find(self, key: Key) -> pb.Resource | None:
        found = self._content.find(key)
        self._reconcile.saw(self._kind, key, int(found.version) if found is not None else 0, "read")
        return found

    def everything(self) -> Mapping[Key, pb.Resource]:
        found = self._content.everything()
        for key, each in found.items():
            self._reconcile.saw(self._kind, key, int(each.version), "read")
        return found


def _traced_cache(cache: Cache) -> Cache:
    traced = _TracedCache.__new__(_TracedCache)
    traced.__dict__ = cache.__dict__
    return traced
