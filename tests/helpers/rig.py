"""An engine with a `PoolsApp`, over a scripted channel and a store that records, with a witness in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

import headway
from headway.testing import ScriptedChannel
from tests.helpers.contract import Witness
from tests.helpers.pools import Member, Pool, PoolsApp
from tests.helpers.truth import RecordingBackend


class Rig:
    """All of it, under the virtual time of a test's clock. The parts can be told what to do before `open`."""

    engine: headway.Engine

    def __init__(
        self,
        clock: MockClock,
        *,
        concurrency: int = 2,
        deadline: float = 20.0,
        store: RecordingBackend | None = None,
    ) -> None:
        self.clock = clock
        self.pools = PoolsApp(concurrency=concurrency, deadline=deadline)
        self.channel = ScriptedChannel()
        self.store = store or RecordingBackend()
        self.witness = Witness(self.pools, self.channel, self.store)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[headway.Engine]:
        """Run it. When the block ends normally, nothing that the witness saw may have broken the contract."""
        async with headway.open_engine(
            self.store,
            self.pools.app,
            report=self.witness.report,
            through=self.channel.over,
            check_isolation=True,
        ) as self.engine:
            yield self.engine
        self.witness.check()

    @property
    def names(self) -> list[str]:
        """The pools that were reconciled, in order."""
        return [seen.name for seen in self.witness.reconciles]

    async def write_pool(self, name: str, note: str = "") -> None:
        await self.engine.client.apply(self.pools.pool.new(name, Pool(note=note)))

    async def write_member(self, name: str, pool: str) -> None:
        await self.engine.client.apply(self.pools.member.new(name, Member(pool=pool)))

    async def summaries(self) -> dict[str, list[str]]:
        """What the controller has made, as the store has it."""
        return {each.name: each.data.members for each in await self.engine.client.list(self.pools.summary)}

    async def settle(self, seconds: float = 300.0) -> None:
        with trio.fail_after(seconds):
            await self.engine.wait_settled()

    async def restart(self) -> None:
        """End the run by its source, and let the next one begin as far as it can."""
        self.pools.fail_source()
        await trio.sleep(2)
