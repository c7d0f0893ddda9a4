"""C6: the backlog makes progress under a stream of live changes."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.queue import LIVE_PER_BACKLOG
from headway.storage import MemoryBackend
from tests.helpers.pools import Pool, PoolsApp

LIVE = 50
"""How many keys change all the time."""
PAUSE = 0.01
"""Seconds of a reconcile."""


@pytest.mark.parametrize("size", [150, pytest.param(10_000, marks=[pytest.mark.deep, pytest.mark.timeout(600)])])
async def test_c6_stream_of_live_changes_does_not_starve_the_backlog(autojump_clock: MockClock, size: int) -> None:
    """Live changes come faster than the worker runs. Still, one of nine reconciles takes a key of the backlog."""
    pools, backend = PoolsApp(concurrency=1), MemoryBackend(max_changes=1_000)
    types = headway.App("bare")
    for type in pools.types:
        types.registry.register(type)
    async with headway.open_engine(backend, types) as engine:
        for number in range(size):
            await engine.client.write(pools.pool.new(f"old-{number}"))
    backlog = {f"old-{number}" for number in range(size)}
    done = trio.Event()
    # passed_by[n] is the number of live reconciles before the n-th key of the backlog was reconciled.
    passed_by: list[int] = []
    live = 0

    async def reconcile(_: headway.Runtime, request: headway.Request) -> None:
        nonlocal live
        await trio.sleep(PAUSE)
        if request.id.name in backlog:
            backlog.remove(request.id.name)
            passed_by.append(live)
        else:
            live += 1
        if not backlog:
            done.set()

    async def change(client: headway.Client) -> None:
        # The backlog is the set of resources that exist when the run begins.
        await begun.wait()
        number = 0
        while True:
            # Make 11 changes in the time of 10 reconciles.
            for _ in range(11):
                number += 1
                await client.apply(pools.pool.new(f"live-{number % LIVE}", Pool(note=str(number))))
            await trio.sleep(PAUSE * 10)

    begun = trio.Event()

    def report(event: object) -> None:
        if isinstance(event, headway.events.RunStarted) and event.controller == "test/pools":
            begun.set()

    pools.replace(reconcile)
    async with headway.open_engine(backend, pools.app, report=report) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(change, engine.client)
        with trio.fail_after(size * (LIVE_PER_BACKLOG + 1) * PAUSE * 1.02 + 1):
            await done.wait()
        nursery.cancel_scope.cancel()
    assert all(count <= number * LIVE_PER_BACKLOG for number, count in enumerate(passed_by, 1))
    # Live keys were always waiting: without its reserved turns, the backlog would never have been reconciled.
    assert live > size * LIVE_PER_BACKLOG * 0.9
