"""Headway's own controllers in an engine. Those of peerings begin with the first peering, and cost nothing before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from headway.base import retry_delay
from headway.builtin import builtin_app
from headway.client import Client
from headway.engine._arguments import combine_apps
from headway.engine._placing import Placing
from headway.errors import HeadwayError
from headway.resource import PEERING
from headway.run import Supervisor
from headway.service import unregistered
from headway.storage import Backend

if TYPE_CHECKING:
    from headway.peering import PeeringHost


class OwnControllers:
    """Headway's own controllers.

    Those of peerings have no lease and no commit in the store until ``begin`` is called with them, once.

    Attributes:
        supervisors: those that begin with the engine.
    """

    def __init__(
        self,
        placing: Placing,
        backend: Backend,
        peerings: PeeringHost,
        client: Client,
        begin: Callable[[Sequence[Supervisor]], None],
    ) -> None:
        registry = placing.registry
        app = builtin_app(registry, partial(unregistered, backend, registry), peerings)
        definitions = combine_apps([app])[1]
        late = {name: definitions.pop(name) for name in [*definitions] if definitions[name].manages is PEERING}
        self.supervisors = placing.supervisors(definitions)
        self._late = placing.supervisors(late)
        self._informers = placing.informers
        self._client = client
        self._begin = begin
        self._begun = False

    async def watch(self) -> None:
        """Return when those of peerings have begun, also because of a peering that another process has written."""
        failures = 0
        informer = self._informers.informer_for(PEERING)
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
        """Begin those of peerings if there is one: the informer may not have received it yet. Never fails.

        If the store cannot be read, `watch` begins later.
        """
        with suppress(HeadwayError):
            if not self._begun and await self._client.list(PEERING):
                self._begin_once()

    def _begin_once(self) -> None:
        if not self._begun:
            self._begun = True
            self._begin(self._late)
