"""A channel leaves a lagging server for another one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock

from headway import rpc
from headway._gen.headway.store import v1 as store_pb
from headway.api import Call, Handler
from headway.cache import Informer
from headway.client import Client
from headway.events import StreamLagging
from headway.informers import Follower
from headway.resource import Position, position
from headway.rpc import InProcessChannel, Lagging, Services
from headway.service import POSITION, WATCH_LIST, ConsulService, ResourceService, StoreService, watch_encoders
from headway.storage import MemoryBackend
from headway.testing import ScriptedChannel
from tests.helpers.scripted_follower import never
from tests.helpers.wrapped_services import WrappedServices, admitting
from tests.rpc.rpc_kit import COUNT, DECODERS, TEXTS, THING, Served, Text, app, served

LAG_LIMIT = 0.3


class Freeze:
    """A wrapper that can freeze a server: its watches then send nothing more."""

    def __init__(self) -> None:
        self.frozen = False
        self.opened = 0

    def __call__(self, path: str, handler: Handler) -> Handler:
        return handler._replace(admit=admitting(self._open)) if path == WATCH_LIST else handler

    async def _open(self, _: Call) -> None:
        self.opened += 1
        if self.frozen:
            await trio.sleep_forever()


async def _linearizable(channel: rpc.Channel) -> Position:
    request = store_pb.PositionRequest(type=THING.name.message())
    reply = await channel.unary(POSITION, request, store_pb.PositionResponse)
    at = position(reply.position)
    assert at is not None
    return at


@asynccontextmanager
async def two_servers(lagging: Freeze, well: Freeze) -> AsyncIterator[tuple[Served, list[str]]]:
    """Two servers of one store. The first one is the lagging one."""
    async with served(wrap=lagging) as it:
        services = (
            ResourceService(it.backend, app.registry),
            ConsulService(it.backend, app.registry),
            StoreService(it.backend, app.registry),
        )
        offered = Services(WrappedServices(well, *services), encoders=watch_encoders())
        async with rpc.open_server(offered, ["127.0.0.1:0"]) as other:
            yield it, [it.where, other.addresses[0]]


async def test_follower_moves_from_a_lagging_server_to_another() -> None:
    """It becomes complete again. Calls stay at their server."""
    lagging, well = Freeze(), Freeze()
    reported: list[object] = []
    async with (
        two_servers(lagging, well) as (it, where),
        rpc.open_channel(where, decoders=DECODERS) as channel,
        trio.open_nursery() as nursery,
    ):
        informer = Informer(THING, reported.append)
        follower = Follower(
            channel, informer, reported.append, lambda _: _linearizable(channel), LAG_LIMIT, another_store=never
        )
        nursery.start_soon(follower.run)
        client = Client(rpc.InProcessChannel(it.services), app.registry)
        written = await client.write(THING.new("a", Text(text="1")))
        await informer.wait_complete(int(written.version))
        assert (lagging.opened, well.opened) == (1, 0)

        # The stream breaks, and the next one at this server delivers nothing.
        lagging.frozen = True
        for protocol in list(it.server._connections):
            protocol.abort()
        written = await client.apply(THING.new("a", Text(text="2")))
        with trio.fail_after(20):
            await informer.wait_complete(int(written.version))
        assert (lagging.opened, well.opened) == (2, 1)
        assert sum(isinstance(event, StreamLagging) for event in reported) == 1
        nursery.cancel_scope.cancel()


async def _lag(channel: rpc.RemoteChannel) -> None:
    with contextlib.suppress(Lagging):
        async with channel.stream(COUNT, Text(text="1")) as items:
            await anext(items)
            raise Lagging("it stood below what is known")


async def _opened_at(channel: rpc.RemoteChannel, *servers: Served) -> int:
    """Open a stream, and return the number of the server that it uses."""
    async with channel.stream(COUNT, Text(text="0")) as items:
        await anext(items)
        return [server.echo.waiting for server in servers].index(1)


async def test_new_streams_avoid_a_lagging_server_for_a_time() -> None:
    """They do so even if a connection to it is open. The streams on that connection continue."""
    async with (
        served() as one,
        served() as other,
        rpc.open_channel([one.where, other.where], decoders=TEXTS) as channel,
        channel.stream(COUNT, Text(text="500")) as stays,
    ):
        await anext(stays)
        await _lag(channel)
        assert await _opened_at(channel, one, other) == 1
        # If all servers lag, the one that was left first is preferred.
        await _lag(channel)
        assert await _opened_at(channel, one, other) == 0
        assert len([item async for item in stays]) == 499
        assert (one.server.connections, other.server.connections) == (1, 1)


async def test_lagging_server_is_used_if_no_other_can_be_reached() -> None:
    """This includes a channel with a single server. The open connection is used."""
    async with served() as it:
        for where in (it.where, f"{it.where},127.0.0.1:1"):
            async with rpc.open_channel(where, decoders=TEXTS) as channel:
                await _lag(channel)
                before = it.server.connections
                assert await _opened_at(channel, it) == 0
                assert await _opened_at(channel, it) == 0
                assert it.server.connections == before


async def test_lag_hint_passes_through_wrapping_channels(autojump_clock: MockClock) -> None:
    """A follower's hint passes a scripted and a copying channel on its way to the channel that can act on it."""

    class Recording(InProcessChannel):
        def __init__(self, *services: Any) -> None:
            super().__init__(*services)
            self.left_by: list[type[BaseException] | None] = []

        def stream(self, path: str, request: object, *, metadata: rpc.Metadata | None = None) -> Any:
            return self._recorded(super().stream(path, request, metadata=metadata))

        @asynccontextmanager
        async def _recorded(self, opened: Any) -> AsyncIterator[Any]:
            async with opened as items:
                try:
                    yield items
                except BaseException as error:
                    self.left_by.append(type(error))
                    raise

    backend = MemoryBackend()
    inner = Recording(ResourceService(backend, app.registry), StoreService(backend, app.registry))
    script = ScriptedChannel()
    channel = script.over(inner)
    client = Client(inner, app.registry)
    reported: list[object] = []
    informer = Informer(THING, reported.append)
    follower = Follower(
        channel, informer, reported.append, lambda _: _linearizable(inner), LAG_LIMIT, another_store=never
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.run)
        await informer.wait_complete(0)
        for number in range(3):
            await client.write(THING.new(f"a-{number}", Text(text="1")))
        await informer.wait_complete(3)
        # The next stream begins with the store's state at revision 1, and delivers nothing more.
        script.refuse_resume(THING)
        script.old_snapshot(THING, 1)
        script.hold(THING)
        script.drop(THING)
        await trio.sleep(LAG_LIMIT + 1)
        nursery.cancel_scope.cancel()
    assert inner.left_by[1] is Lagging
    assert any(isinstance(event, StreamLagging) and event.revision == 1 for event in reported)
