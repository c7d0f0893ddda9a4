"""A store that is rolled back under a running engine: its controllers stop until it is accepted or replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from trio.testing import MockClock

import headway
from headway import events, testing
from headway.client import Client
from headway.errors import LeaseLost, StoreChanged, StoreRolledBack
from headway.rpc import Channel, InProcessChannel, PassingChannel
from headway.service import LeaseService, ResourceService, StoreService
from headway.storage import MemoryBackend
from headway.testing import ScriptedChannel
from tests.helpers.pools import Pool


@dataclass
class RolledBack:
    """An engine whose controllers' channel can be switched to an older copy of its store."""

    engine: headway.Engine
    copy: MemoryBackend
    write_to_copy: Callable[[str], Awaitable[Any]]
    seen: list[list[str]] = field(default_factory=list)
    reported: list[object] = field(default_factory=list)

    @property
    def ended_by(self) -> list[type[BaseException] | type[None]]:
        return [type(event.error) for event in self.reported if isinstance(event, events.RunEnded)]

    @property
    def errors(self) -> list[BaseException]:
        return [each.error for each in self.reported if isinstance(each, events.RunEnded) and each.error is not None]


def _give_id(store: MemoryBackend, id: str) -> None:
    store._store_id = id
    store._position = store.position._replace(store_id=id)


@asynccontextmanager
async def rolled_back(*, streams_break: bool = True) -> AsyncIterator[RolledBack]:
    """Roll the store back. The runs have ended when the block begins.

    If streams do not break, they stay open and silent: only the runs' own calls show that the store is another one.
    """
    app = headway.App("pools")
    pool = app.type("pools", "v1", "Pool", Pool)
    seen: list[list[str]] = []
    reported: list[object] = []

    @app.controller(manages=pool)
    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        seen.append([each.name for each in rt.cache.list(pool)])

    store, copy = MemoryBackend(), MemoryBackend()
    # An older copy has the same id, and a new session.
    _give_id(copy, store.position.store_id)
    elsewhere = InProcessChannel(
        ResourceService(copy, app.registry), LeaseService(copy), StoreService(copy, app.registry)
    )
    at_copy = Client(elsewhere, app.registry)
    await at_copy.write(pool.new("old"))
    script = ScriptedChannel()
    switches: list[PassingChannel] = []

    def through(channel: Channel) -> Channel:
        switches.append(PassingChannel(channel))
        return script.over(switches[0])

    async with testing.open_engine(store, app, report=reported.append, wrap_channel=through) as engine:
        for name in ("old", "newer", "newest"):
            await engine.client.write(pool.new(name))
        await engine.wait_idle()
        assert set(seen[-1]) == {"old", "newer", "newest"}
        assert not engine.accept_store()

        switches[0].over(elsewhere)
        if streams_break:
            script.drop(pool)
        else:
            # The copy does not know the lease, so the run ends when it renews that.
            await at_copy.write(pool.new("other"))
        await trio.sleep(120)
        it = RolledBack(engine, copy, lambda name: at_copy.write(pool.new(name)), seen, reported)
        assert set(it.ended_by) == ({StoreRolledBack} if streams_break else {LeaseLost, StoreRolledBack})
        yield it


async def test_no_run_begins_when_a_rolled_back_store_grows_past_its_previous_revision(
    autojump_clock: MockClock,
) -> None:
    """The new commits of the store are another history. No run writes to it either."""
    async with rolled_back() as it:
        reconciled = len(it.seen)
        for number in range(20):
            await it.write_to_copy(f"since-{number}")
        stands_at = it.copy.position.revision
        await trio.sleep(3600)
        assert len(it.seen) == reconciled
        assert set(it.ended_by) == {StoreRolledBack}
        # For a worker, there is no engine in a program of the operator.
        assert all("restart this process, or call accept_store() of its engine" in str(each) for each in it.errors)
        assert it.copy.position.revision == stands_at


async def test_runs_restart_when_a_rolled_back_store_is_accepted(autojump_clock: MockClock) -> None:
    """The runs see the content of the store and nothing that they cached before. A second acceptance has no effect."""
    async with rolled_back() as it:
        assert it.engine.accept_store()
        await trio.sleep(120)
        assert it.seen[-1] == ["old"]
        await it.write_to_copy("since")
        await trio.sleep(1)
        assert set(it.seen[-1]) == {"old", "since"}
        assert not it.engine.accept_store()


async def test_runs_restart_when_a_restored_store_has_a_new_id(autojump_clock: MockClock) -> None:
    """A restore that changes the store's id needs no acceptance."""
    async with rolled_back() as it:
        _give_id(it.copy, "restored")
        await trio.sleep(120)
        assert it.seen[-1] == ["old"]
        assert any(
            isinstance(event, events.StreamEnded) and "the store is now restored" in str(event) for event in it.reported
        )
        assert StoreChanged not in it.ended_by


async def test_no_run_begins_on_the_cache_of_a_lost_history_while_its_streams_are_silent(
    autojump_clock: MockClock,
) -> None:
    """The fence of the next run is a new commit, but not above what is cached."""
    async with rolled_back(streams_break=False) as it:
        reconciled = len(it.seen)
        await trio.sleep(3600)
        assert len(it.seen) == reconciled
        assert it.engine.accept_store()
        await trio.sleep(120)
        assert set(it.seen[-1]) == {"old", "other"}
