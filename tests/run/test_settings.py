"""The clock of the contract tests, which stands still while a thread works or a byte is between two sockets."""

from __future__ import annotations

import time

import trio
from trio.testing import MockClock

import headway
from tests.helpers.pools import Pool, PoolsApp
from tests.helpers.settings import Setting


async def test_time_stands_still_while_work_is_in_progress(autojump_clock: MockClock, setting: Setting) -> None:
    """Writes take no virtual time on any store and transport, even while a task waits for time to pass."""
    pools = PoolsApp()
    pools.app.controllers.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 3600)
        async with (
            setting.store() as store,
            setting.serving(store, pools.app) as where,
            setting.channel(where) as channel,
        ):
            client = headway.Client(channel, pools.app.registry)
            for number in range(20):
                await client.apply(pools.pool.new(f"p-{number}", Pool(note="x" * 100_000)))
            assert len(await client.list(pools.pool)) == 20
            await trio.to_thread.run_sync(time.sleep, 0.05)
            assert autojump_clock.current_time() == 0
        nursery.cancel_scope.cancel()
