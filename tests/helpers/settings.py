"""The combinations of store and transport in which the contract tests run, under virtual time.

Virtual time jumps when every task is blocked. That is sound only while no work is in progress outside Trio:

- The network is a Unix socket. Data written to one end can be read at the other end when the write returns, so the
  loop finds it before the clock may jump. Over TCP a packet could be in flight, unseen by the loop.
- SQLite works in threads, which Trio's loop does not see. Here each thread holds the clock until its task continues.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway.base import ThreadCalls
from headway.resource import Registry
from headway.rpc import Channel, Server, Services, open_channel, open_server
from headway.service import (
    WATCH_LIST,
    ConsulService,
    LeaseService,
    ResourceEncodings,
    ResourceService,
    StoreService,
    WatchDecoder,
    watch_encoders,
)
from headway.storage import Backend
from tests.helpers.truth import RecordingBackend, RecordingSqlite
from tests.helpers.wrapped_services import Wrap, WrappedServices, unchanged

SETTINGS = [
    pytest.param((store, how == "network"), id=f"{store}, {how}", marks=marks)
    for store, how, *marks in (
        ("memory", "network"),
        ("sqlite", "in process"),
        ("memory", "in process", pytest.mark.wide),
        ("sqlite", "network", pytest.mark.wide),
    )
]
"""Parameters for a fixture of a `Setting`. The default run covers each store and each transport once."""

OVER_THE_NETWORK = [each for each in SETTINGS if each.values[0][1]]  # type: ignore[index]  # as they were made above
"""Parameters for tests of behavior that exists only over a network."""


class HeldClock:
    """A guard that keeps a clock from jumping while a thread works for one of Trio's tasks."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self._working = 0
        self._resumed = trio.Event()

    def watch_threads(self, patch: pytest.MonkeyPatch) -> None:
        """Hold the clock during each call in a thread."""
        patch.setattr(trio.to_thread, "run_sync", self._holding(trio.to_thread.run_sync))
        patch.setattr(ThreadCalls, "run", self._holding(ThreadCalls.run))

    def _holding(self, run: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def held(*arguments: Any, **options: Any) -> Any:
            self._working += 1
            self._clock.autojump_threshold = math.inf
            try:
                return await run(*arguments, **options)
            finally:
                self._working -= 1
                if not self._working:
                    self._clock.autojump_threshold = 0
                self._resumed.set()
                self._resumed = trio.Event()

        return held

    async def wait_blocked(self) -> None:
        """Wait until all tasks are blocked and no thread works for one of them."""
        while True:
            await wait_all_tasks_blocked()
            if not self._working:
                return
            await self._resumed.wait()


class Setting:
    """A combination of store and transport."""

    def __init__(self, store: str, network: bool, path: Path, held: HeldClock) -> None:
        self.durable = store == "sqlite"
        self.network = network
        self.path = path
        self.held = held
        # The latency of a unary call over the network, in seconds.
        self.timeout = 30.0
        self.wrap: Wrap = unchanged
        self.unexpected: list[BaseException] = []
        self.servers: list[Server] = []
        self._stores = 0

    def store(self) -> RecordingBackend | RecordingSqlite:
        """Return a new store."""
        self._stores += 1
        return RecordingSqlite(self.path / f"{self._stores}.db") if self.durable else RecordingBackend()

    @asynccontextmanager
    async def serving(self, backend: Backend, app: headway.App) -> AsyncIterator[str]:
        """Serve a store, and yield the server's address."""
        registry = Registry()
        for type in app.registry:
            if type.name not in registry:
                registry.register(type)
        encodings = ResourceEncodings()
        offered = (
            ResourceService(backend, registry, encodings=encodings),
            ConsulService(backend, registry, encodings=encodings),
            LeaseService(backend),
            StoreService(backend, registry),
        )
        services = Services(WrappedServices(self.wrap, *offered), encoders=watch_encoders(encodings))
        # A socket's path is limited to some 100 characters, and pytest's directory of a test has a long name.
        where = f"unix:{self.path / str(len(self.servers))}"
        async with open_server(services, [where], report=self._report) as server:
            self.servers.append(server)
            yield where

    @asynccontextmanager
    async def channel(self, *where: str) -> AsyncIterator[Channel]:
        """Open a channel to these servers."""
        decoders = {WATCH_LIST: WatchDecoder}
        async with open_channel(where, decoders=decoders, report=self._report, timeout=self.timeout) as channel:
            yield channel

    def _report(self, _: str, error: BaseException) -> None:
        self.unexpected.append(error)
