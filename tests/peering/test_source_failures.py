"""Failures of the source of a feed: the subscription to the exports ends, and another one follows it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock

from headway.rpc import InProcessChannel
from headway.subscribing import SUBSCRIBE
from tests.helpers.service_errors import failed
from tests.peering.link_kit import open_pair


class Breaking:
    """A channel whose subscriptions end when they are told to."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.broken = trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    @asynccontextmanager
    async def stream(
        self, path: str, request: object, *, metadata: Mapping[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[Any]]:
        assert path == SUBSCRIBE
        async with self._channel.stream(path, request, metadata=metadata) as items:
            yield self._read(items)

    async def _read(self, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        while True:
            found: list[Any] = []
            broken = self.broken

            async def take(scope: trio.CancelScope, found: list[Any] = found) -> None:
                found.append(await anext(items))
                scope.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(take, nursery.cancel_scope)
                await broken.wait()
                nursery.cancel_scope.cancel()
            if not found:
                raise failed(Status.UNAVAILABLE, "the store cannot be reached")
            yield found[0]

    def fail(self) -> None:
        """End the open subscriptions."""
        self.broken.set()
        self.broken = trio.Event()


@pytest.mark.parametrize("times", [1, 20])
async def test_stream_survives_failures_of_the_source(times: int, autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        channel = Breaking(pair.a.host.channel)
        assert isinstance(pair.a.host.channel, InProcessChannel)
        pair.a.host.channel = channel
        await pair.a.write("ada", "0")
        pair.connect()
        for number in range(times):
            await pair.a.write("ada", str(number))
            await pair.wait(pair.b, {"ada": [str(number)]})
            await trio.sleep(100)
            channel.fail()
            # The time of a failure does not grow with the failures of earlier hours.
            began = trio.current_time()
            await pair.a.write("ada", "later")
            await pair.wait(pair.b, {"ada": ["later"]})
            assert trio.current_time() - began < 10
        assert not pair.a.ends
        assert not pair.b.ends
