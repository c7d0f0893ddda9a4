"""What a reconciler is given."""

from __future__ import annotations

from typing import Any, TypeVar

from headway.cache import Cache
from headway.client import Client
from headway.controller._definition import Definition
from headway.controller._outputs import Outputs
from headway.controller._strong import StrongReads
from headway.errors import NotWatched
from headway.resource import Payload, Resource, ResourceType

T = TypeVar("T", bound=Payload)


class Runtime:
    """What a reconciler, a source and an initialiser work with.

    Attributes:
        cache: reads without waiting; never older than what was read before, or written by this controller.
        client: reads and writes the store. Writes carry the run's fence: once another run has begun, they fail
            with Fenced and change nothing. The cache sees a write when the call has returned.
        strong: reads of the store itself, never behind what the cache has shown. The exception, not the rule.
        controller: the controller's name.
        term: a number that is higher in every later run of this controller: pass it along to what is outside the
            store, so that it can refuse a predecessor.
    """

    def __init__(self, definition: Definition, cache: Cache, client: Client) -> None:
        self.cache = cache
        self.client = client
        self.strong = StrongReads(cache, client)
        self.controller = definition.name
        self.term = 0
        self._definition = definition

    def outputs(self, type: ResourceType[T], *, owner: Resource[Any]) -> Outputs[T]:
        """``async with rt.outputs(ACCOUNT, owner=team) as wanted: await wanted.apply("ada", Account(...))``

        What ``owner`` owns of this type and the block has not applied is deleted when the block ends normally.
        Raises NotWatched for a type that the controller doesn't watch.
        """
        if type not in self._definition.watches:
            raise NotWatched(
                f"controller {self.controller} doesn't watch {type.name}, so it can't know what to prune: "
                f"add it to `watches`, with headway.map_owner()"
            )
        return Outputs(self.cache, self.client, type, owner)
