"""Instruments an app: records what each reconcile sees at its start, what it reads, and how it ends."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from headway.cache import Cache, Held
from headway.controller import App, Definition
from headway.reconcile import RequeueAfter, Runtime
from headway.resource import Key, Kind, pb
from headway.testing.simulation._link import RECONCILE
from headway.testing.simulation._trace import Reconcile, Reconciled

if TYPE_CHECKING:
    from headway.testing.simulation._process import Process
    from headway.testing.simulation._world import World


def watched(app: App, world: World, process: Process) -> App:
    """Return a copy of the app that records in the world's trace what its reconcilers do."""
    noted = App(app.name)
    noted.registry = app.registry
    noted.controllers = {
        name: dataclasses.replace(definition, reconcile=_Watched(definition, world, process))
        for name, definition in app.controllers.items()
    }
    return noted


class _Watched:
    """A wrapper around a reconciler."""

    def __init__(self, definition: Definition, world: World, process: Process) -> None:
        self._definition = definition
        self._world = world
        self._process = process

    async def __call__(self, rt: Runtime, request: Any) -> Any:
        definition, world = self._definition, self._world
        reconcile = Reconcile(
            trio.current_time(),
            self._process.name,
            definition.name,
            request.id.type.unversioned,
            request.id.key,
            ", ".join(str(reason) for reason in request.reasons),
            rt.term,
            {str(type.name.kind): rt.cache.revision(type) for type in definition.types},
            steps=len(world.trace.steps),
            trace=world.trace.entries,
        )
        world.begin_reconcile(reconcile)
        seen = copy.copy(rt)
        seen.cache = _traced(rt.cache)
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
            world.trace.add(Reconciled(trio.current_time(), reconcile, result))


class _TracedCache(Cache):
    """A run's cache that records its reads. It shares all state with the original."""

    def _held(self, type: Any) -> Held:
        held, reconcile = super()._held(type), RECONCILE.get()
        return held if reconcile is None else _TracedHeld(held, type.kind, reconcile)


class _TracedHeld:
    """A `Held` that records reads for a reconcile."""

    def __init__(self, held: Held, kind: Kind, reconcile: Reconcile) -> None:
        self._held = held
        self._kind = kind
        self._reconcile = reconcile
        self.revision = held.revision
        self.table = held.table

    def find(self, key: Key) -> pb.Resource | None:
        found = self._held.find(key)
        self._reconcile.saw(self._kind, key, int(found.version) if found is not None else 0, "read")
        return found

    def everything(self) -> Mapping[Key, pb.Resource]:
        found = self._held.everything()
        for key, each in found.items():
            self._reconcile.saw(self._kind, key, int(each.version), "read")
        return found


def _traced(cache: Cache) -> Cache:
    traced = _TracedCache.__new__(_TracedCache)
    traced.__dict__ = cache.__dict__
    return traced
