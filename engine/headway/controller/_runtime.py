"""The reconcile context, `Runtime`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, TypeVar

import trio

from headway.cache import Cache, Projected, Projection
from headway.client import Client
from headway.controller._conditions import Conditions
from headway.controller._declared_client import Declared
from headway.controller._definition import Definition
from headway.controller._finalizer import Finalizer
from headway.controller._lifetimes import Lifetimes
from headway.controller._outputs import Outputs
from headway.controller._request import Request
from headway.controller._strong import StrongReads
from headway.errors import NotWatched
from headway.events import Report
from headway.protobuf import Payload
from headway.resource import Resource, ResourceType

T = TypeVar("T", bound=Payload)


class Runtime:
    """The context of a reconciler, a source or an initialiser.

    Attributes:
        cache: reads without waiting. A read is never older than an earlier read or a write of this controller.
        client: reads and writes the store. Writes carry the run's fence: after a later run has begun, they fail with
            Fenced and change nothing. When a write returns, the cache contains it. If the controller declares
            ``reads`` or ``writes``, an undeclared type raises NotDeclared.
        strong: reads the store itself, never behind what the cache has returned. Needed only in exceptional cases.
        controller: the controller's name.
        term: a number that is higher in every later run of this controller. Pass it to systems outside the store, so
            that they can reject a superseded run.
        report: a function that reports your own events as if they were Headway's. It must not block.
    """

    def __init__(
        self,
        definition: Definition,
        cache: Cache,
        client: Client,
        lives: Lifetimes,
        declared: Declared,
        report: Report,
    ) -> None:
        self.cache = cache
        self.client = client
        self.strong = StrongReads(cache, client)
        self.controller = definition.name
        self.term = 0
        self.report = report
        self._definition = definition
        self._lives = lives
        self._declared = declared

    def resource(self, request: Request[T]) -> Resource[T] | None:
        """Return the cached resource that a request is for, or None if it does not exist.

        Raises NotWatched in a controller that manages a projection: use ``rt.cache.get(PROJECTION, request.id)`` there.
        """
        type = self._definition.manages
        if isinstance(type, Projection):
            raise NotWatched(
                f"controller {self.controller} manages the projection {type!r}: use rt.cache.get(..., request.id)"
            )
        resource: Resource[T] | None = self.cache.get(type, request.id)
        return resource

    async def apply(self, resource: Resource[T]) -> Resource[T]:
        """Apply a resource like ``client.apply``, but compare with the cache: if nothing differs, no call is made.

        Raises Conflict if the resource has changed since it was cached (the key is reconciled again), and NotWatched
        for a type that is not cached.
        """
        return await self.client.apply_over(self.cache.get(resource.type, resource.id), resource)

    def outputs(self, type: ResourceType[T], *, owner: Resource[Any]) -> Outputs[T]:
        """``async with rt.outputs(ACCOUNT, owner=team) as wanted: await wanted.apply("ada", Account(...))``

        When the block ends normally, resources of this type that ``owner`` owns and the block did not apply are
        deleted. Raises NotWatched for a type that the controller does not watch, and NotDeclared for one that it does
        not write.
        """
        if type not in self._definition.watches:
            raise NotWatched(
                f"controller {self.controller} doesn't watch {type.name}, so it can't find outputs to prune: "
                f"add it to `watches`, with headway.mappers.owner()"
            )
        self._declared.check_write(type.name)
        return Outputs(self.cache, self.client, type, owner)

    def finalizer(self, resource: Resource[T], name: str = "") -> Finalizer[T]:
        """Return a block that guards work with a finalizer, so that the work is undone before the resource is deleted.

        ``async with rt.finalizer(team) as guarded:``, then ``if guarded.alive:`` and ``elif guarded.cleaning_up:``. The
        finalizer's name defaults to the controller's. It is added before the block begins, and removed when a block
        that cleans up has ended normally. Other finalizers are not touched.

        Raises NotFound if the resource no longer exists, and Conflict if other writers keep changing it. The key is
        then reconciled again.
        """
        return Finalizer(self.client, resource, name or self.controller)

    def conditions(self, resource: Resource[T], key: str = "", *, failure: str | None = None) -> Conditions[T]:
        """``async with rt.conditions(team) as conditions: conditions.set("Ready", True)``

        The conditions are stored in the resource's status under ``key``, by default the controller's name. They are
        written once, when the block ends, if they differ from the stored ones. If the block raises, the condition named
        by ``failure`` becomes false, with the error as its message.
        """
        return Conditions(self.client, resource, key or self.controller, failure)

    def alive(self, resource: Resource[Any] | Projected[Any]) -> AbstractContextManager[trio.CancelScope]:
        """``with rt.alive(team) as scope: ...`` is canceled as soon as the team's deletion begins.

        It is also canceled if the team no longer exists or another resource has replaced it under the same name. Check
        ``scope.cancelled_caught`` afterwards. Raises NotWatched for a type that the controller neither manages nor
        watches.
        """
        return self._lives.scope(resource)
