"""The controllers that begin with the first resource that they manage, and cost nothing before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import trio

from headway.base import retry_delay
from headway.client import Client
from headway.errors import HeadwayError
from headway.informers import Informers
from headway.resource import Registry, ResourceType
from headway.run import Supervisor


class LateControllers:
    """The late controllers of an engine. They have no lease and no commit in the store until they begin.

    Args:
        informers: show the first resource of a type.
        client: asks for it, without waiting for an informer.
        begin: called with the controllers of a type when they begin.
    """

    def __init__(
        self,
        supervisors: Iterable[Supervisor],
        registry: Registry,
        informers: Informers,
        client: Client,
        begin: Callable[[Sequence[Supervisor]], None],
    ) -> None:
        self._waiting: dict[ResourceType[Any], list[Supervisor]] = {}
        for each in supervisors:
            assert each.definition is not None
            self._waiting.setdefault(registry.resolve(each.definition.manages.name), []).append(each)
        self._informers = informers
        self._client = client
        self._begin = begin

    def start(self, nursery: trio.Nursery) -> None:
        """Begin to look for resources."""
        for type in self._waiting:
            nursery.start_soon(self._watch, type, name=f"the first {type.name}")

    async def _watch(self, type: ResourceType[Any]) -> None:
        """Return when the controllers have begun, also because of a resource that another process has written."""
        failures = 0
        informer = self._informers.informer_for(type)
        while type in self._waiting:
            subscription = informer.subscribe((), lambda *_: None)
            try:
                while not informer.resources:
                    await subscription.next()
                self._begin_once(type)
            except HeadwayError:
                # The informer reports what is wrong with the store.
                await trio.sleep(retry_delay(failures))
                failures += 1
            finally:
                subscription.close()

    async def begin_if_wanted(self) -> None:
        """Begin those that have a resource: the informer may not have received it yet. Never fails.

        If the store cannot be read, they begin later.
        """
        with suppress(HeadwayError):
            for type in [*self._waiting]:
                if await self._client.list(type):
                    self._begin_once(type)

    def _begin_once(self, type: ResourceType[Any]) -> None:
        if type in self._waiting:
            self._begin(self._waiting.pop(type))
