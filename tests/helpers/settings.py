"""Where a contract's test runs: on which store, and over what; all of it under virtual time.

Virtual time jumps when every task is blocked. That is sound as long as nothing outside Trio is on its way then:

- The network is a Unix socket. What is written to one can be read at its other end when the write returns, so that the
  loop finds it before it may jump; over TCP a packet may be on its way between the two, and nobody would know.
- SQLite's work is done in threads, of which Trio's loop knows nothing while they run. Here each of them holds the
  clock until its task goes on.
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
from headway.resource import Registry
from headway.rpc import Channel, Server, Services, open_channel, open_server
from headway.service import (
    WATCH_LIST,
    LeaseService,
    OriginService,
    ResourceService,
    WatchDecoder,
    watch_encoders,
)
from headway.storage import Backend
from tests.helpers.truth import RecordingBackend, RecordingSqlite

SETTINGS = [
    pytest.param((store, how == "network"), id=f"{store}, {how}", marks=marks)
    for store, how, *marks in (
        ("memory", "network"),
        ("sqlite", "in process"),
        ("memory", "in process", pytest.mark.wide),
        ("sqlite", "network", pytest.mark.wide),
    )
]
"""For a parametrised fixture of a `Setting`. The default run has each store and each way to it once."""

OVER_THE_NETWORK = [each for each in SETTINGS if each.values[0][1]]  # type: ignore[index]  # as they were made above
"""For tests of what only a network does."""

Interceptor = Callable[[str, Any, Callable[[Any], Awaitable[None]]], Awaitable[None]]


class HeldClock:
    """Keeps a clock from jumping while a thread works for one of Trio's tasks."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self._working = 0
        self._went_on = trio.Event()
        self._run_sync = trio.to_thread.run_sync

    async def run_sync(self, *arguments: Any, **options: Any) -> Any:
        """In the place of `trio.to_thread.run_sync`."""
        self._working += 1
        self._clock.autojump_threshold = math.inf
        try:
            return await self._run_sync(*arguments, **options)
        finally:
            self._working -= 1
            if not self._working:
                self._clock.autojump_threshold = 0
            self._went_on.set()
            self._went_on = trio.Event()

    async def wait_quiet(self) -> None:
        """`wait_all_tasks_blocked`, which takes a task that waits for a thread for blocked, for threads too."""
        while True:
            await wait_all_tasks_blocked()
            if not self._working:
                return
            await self._went_on.wait()


class Setting:
    """One of the combinations, in the test that asks for it."""

    def __init__(self, store: str, network: bool, path: Path, held: HeldClock) -> None:
        self.durable = store == "sqlite"
        self.network = network
        self.path = path
        self.held = held
        # Seconds for a unary call over the network.
        self.timeout = 30.0
        self.interceptors: list[Interceptor] = []
        self.unexpected: list[BaseException] = []
        self.servers: list[Server] = []
        self._stores = 0

    def store(self) -> RecordingBackend | RecordingSqlite:
        """A new store."""
        self._stores += 1
        return RecordingSqlite(self.path / f"{self._stores}.db") if self.durable else RecordingBackend()

    @asynccontextmanager
    async def serving(self, backend: Backend, app: headway.App) -> AsyncIterator[str]:
        """A server of the store; yields its address."""
        registry = Registry()
        for type in app.registry:
            if type.name not in registry:
                registry.register(type)
        services = Services(
            ResourceService(backend, registry),
            OriginService(backend, registry),
            LeaseService(backend),
            encoders=watch_encoders(),
            interceptors=self.interceptors,
        )
        # A socket's path may have some 100 characters, and pytest's directory of a test has a long name.
        where = f"unix:{self.path / str(len(self.servers))}"
        async with open_server(services, [where], report=self._report) as server:
            self.servers.append(server)
            yield where

    @asynccontextmanager
    async def channel(self, *where: str) -> AsyncIterator[Channel]:
        """A channel to such servers."""
        decoders = {WATCH_LIST: WatchDecoder}
        async with open_channel(where, decoders=decoders, report=self._report, timeout=self.timeout) as channel:
            yield channel

    def _report(self, _: str, error: BaseException) -> None:
        self.unexpected.append(error)
