"""The asyncio loop of a connection ends, whenever its opening is canceled."""

from __future__ import annotations

import trio

from headway import rpc


async def test_opening_that_is_canceled_from_the_start_ends() -> None:
    """The loop shields itself, so only the task that opens it can end it."""
    with trio.CancelScope() as scope:
        scope.cancel()
        async with rpc.open_channel("127.0.0.1:1"):
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_opening_that_is_canceled_at_any_step_ends() -> None:
    """A step is a turn of Trio's scheduler."""
    for steps in range(60):
        async with trio.open_nursery() as nursery:

            async def cancel(nursery: trio.Nursery = nursery, steps: int = steps) -> None:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()

            nursery.start_soon(cancel)
            async with rpc.open_channel("127.0.0.1:1"):
                await trio.sleep_forever()
