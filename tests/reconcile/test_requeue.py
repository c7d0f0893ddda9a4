"""The requests that a successful reconcile may return."""

from __future__ import annotations

import trio
from trio.testing import MockClock

import headway
from tests.helpers.pools import Pool


async def test_requeued_key_is_reconciled_after_its_delay(autojump_clock: MockClock) -> None:
    """It doesn't come before, though nothing changes; its reason says so, and it is a first attempt."""
    app = headway.App("pools")
    pool = app.type("pools", "v1", "Pool", Pool)
    seen: list[tuple[float, int, tuple[str, ...]]] = []

    @app.controller(manages=pool)
    async def look(_: headway.Runtime, request: headway.Request) -> headway.RequeueAfter | None:
        seen.append((trio.current_time(), request.attempt, tuple(reason.what for reason in request.reasons)))
        return headway.requeue_after(600) if len(seen) == 1 else None

    async with headway.open_engine("memory:", app) as engine:
        await engine.client.write(pool.new("a"))
        await trio.sleep(3 * 600)

    (first, *_), (second, *rest) = seen
    assert round(second - first, 3) == 600
    assert rest == [1, ("requeue",)]


async def test_immediate_requeue_goes_behind_waiting_keys(autojump_clock: MockClock) -> None:
    """With one worker the other key has its turn first."""
    app = headway.App("pools")
    pool = app.type("pools", "v1", "Pool", Pool)
    seen: list[str] = []
    both = trio.Event()

    @app.controller(manages=pool)
    async def look(_: headway.Runtime, request: headway.Request) -> headway.RequeueAfter | None:
        await both.wait()
        seen.append(request.id.name)
        return headway.requeue_now() if seen == ["a"] else None

    async with headway.open_engine("memory:", app) as engine:
        await engine.client.write(pool.new("a"))
        await trio.sleep(1)
        await engine.client.write(pool.new("b"))
        await trio.sleep(1)
        both.set()
        await engine.wait_idle()

    assert seen == ["a", "b", "a"]
