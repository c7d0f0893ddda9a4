"""Connections shared by many calls, with a forwarder by many clients: one client's misuse does not harm others."""

from __future__ import annotations

import contextlib

import pytest
import trio
from grpclib.const import Status

from headway import rpc
from headway.api import NotBegun
from headway.errors import HeadwayError
from headway.rpc import Limits, WireLimits
from headway.rpc.client import _pool
from headway.rpc.http2 import _frames
from tests.helpers.service_errors import status_of
from tests.rpc.forward_kit import forwarded
from tests.rpc.raw_kit import HEADERS, connected
from tests.rpc.rpc_kit import ECHO, WAIT, Text, served


async def test_oversized_metadata_ends_only_its_own_call() -> None:
    """All clients of a forwarder share its connections, and a server ends one with too many headers."""
    async with (
        forwarded() as (it, where),
        rpc.open_channel(where) as channel,
        rpc.open_channel(where) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(channel.unary, WAIT, Text(), Text)
        await it.echo.until_waiting(1)
        refused: list[HeadwayError] = []
        # These sizes are about the largest that the forwarder itself accepts.
        for size in range(15_900, 16_300, 20):
            try:
                await other.unary(ECHO, Text(), Text, metadata={"x-large": "x" * size})
            except HeadwayError as error:
                refused.append(error)
        assert {(type(each), status_of(each)) for each in refused} == {(NotBegun, Status.RESOURCE_EXHAUSTED)}
        assert it.server.connections == 1
        it.echo.release.set()


async def test_many_canceled_calls_do_not_end_a_shared_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server ends a connection with too many canceled calls, so the forwarder spreads them."""
    assert (_pool._RESETS.burst, _pool._RESETS.per_second) < (WireLimits().resets.burst, WireLimits().resets.per_second)
    monkeypatch.setattr(_pool, "_RESETS", rpc.Rate(10, 0))
    async with (
        served(limits=Limits(wire=WireLimits(resets=rpc.Rate(10, 0)))) as it,
        rpc.open_channel(it.where) as channel,
        trio.open_nursery() as others,
    ):
        others.start_soon(channel.unary, WAIT, Text(), Text)
        await it.echo.until_waiting(1)
        for _ in range(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.unary, WAIT, Text(), Text)
                await it.echo.until_waiting(2)
                nursery.cancel_scope.cancel()
            await it.echo.until_waiting(1)
        assert it.server.connections == 4
        assert it.echo.cancelled == 30
        it.echo.release.set()


# The server's allowance for a connection without traffic, and the forwarder's charge limit below it.
TIGHT = Limits(wire=WireLimits(others=rpc.Rate(200, 0)))
OWED = rpc.Rate(100, 0)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("path", "metadata"),
    [(ECHO, {"x-large": "x" * 15_000}), ("/none/" + "\U0001f600" * 1000, {})],
    ids=["metadata", "path"],
)
async def test_expensive_headers_do_not_end_a_shared_connection(
    path: str, metadata: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server charges a connection for them.

    It charges a forwarder's connection for the headers of all its clients.
    """
    monkeypatch.setattr(_frames, "_OWN", OWED)
    async with forwarded(limits=TIGHT) as (it, where), trio.open_nursery() as nursery:
        async with rpc.open_channel(where) as channel:
            nursery.start_soon(channel.unary, WAIT, Text(), Text)
            await it.echo.until_waiting(1)
            for _ in range(4):
                # A single client cannot exceed its own allowance.
                async with rpc.open_channel(where) as other:
                    for _ in range(4):
                        with contextlib.suppress(HeadwayError):
                            await other.unary(path, Text(), Text, metadata=metadata)
            it.echo.release.set()
            await it.echo.until_waiting(0)
            assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
        assert it.server.connections > 1


async def test_tiny_pieces_of_many_clients_do_not_end_a_shared_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client's one-byte pieces are within its allowance. Together they exceed the forwarder's."""
    monkeypatch.setattr(_frames, "_OWN", OWED)
    async with (
        forwarded(limits=TIGHT) as (it, where),
        rpc.open_channel(where) as channel,
        contextlib.AsyncExitStack() as stack,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(channel.unary, WAIT, Text(), Text)
        await it.echo.until_waiting(1)
        clients = [await stack.enter_async_context(connected(where)) for _ in range(4)]
        for raw in clients:
            for id in range(1, 20, 2):
                raw.h2.send_headers(id, HEADERS)
            await raw.flush()
        for _ in range(10):
            for raw in clients:
                for id in range(1, 20, 2):
                    raw.h2.send_data(id, b"\0")
                await raw.flush()
            await trio.testing.wait_all_tasks_blocked()
        assert it.echo.waiting == 1
        it.echo.release.set()
