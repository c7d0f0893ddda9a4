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


@pytest.mark.parametrize("size", [500, pytest.param(10_000, marks=[pytest.mark.deep, pytest.mark.timeout(600)])])
async def test_c6_stream_of_live_changes_does_not_starve_the_backlog(
    autojump_clock: MockClock,  # noqa: ARG001  # the test runs by it
    size: int,
) -> None:
    """Live changes come faster than the worker runs; one of nine reconciles still takes a key of the backlog."""
    pools, backend = PoolsApp(concurrency=1), MemoryBackend(max_changes=1_000)
    types = headway.App("bare")
    for type in pools.types:
        types.registry.register(type)
    async with headway.open_engine(backend, types) as engine:
        for number in range(size):
            await engine.client.write(pools.pool.new(f"old-{number}"))
    backlog = {f"old-{number}" for number in range(size)}
    done = trio.Event()
    # How many reconciles of live keys there were, when the n-th backlog key was reconciled.
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
        # What is there when the run begins belongs to the backlog.
        await begun.wait()
        number = 0
        while True:
            # 11 in the time of 10 reconciles.
            for _ in range(11):
                number += 1
                await client.apply(pools.pool.new(f"live-{number % LIVE}", Pool(note=str(number))))
            await trio.sleep(PAUSE * 10)

    begun = trio.Event()

    def report(event: object) -> None:
        if isinstance(event, headway.events.RunStarted) and event.controller in pools.app.controllers:
            begun.set()

    pools.replace(reconcile)
    async with headway.open_engine(backend, pools.app, report=report) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(change, engine.client)
        with trio.fail_after(size * (LIVE_PER_BACKLOG + 1) * PAUSE * 1.02 + 1):
            await done.wait()
        nursery.cancel_scope.cancel()
    assert all(count <= number * LIVE_PER_BACKLOG for number, count in enumerate(passed_by, 1))
    # The live ones were always there: without the turns of the backlog it would not have been reconciled at all.
    assert live > size * LIVE_PER_BACKLOG * 0.9
