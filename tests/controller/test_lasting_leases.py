"""A blocked loop loses no lease of a store that only this process can ask: nobody else could have taken it (C7)."""

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
    """A store by its URL, as a program names it; the clock waits for its threads."""
    monkeypatch.setattr(trio.to_thread, "run_sync", HeldClock(autojump_clock).run_sync)
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/staff.db"


async def _blocked(store: Store, clock: MockClock, placement: Any) -> Staff:
    """Block the loop for long in a reconcile, and let the controller go on."""
    staff, terms = Staff(), []

    @staff.app.controller(manages=staff.team, placement=placement)
    async def teams(rt: headway.Runtime, request: headway.Request) -> None:
        terms.append(rt.term)
        if request.id.name == "blocks" and len(terms) == 2:
            # No task of the loop runs between.
            clock.jump(LONG)

    async with staff.open(store):
        for name in ("before", "blocks", "after"):
            await staff.write_team(name)
            await staff.settle(1000)
        await trio.sleep(60)
    assert len(terms) >= 3
    return staff


@pytest.mark.parametrize("placement", ["singleton", headway.sharded(shards=2)])
async def test_c7_a_blocked_loop_loses_no_lease_of_its_own_store(
    store: str, placement: Any, autojump_clock: MockClock
) -> None:
    """The run goes on in its term."""
    staff = await _blocked(store, autojump_clock, placement)
    assert [each for each in staff.heard(events.LeaseEnded) if each.error is not None] == []
    assert [each for each in staff.heard(events.RunEnded) if each.error is not None] == []


async def test_c7_a_blocked_loop_loses_a_lease_that_others_can_ask_for(autojump_clock: MockClock) -> None:
    """A store that was handed in may be served by somebody else as well."""
    staff = await _blocked(MemoryBackend(), autojump_clock, "singleton")
    assert [type(each.error) for each in staff.heard(events.LeaseEnded) if each.error is not None] == [LeaseLost]


async def test_a_programs_own_lease_outlives_a_blocked_loop(store: str, autojump_clock: MockClock) -> None:
    """`hold_lease` as well, and another task of the process that waits for it waits until it is given back."""
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
async def test_a_lease_that_nothing_renews_runs_out_all_the_same(
    store: str, attempt: str, autojump_clock: MockClock
) -> None:
    """One that was taken by hand, without `hold_lease`."""
    del autojump_clock
    async with headway.open_engine(store, Staff().app) as engine:
        leases = engine.client.leases
        assert (await leases.acquire("reports", "web", 5.0, attempt=attempt)).acquired
        assert not (await leases.acquire("reports", "other", 5.0)).acquired
        await trio.sleep(6)
        assert (await leases.acquire("reports", "other", 5.0)).acquired


@pytest.mark.parametrize("tick", range(10))
async def test_c7_a_lease_that_is_given_back_while_the_loop_is_blocked_gets_free(
    store: str, tick: int, autojump_clock: MockClock
) -> None:
    """Whichever step of giving it back the block cuts off: at the latest the lease runs out."""
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


async def test_c7_a_lease_runs_out_when_giving_it_back_was_cut_off(store: str, autojump_clock: MockClock) -> None:
    """At its very first step, as by a block that its deadline does not outlive."""
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


async def test_a_second_holder_of_one_name_ends_the_first(store: str, autojump_clock: MockClock) -> None:
    """A lease that lasts is lost to its own holder's next term, as any other one is."""
    del autojump_clock

    async def twice(client: headway.Client) -> None:
        async with headway.hold_lease(client.leases, "reports", holder="web", ttl=5.0):
            assert (await client.leases.acquire("reports", "web", 5.0)).acquired
            await trio.sleep_forever()

    async with headway.open_engine(store, Staff().app) as engine:
        with pytest.raises(LeaseLost):
            await twice(engine.client)
