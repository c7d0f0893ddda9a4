"""A store that is replaced by another store under a running engine."""

from __future__ import annotations

import trio
from trio.testing import MockClock

import headway
from headway import events, testing
from headway.client import Client
from headway.errors import StoreChanged
from headway.rpc import Channel, InProcessChannel
from headway.service import LeaseService, ResourceService, StoreService
from headway.storage import MemoryBackend
from headway.testing import ScriptedChannel
from tests.helpers.passing_channel import PassingChannel
from tests.helpers.pools import Pool


async def test_runs_restart_when_another_store_replaces_theirs(autojump_clock: MockClock) -> None:
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
    switches: list[PassingChannel] = []

    def through(channel: Channel) -> Channel:
        switches.append(PassingChannel(channel))
        return script.over(switches[0])

    async with testing.open_engine("memory:", app, report=reported.append, wrap_channel=through) as engine:
        await engine.client.write(pool.new("ours"))
        await engine.wait_idle()
        assert seen[-1] == ["ours"]

        switches[0].inner = elsewhere
        script.drop(pool)
        await trio.sleep(60)

    ended = [event for event in reported if isinstance(event, events.RunEnded)]
    assert [type(event.error) for event in ended] == [StoreChanged]
    assert seen[-1] == ["theirs"]
    assert ["ours", "theirs"] not in seen
