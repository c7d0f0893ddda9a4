"""An engine that serves a store and can be restarted at its address, and controllers that connect to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

import headway
from headway import events
from headway.resource import resource_key
from headway.storage import Backend, Put
from tests.helpers.pools import Pool

PATIENCE = 40


class Rig:
    """A server of one type on the store at ``url``, and a controller of it as if in another process."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.address = f"unix:{folder}/socket"
        self.served = headway.App("pools")
        self.served.type("pools", "v1", "Pool", Pool)
        self.app = headway.App("pools")
        self.pool = self.app.type("pools", "v1", "Pool", Pool)
        self.reported: list[object] = []
        self._changed = trio.Event()
        # The whole cache at each reconcile: versions by name.
        self.seen: list[dict[str, str]] = []
        self.terms: list[int] = []

        @self.app.controller(manages=self.pool)
        async def look(rt: headway.Runtime, _: headway.Request) -> None:
            self.seen.append({each.name: each.version for each in rt.cache.list(self.pool)})
            self.terms.append(rt.term)
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _report(self, event: object) -> None:
        self.reported.append(event)
        self._wake()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[headway.Engine]:
        async with headway.open_engine(
            self.url, self.served, network=headway.Network([self.address], insecure=True), report=lambda _: None
        ) as engine:
            yield engine

    @asynccontextmanager
    async def working(self) -> AsyncIterator[headway.Engine]:
        async with headway.open_workers(
            self.address, self.app, process="w", report=self._report, timing=headway.Timing(lag_limit=1.0)
        ) as engine:
            yield engine

    def ended_by(self) -> list[type[BaseException] | type[None]]:
        return [type(event.error) for event in self.reported if isinstance(event, events.RunEnded)]

    def streams_ended(self) -> list[str]:
        return [event.why for event in self.reported if isinstance(event, events.StreamEnded)]

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE):
            while not condition():
                await self._changed.wait()

    async def put(self, backend: Backend, name: str) -> None:
        """Store a resource as another writer would."""
        resource = self.pool.new(name).message()
        await backend.commit([Put(self.pool.kind, resource_key(resource), resource, "")])
