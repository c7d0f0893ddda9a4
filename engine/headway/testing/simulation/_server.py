"""The server of a simulation, which restarts on command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, cast

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.controller import App
from headway.engine import Engine, open_engine
from headway.events import ignore
from headway.rpc import Channel, Metadata
from headway.testing.simulation._patience import PatientClient

if TYPE_CHECKING:
    from headway.client import Client
    from headway.testing.simulation._world import World


class Server:
    """A `Channel` to the services, which may move when the server restarts."""

    knows_outcomes = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._channel: Channel | None = None
        self._engine: Engine | None = None
        self._scope = trio.CancelScope()
        self._waiting = trio.CancelScope()
        self._up = trio.Event()
        self._restarts = 0

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the server, and run it again after each restart."""
        world = self._world
        types = App("types")
        types.registry = world.types
        while True:
            self._scope = trio.CancelScope()
            with self._scope:
                async with open_engine(world.store, types, report=ignore, wrap_channel=self._take) as self._engine:
                    client = self._engine.client
                    world.client = cast("Client", PatientClient(client, world)) if world.patient else client
                    self._up.set()
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    await trio.sleep_forever()
            if not self._restarts:
                return
            self._restarts -= 1

    def _take(self, channel: Channel) -> Channel:
        self._channel = channel
        return channel

    @property
    def is_up(self) -> bool:
        """True if the server answers."""
        return self._channel is not None

    async def restart(self) -> None:
        """Restart the server, and wait until it is up."""
        self._channel, self._engine = None, None
        if self._up.is_set():
            # Otherwise another restart is under way, and its waiters keep waiting on the same event.
            self._up = trio.Event()
        self._restarts += 1
        self._scope.cancel()
        self._waiting.cancel()
        for process in self._world.processes:
            if process.life:
                process.link.break_all()
        await self._is_up()

    async def _is_up(self) -> Engine:
        while (engine := self._engine) is None or not self._up.is_set():
            await self._up.wait()
        return engine

    async def wait_idle(self) -> None:
        """Wait until the server's own controllers are idle."""
        while True:
            engine = await self._is_up()
            # Canceled by a restart, because waiting for an engine that has ended would take forever.
            with trio.CancelScope() as self._waiting:
                await engine.wait_idle()
            if engine is self._engine:
                return

    async def unary(
        self, path: str, request: object, reply_type: type[Any], *, metadata: Metadata | None = None
    ) -> Any:
        if self._channel is None:
            raise GRPCError(Status.UNAVAILABLE, "the server is unavailable")
        return await self._channel.unary(path, request, reply_type, metadata=metadata)

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        if self._channel is None:
            raise GRPCError(Status.UNAVAILABLE, "the server is unavailable")
        return self._channel.stream(path, request, metadata=metadata)
