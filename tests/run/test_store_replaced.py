"""A store that is replaced by another store under a running engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import trio
from trio.testing import MockClock

import headway
from headway import events, testing
from headway.client import Client
from headway.errors import StoreChanged
from headway.rpc import Channel, InProcessChannel, Metadata
from headway.service import LeaseService, ResourceService, StoreService
from headway.storage import MemoryBackend
from headway.testing import ScriptedChannel
from tests.helpers.pools import Pool

Reply = TypeVar("Reply")


class Switch:
    """A `Channel` to one of two services, with a switch between them."""

    def __init__(self, to: Channel) -> None:
        self.to = to

    @property
    def knows_outcomes(self) -> bool:
        return self.to.knows_outcomes

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        return await self.to.unary(path, request, reply_type, metadata=metadata)

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        return self.to.stream(path, request, metadata=metadata)


async def test_runs_restart_when_another_store_replaces_theirs(
    autojump_clock: MockClock,  # noqa: ARG001  # for virtual time
) -> None:
    """The report has the error. The next run sees the content of the new store and nothing of the old one."""
    app = headway.App("pools")
    pool = app.type("pools", "v1", "Pool", Pool)
    seen: list[list[str]] = []
    reported: list[object] = []

    @app.controller(manages=pool)
    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        seen.append([each.name for each in rt.cache.list(pool)])

    other = MemoryBackend()
    elsewhere = InProcessChannel(
        ResourceService(other, app.registry), LeaseService(other), StoreService(other, app.registry)
    )
    await Client(elsewhere, app.registry).write(pool.new("theirs"))
    script = ScriptedChannel()
    switches: list[Switch] = []

    def through(channel: Channel) -> Channel:
        switches.append(Switch(channel))
        return script.over(switches[0])

    async with testing.open_engine("memory:", app, report=reported.append, wrap_channel=through) as engine:
        await engine.client.write(pool.new("ours"))
        await engine.wait_idle()
        assert seen[-1] == ["ours"]

        switches[0].to = elsewhere
        script.drop(pool)
        await trio.sleep(60)

    ended = [event for event in reported if isinstance(event, events.RunEnded)]
    assert [type(event.error) for event in ended] == [StoreChanged]
    assert seen[-1] == ["theirs"]
    assert ["ours", "theirs"] not in seen
