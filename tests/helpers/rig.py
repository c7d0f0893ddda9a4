"""An engine with a `PoolsApp`, a scripted channel, a store that records its commits, and a witness of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway import testing
from headway.rpc import Channel
from headway.storage import Backend
from headway.testing import ScriptedChannel
from tests.helpers.contract import Witness
from tests.helpers.pools import Member, Pool, PoolsApp
from tests.helpers.settings import Setting
from tests.helpers.truth import RecordingBackend, RecordingSqlite

Through = Callable[[Channel], Channel]


class Rig:
    """The engine and its parts, under the virtual time of a test's clock. Configure the parts before `open`."""

    engine: headway.Engine

    def __init__(
        self,
        clock: MockClock,
        *,
        concurrency: int = 2,
        deadline: float = 20.0,
        store: RecordingBackend | RecordingSqlite | None = None,
        setting: Setting | None = None,
        pools: PoolsApp | None = None,
    ) -> None:
        self.clock = clock
        self.pools = pools or PoolsApp(concurrency=concurrency, deadline=deadline)
        self.channel = ScriptedChannel()
        self.setting = setting
        self.store = store or (RecordingBackend() if setting is None else setting.store())
        # Over the network: addresses to try before the rig's own server.
        self.first: list[str] = []
        self.lag_limit = 30.0
        # True once the store is open.
        self.opened = False
        self.witness = Witness(self.pools, self.channel, self.store)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[headway.Engine]:
        """Run the engine. If the block ends normally, fail if the witness has seen a violation of the contract."""
        assert trio.lowlevel.current_clock() is self.clock, "the test must take its clock as an argument"
        async with (
            self._reached() as (store, through),
            testing.open_engine(
                store,
                self.pools.app,
                report=self.witness.report,
                wrap_channel=through,
                timing=headway.Timing(lag_limit=self.lag_limit),
                check_isolation=True,
            ) as self.engine,
        ):
            yield self.engine
        self.witness.check()

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[tuple[AbstractAsyncContextManager[Backend], Through]]:
        """Yield the store for the engine, and the channel or address that its controllers use."""
        if self.setting is None or not self.setting.network:
            yield self.store, self.channel.over
            return
        async with (
            nullcontext(self.store) if self.opened else self.store as opened,
            self.setting.serving(opened, self.pools.app) as where,
            self.setting.channel(*self.first, where) as remote,
        ):
            yield nullcontext(opened), lambda _: self.channel.over(remote)

    @property
    def names(self) -> list[str]:
        """Return the names of the pools that were reconciled, in order."""
        return [seen.name for seen in self.witness.reconciles]

    async def write_pool(self, name: str, note: str = "") -> None:
        await self.engine.client.apply(self.pools.pool.new(name, Pool(note=note)))

    async def write_member(self, name: str, pool: str) -> None:
        await self.engine.client.apply(self.pools.member.new(name, Member(pool=pool)))

    async def summaries(self) -> dict[str, list[str]]:
        """Return the controller's summaries, as stored."""
        return {each.name: each.data.members for each in await self.engine.client.list(self.pools.summary)}

    async def wait_idle(self, seconds: float = 300.0) -> None:
        with trio.fail_after(seconds):
            await self.engine.wait_idle()

    async def run_until_blocked(self) -> None:
        """Let every task run until it waits for time or an event."""
        if self.setting is None:
            await wait_all_tasks_blocked()
        else:
            await self.setting.held.wait_blocked()

    async def restart(self) -> None:
        """End the run by an error of its source, and let the next run proceed as far as it can."""
        self.pools.fail_source()
        await trio.sleep(2)
