"""A store that was rolled back and then accepted: the revisions of the history that it has lost mean nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway import events
from headway.errors import StoreRolledBack
from headway.pauses import ControllerPaused, pause_controller, resume_controller
from headway.predicates import not_own_writes
from tests.helpers.pools import Member, Pool, SourceFailed
from tests.helpers.restorable import RestorableBackend


class Staff:
    """An engine whose controller maps members to pools, on a store that can be rolled back to how it began.

    Attributes:
        failing: True if the mapper raises.
        mapped: what each mapping has seen: its member's pool, the cached pools, and the lowest frontier.
        reconciled: the names of the reconciled pools.
        runtime: the reconcile context of the last run that began.
    """

    engine: headway.Engine
    runtime: headway.Runtime

    def __init__(self) -> None:
        self.app = app = headway.App("test")
        self.pool = app.type("test", "v1", "Pool", Pool)
        self.member = app.type("test", "v1", "Member", Member)
        self.failing = False
        self.mapped: list[tuple[str, set[str], int]] = []
        self.reconciled: list[str] = []
        self.store = RestorableBackend()
        self._ends: list[events.RunEnded] = []
        self._reported = trio.Event()
        self._trouble = trio.Event()

        def map_member(member: headway.Resource[Member], cache: headway.CacheReader) -> list[headway.ResourceId]:
            pools = {pool.name for pool in cache.list(self.pool)}
            low = min(cache.revision(self.pool), cache.revision(self.member))
            self.mapped.append((member.data.pool, pools, low))
            if self.failing:
                raise ValueError("fails")
            return [self.pool.id(member.data.pool)]

        @app.controller(
            manages=self.pool,
            watches=[headway.watch(self.member, map_member, when=not_own_writes())],
            sources={"trouble": self._source},
            backoff=headway.Backoff(1.0, 1.0),
            name="pools",
        )
        async def reconcile(_: headway.Runtime, request: headway.Request[Pool]) -> None:
            self.reconciled.append(request.id.name)

    async def _source(self, rt: headway.Runtime, _: Callable[[headway.ResourceId], None]) -> None:
        self.runtime = rt
        await self._trouble.wait()
        self._trouble = trio.Event()
        raise SourceFailed

    def end_run(self) -> None:
        """Let the current run fail."""
        self._trouble.set()

    def report(self, event: object) -> None:
        if isinstance(event, events.RunEnded) and event.controller == "test/pools":
            self._ends.append(event)
        self._reported.set()

    async def ended(self, error: type[Exception]) -> None:
        """Wait until a run has ended with this error since the last call."""
        await self.until(lambda: any(isinstance(event.error, error) for event in self._ends))
        self._ends.clear()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true after an event."""
        with trio.fail_after(600):
            while not condition():
                self._reported = trio.Event()
                await self._reported.wait()

    def unmapped(self) -> int:
        return self.engine.controllers["pools"].status().unmapped

    async def write_unmapped(self) -> int:
        """Update a member, so that the mapping fails, and return the revision."""
        written = await self.engine.client.write(self.member.new("m", Member(pool="before")))
        await self.engine.wait_idle()
        self.failing = True
        written.data.pool = "of-m"
        written = await self.engine.client.write(written)
        await self.until(lambda: self.unmapped() == 1)
        return int(written.version)


@asynccontextmanager
async def staff(*, paused: bool = False) -> AsyncIterator[tuple[Staff, Callable[[], None]]]:
    """Provide a running engine in which something has been written, and a function that rolls its store back.

    ``paused``: the controller is paused in the state that the store is rolled back to.
    """
    it = Staff()
    async with headway.open_engine(it.store, it.app, report=it.report) as it.engine:
        await it.engine.wait_idle()
        if paused:
            await pause_controller(it.engine.client, "test/pools")
        backup = it.store.back_up()
        if paused:
            await resume_controller(it.engine.client, "test/pools")
        for number in range(20):
            await it.engine.client.write(it.pool.new(f"p{number}"))
        await it.engine.wait_idle()
        yield it, lambda: it.store.restore(backup, new_id=False)


async def test_change_of_the_lost_history_is_not_taken_for_an_own_write_of_the_next_run(
    autojump_clock: MockClock,
) -> None:
    """The run writes the same resource, and the store gives that commit the revision of the lost one."""
    async with staff() as (it, roll_back):
        revision = await it.write_unmapped()
        roll_back()
        await it.ended(StoreRolledBack)
        it.reconciled.clear()
        assert it.engine.accept_store()
        await it.until(lambda: it.unmapped() == 1)
        # The source of that run may begin after its first mapping.
        await wait_all_tasks_blocked()
        member = it.member.new("m", Member(pool="after"))
        while int(member.version or 0) < revision:
            member.data.pool = f"after-{int(member.version or 0)}"
            member = await it.runtime.client.write(member)
        assert int(member.version) == revision
        it.failing = False
        with trio.fail_after(600):
            await it.engine.wait_idle()
        assert "of-m" in it.reconciled


async def test_store_is_accepted_for_streams_that_have_not_noticed_the_rollback(autojump_clock: MockClock) -> None:
    """The streams of Headway's own types are slower. They deliver the pauses of the accepted store."""
    async with staff(paused=True) as (it, roll_back):
        roll_back()
        await it.ended(StoreRolledBack)
        assert it.engine.accept_store()
        await it.until(lambda: it.engine.controllers["pools"].status().paused is not None)
        await trio.sleep(120)
        assert not it.engine.accept_store()


@pytest.mark.parametrize("paused", [False, True])
async def test_wait_for_idleness_that_began_in_the_lost_history_ends_in_the_accepted_one(
    autojump_clock: MockClock, paused: bool
) -> None:
    """The new run has all that is stored, but the store may never reach the revision that was waited for."""
    async with staff(paused=paused) as (it, roll_back):
        await it.write_unmapped()
        raised: list[BaseException] = []

        async def wait_idle() -> None:
            try:
                await it.engine.wait_idle()
            except ControllerPaused as error:
                raised.append(error)

        with trio.fail_after(600):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_idle)
                await wait_all_tasks_blocked()
                roll_back()
                await it.ended(StoreRolledBack)
                it.failing = False
                assert it.engine.accept_store()
        assert bool(raised) == paused
