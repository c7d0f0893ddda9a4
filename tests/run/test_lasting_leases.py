"""A blocked loop keeps a lease of a store that only this process can use: no other could acquire it (C7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.errors import LeaseLost
from headway.storage import MemoryBackend
from tests.helpers.settings import HeldClock
from tests.helpers.staff import Staff

LONG = 200.0
"""More than ten times a ttl, and less than the deadline of a reconcile."""
Store = Any


@pytest.fixture(params=["memory", "sqlite"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Open a store by its URL, as a program does. The clock waits for its threads."""
    HeldClock(autojump_clock).watch_threads(monkeypatch)
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/staff.db"


async def _blocked(store: Store, clock: MockClock, placement: Any) -> Staff:
    """Block the loop for a long time in a reconcile, then let the controller continue."""
    staff, terms = Staff(), []

    @staff.app.controller(manages=staff.team, placement=placement)
    async def teams(rt: headway.Runtime, request: headway.Request) -> None:
        terms.append(rt.term)
        if request.id.name == "blocks" and len(terms) == 2:
            # No other task of the loop runs during the jump.
            clock.jump(LONG)

    async with staff.open(store):
        for name in ("before", "blocks", "after"):
            await staff.write_team(name)
            await staff.wait_idle(1000)
        await trio.sleep(60)
    assert len(terms) >= 3
    return staff


@pytest.mark.parametrize("placement", ["singleton", headway.sharded(shards=2)])
async def test_c7_blocked_loop_keeps_a_lease_of_its_own_store(
    store: str, placement: Any, autojump_clock: MockClock
) -> None:
    """The run continues in the same term."""
    staff = await _blocked(store, autojump_clock, placement)
    assert [each for each in staff.events_of(events.LeaseEnded) if each.error is not None] == []
    assert [each for each in staff.events_of(events.RunEnded) if each.error is not None] == []


async def test_c7_blocked_loop_loses_a_lease_that_others_can_acquire(autojump_clock: MockClock) -> None:
    """Another process may serve a store that was passed to the engine."""
    staff = await _blocked(MemoryBackend(), autojump_clock, "singleton")
    assert [type(each.error) for each in staff.events_of(events.LeaseEnded) if each.error is not None] == [LeaseLost]


async def test_lease_of_a_program_outlives_a_blocked_loop(store: str, autojump_clock: MockClock) -> None:
    """This holds for `hold_lease`. Another task of the process that waits for the lease waits until it is released."""
    order: list[str] = []

    async def wait(client: headway.Client) -> None:
        async with headway.hold_lease(client.leases, "reports", holder="other", ttl=5.0):
            order.append("other")

    async with (
        headway.open_engine(store, Staff().app) as engine,
        trio.open_nursery() as nursery,
        headway.hold_lease(engine.client.leases, "reports", holder="web", ttl=5.0) as lease,
    ):
        nursery.start_soon(wait, engine.client)
        await trio.sleep(1)
        autojump_clock.jump(LONG)
        await trio.sleep(30)
        assert lease.held
        [listed] = [each for each in await engine.client.leases.list() if each.name == "reports"]
        assert (listed.holder, listed.expires_in) == ("web", 5.0)
        order.append("web")
    assert order == ["web", "other"]


@pytest.mark.parametrize("attempt", ["", "first"])
async def test_lease_without_renewal_expires(store: str, attempt: str, autojump_clock: MockClock) -> None:
    """The lease was acquired without `hold_lease`, so no task renews it."""
    del autojump_clock
    async with headway.open_engine(store, Staff().app) as engine:
        leases = engine.client.leases
        assert (await leases.acquire("reports", "web", 5.0, attempt=attempt)).acquired
        assert not (await leases.acquire("reports", "other", 5.0)).acquired
        await trio.sleep(6)
        assert (await leases.acquire("reports", "other", 5.0)).acquired


@pytest.mark.parametrize("tick", range(10))
async def test_c7_lease_released_while_the_loop_is_blocked_becomes_free(
    store: str, tick: int, autojump_clock: MockClock
) -> None:
    """The block may cut off any step of the release. At the latest, the lease expires."""
    leave = trio.Event()

    async def hold(client: headway.Client) -> None:
        async with headway.hold_lease(client.leases, "reports", holder="web", ttl=5.0):
            await leave.wait()

    async def block() -> None:
        await leave.wait()
        for _ in range(tick):
            await trio.lowlevel.checkpoint()
        autojump_clock.jump(LONG)

    async with headway.open_engine(store, Staff().app) as engine:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold, engine.client)
            nursery.start_soon(block)
            await trio.sleep(1)
            leave.set()
        await trio.sleep(6)
        assert [each.name for each in await engine.client.leases.list()] == []


async def test_c7_lease_expires_if_its_release_was_cut_off(store: str, autojump_clock: MockClock) -> None:
    """The release is cut off at its first step, as by a block that lasts longer than its deadline."""
    async with headway.open_engine(store, Staff().app) as engine:
        leases = engine.client.leases
        granted = await leases.acquire("reports", "web", 5.0, attempt="first")
        await leases.keep_alive("reports", "web", granted.term)
        autojump_clock.jump(LONG)
        assert (await leases.list())[0].expires_in == 5.0
        with trio.CancelScope() as scope:
            scope.cancel()
            await leases.release("reports", "web", granted.term)
        assert scope.cancelled_caught
        assert not (await leases.acquire("reports", "other", 5.0)).acquired
        await trio.sleep(6)
        assert (await leases.acquire("reports", "other", 5.0)).acquired


async def test_second_holder_of_the_same_name_ends_the_first(store: str, autojump_clock: MockClock) -> None:
    """A lease that outlasts a blocked loop is still lost to the next term of its own holder, like any other lease."""
    del autojump_clock

    async def twice(client: headway.Client) -> None:
        async with headway.hold_lease(client.leases, "reports", holder="web", ttl=5.0):
            assert (await client.leases.acquire("reports", "web", 5.0)).acquired
            await trio.sleep_forever()

    async with headway.open_engine(store, Staff().app) as engine:
        with pytest.raises(LeaseLost):
            await twice(engine.client)
