"""Controllers that begin when the first resource of the type that they manage exists. Others are spared their cost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from headway.base import retry_delay
from headway.cache import Informers
from headway.client import Client
from headway.errors import HeadwayError
from headway.resource import ResourceType


class LateControllers:
    """Calls ``begin`` once, when a resource of a type exists.

    Until then the controllers have no lease and no commit of their own in the store.
    """

    def __init__(
        self, informers: Informers, client: Client, type: ResourceType[Any], begin: Callable[[], None]
    ) -> None:
        self._informers = informers
        self._client = client
        self._type = type
        self._begin = begin
        self._begun = False

    async def watch(self) -> None:
        """Return when the controllers have begun, also because of a resource that another process has written."""
        failures = 0
        informer = self._informers.informer_for(self._type)
        while not self._begun:
            subscription = informer.subscribe((), lambda *_: None)
            try:
                while not informer.resources:
                    await subscription.next()
                self._begin_once()
            except HeadwayError:
                # The informer reports what is wrong with the store.
                await trio.sleep(retry_delay(failures))
                failures += 1
            finally:
                subscription.close()

    async def begin_if_wanted(self) -> None:
        """Begin now if there is a resource: the informer may not have received it yet. Never fails.

        If the store cannot be read, `watch` begins later.
        """
        with suppress(HeadwayError):
            if not self._begun and await self._client.list(self._type):
                self._begin_once()

    def _begin_once(self) -> None:
        if not self._begun:
            self._begun = True
            self._begin()
