"""Connections without a call, under virtual time: their pings are the only thing that happens."""

from __future__ import annotations

import random
from pathlib import Path

import trio
from trio.testing import MockClock
from typing_extensions import override

from headway.client import Client
from headway.rpc import CHANNEL_LIMITS, open_channel
from tests.rpc.rpc_kit import DECODERS, THING, app, served

HOUR = 3600.0
_ENOUGH = 100_000
"""A number of steps that an idle connection does not take in many hours."""


class _StepLimit(trio.abc.Instrument):
    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope
        self.steps = 0

    @override
    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps > _ENOUGH:
            self._scope.cancel()


async def test_idle_connection_does_not_spin_when_its_ping_is_due(autojump_clock: MockClock, tmp_path: Path) -> None:
    """A ping is due at a time that rounds to less than the interval after the last byte, for some of these times."""
    where = f"unix:{tmp_path / 'socket'}"
    with trio.CancelScope() as scope:
        limit = _StepLimit(scope)
        trio.lowlevel.add_instrument(limit)
        async with served([where], patience=HOUR * 2) as it, open_channel([it.where], decoders=DECODERS) as channel:
            client, random_times = Client(channel, app.registry), random.Random(1)
            for _ in range(32):
                await trio.sleep(random_times.uniform(0, 70))
                await client.list(THING)
        trio.lowlevel.remove_instrument(limit)
    assert not scope.cancelled_caught, f"the connection spins at {autojump_clock.current_time()}"
    assert limit.steps > 32 * 30 / CHANNEL_LIMITS.wire.keepalive_interval
