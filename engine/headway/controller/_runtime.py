"""What a reconciler is given."""

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
from headway.resource import Payload, Resource, ResourceType

T = TypeVar("T", bound=Payload)


class Runtime:
    """What a reconciler, a source and an initialiser work with.

    Attributes:
        cache: reads without waiting; never older than what was read before, or written by this controller.
        client: reads and writes the store. Writes carry the run's fence: once another run has begun, they fail
            with Fenced and change nothing. The cache sees a write when the call has returned. Where the controller
            declares its reads or writes, a type that isn't among them is refused by NotDeclared.
        strong: reads of the store itself, never behind what the cache has shown. The exception, not the rule.
        controller: the controller's name.
        term: a number that is higher in every later run of this controller: pass it along to what is outside the
            store, so that it can refuse a predecessor.
        report: hears of an event of yours as it does of Headway's own; it must not wait.
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
        """The resource that a request is for, as the cache has it; None when there is none (any more).

        Raises NotWatched in a controller that manages a projection: read ``rt.cache.get(PROJECTION, request.id)``.
        """
        type = self._definition.manages
        if isinstance(type, Projection):
            raise NotWatched(
                f"controller {self.controller} has {type!r} alone: read rt.cache.get(..., request.id) of it"
            )
        resource: Resource[T] | None = self.cache.get(type, request.id)
        return resource

    async def apply(self, resource: Resource[T]) -> Resource[T]:
        """As ``client.apply``, against what the cache has instead of a read: nothing is called when nothing differs.

        Raises Conflict when others have changed it meanwhile (the key is reconciled again), NotWatched for a type that
        isn't cached.
        """
        return await self.client.apply_over(self.cache.get(resource.type, resource.id), resource)

    def outputs(self, type: ResourceType[T], *, owner: Resource[Any]) -> Outputs[T]:
        """``async with rt.outputs(ACCOUNT, owner=team) as wanted: await wanted.apply("ada", Account(...))``

        What ``owner`` owns of this type and the block has not applied is deleted when the block ends normally.
        Raises NotWatched for a type that the controller doesn't watch, NotDeclared for one that it doesn't write.
        """
        if type not in self._definition.watches:
            raise NotWatched(
                f"controller {self.controller} doesn't watch {type.name}, so it can't know what to prune: "
                f"add it to `watches`, with headway.mappers.owner()"
            )
        self._declared.check_write(type.name)
        return Outputs(self.cache, self.client, type, owner)

    def finalizer(self, resource: Resource[T], name: str = "") -> Finalizer[T]:
        """A block in which to do what must be undone before the resource is gone, and to undo it.

        ``async with rt.finalizer(team) as guarded:``, then ``if guarded.alive:`` and ``elif guarded.cleaning_up:``.
        The finalizer, named as the controller unless given, is there before the block is entered, and is removed when
        a block that cleans up has ended normally. Finalizers of others stay.

        Raises NotFound when the resource is gone, Conflict when others keep changing it; the key is reconciled again.
        """
        return Finalizer(self.client, resource, name or self.controller)

    def conditions(self, resource: Resource[T], key: str = "", *, failure: str | None = None) -> Conditions[T]:
        """``async with rt.conditions(team) as conditions: conditions.set("Ready", True)``

        They are kept in the resource's status under ``key``, the controller's name unless given, and written once, when
        the block ends, if they differ from what is stored. When the block raises, the condition named as ``failure``
        becomes false with the error for its message.
        """
        return Conditions(self.client, resource, key or self.controller, failure)

    def alive(self, resource: Resource[Any] | Projected[Any]) -> AbstractContextManager[trio.CancelScope]:
        """``with rt.alive(team) as scope: ...`` is cancelled as soon as the team's deletion begins.

        Also when it is gone, or another one bears its name. ``scope.cancelled_caught`` says afterwards whether it was.
        Raises NotWatched for a type that the controller neither manages nor watches.
        """
        return self._lives.scope(resource)
