"""Leases of a process with long pauses of Python's garbage collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import trio
from trio.testing import MockClock

from headway.errors import LeaseLost
from tests.client.test_hold_lease import TTL, World


@contextmanager
def collections_that_take(clock: MockClock, seconds: float) -> Iterator[None]:
    """Let every collection take so long by the test's clock."""

    def pass_time(phase: str, info: Mapping[str, int]) -> None:  # noqa: ARG001 - see `gc.callbacks`
        if phase == "start":
            clock.jump(seconds)

    # Only those that the test asks for.
    gc.disable()
    gc.callbacks.append(pass_time)
    try:
        yield
    finally:
        gc.callbacks.remove(pass_time)
        gc.enable()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_long_pauses_leave_the_block_more_time_to_end(autojump_clock: MockClock, elsewhere: bool) -> None:
    """From the next renewal on, the holder relies on two pauses less of the ttl. It still renews in time."""
    world = World(autojump_clock)
    async with world.hold() as lease:
        await trio.sleep(TTL)
        with collections_that_take(autojump_clock, 2.5):
            assert lease.remaining > 2.5, "this pause is survived"
            if elsewhere:
                # Whatever thread collects, the collector stops all of them.
                thread = threading.Thread(target=gc.collect)
                thread.start()
                thread.join()
            else:
                gc.collect()
        await trio.sleep(TTL)
        for _ in range(200):
            await trio.sleep(TTL / 10)
            assert 0 < lease.remaining <= TTL - 2 * 2.5
    async with world.hold("grace") as lease:
        assert lease.remaining <= TTL - 2 * 2.5, "what was measured counts for the process's next leases"


async def test_holder_stopped_for_longer_than_its_ttl_loses_the_lease_first(
    autojump_clock: MockClock,
) -> None:
    """It sends no renewal, which would block other holders, and its block does not continue."""
    world = World(autojump_clock)
    before: list[str] = []
    went_on = False

    async def hold() -> None:
        nonlocal went_on
        async with world.hold() as lease:
            await trio.sleep(TTL)
            before.extend(world.network.calls)
            with collections_that_take(autojump_clock, TTL * 0.85):
                gc.collect()
            assert not lease.held
            assert lease.remaining == 0
            await trio.lowlevel.checkpoint()
            went_on = True

    with pytest.raises(LeaseLost, match="could not be renewed in time"):
        await hold()
    assert not went_on
    assert world.network.calls == [*before, "Release"]
    assert not [each for each in gc.callbacks if type(each).__name__ == "Pauses"]


async def test_each_run_of_trio_measures_its_own_pauses(autojump_clock: MockClock) -> None:
    """Each run has its own clock and its own measurements."""
    world = World(autojump_clock)
    async with world.hold() as lease:
        assert lease.remaining == TTL * 0.8
