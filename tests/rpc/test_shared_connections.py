"""A connection is shared by calls of many, with a forwarder by many clients: what one does is not the others' loss."""

from __future__ import annotations

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway import rpc
from headway.rpc import Limits, _pool
from tests.rpc.forward_kit import forwarded
from tests.rpc.rpc_kit import ECHO, WAIT, Text, served


async def test_metadata_that_the_upstream_would_not_take_ends_that_call_alone() -> None:
    """All of a forwarder's clients share its connections, and a server ends one with too many headers."""
    async with (
        forwarded() as (it, where),
        rpc.open_channel(where) as channel,
        rpc.open_channel(where) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(channel.unary, WAIT, Text(), Text)
        await it.echo.until_waiting(1)
        refused: list[GRPCError] = []
        # Those of about the size that the forwarder takes by itself.
        for size in range(15_900, 16_300, 20):
            try:
                await other.unary(ECHO, Text(), Text, metadata={"x-large": "x" * size})
            except GRPCError as error:
                refused.append(error)
        assert {(type(each), each.status) for each in refused} == {(rpc.NotBegun, Status.RESOURCE_EXHAUSTED)}
        assert it.server.connections == 1
        it.echo.release.set()


async def test_cancelled_calls_cost_nobody_else_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server ends one on which too many calls are cancelled: they are spread before it does."""
    assert (_pool._RESETS.burst, _pool._RESETS.per_second) < (Limits().resets.burst, Limits().resets.per_second)
    monkeypatch.setattr(_pool, "_RESETS", rpc.Rate(10, 0))
    async with (
        served(limits=Limits(resets=rpc.Rate(10, 0))) as it,
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
