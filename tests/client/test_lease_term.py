"""The term of a lease by its holder's own clock, also when Python's garbage collector causes long pauses."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import trio
from trio.testing import MockClock

from headway.client import LeaseTerm
from headway.errors import LeaseLost
from tests.client.test_hold_lease import TTL, Fault, World


def test_term_is_held_for_four_fifths_of_its_ttl_from_the_request_on() -> None:
    """The time of the reply does not matter."""
    term = LeaseTerm(3, 10.0, 100.0)
    assert (term.number, term.until) == (3, 108.0)
    assert term.is_held(107.9)
    assert not term.is_held(108.0)


def test_renewal_counts_from_its_request_and_never_shortens_the_term() -> None:
    """The reply to an earlier request may arrive after the reply to a later request."""
    term = LeaseTerm(3, 10.0, 100.0)
    term.renewed(106.0, 107.0)
    assert term.until == 114.0
    term.renewed(103.0, 108.0)
    assert term.until == 114.0
    assert term.is_held(113.9)


def test_lost_term_stays_lost() -> None:
    """The term may be lost by its time, noticed or not before a renewal, or by the server's reply."""
    late = LeaseTerm(3, 10.0, 100.0)
    late.renewed(107.0, 108.0)
    assert not late.is_held(108.0)
    seen = LeaseTerm(3, 10.0, 100.0)
    assert not seen.is_held(109.0)
    seen.renewed(107.0, 107.5)
    assert not seen.is_held(107.5)
    told = LeaseTerm(3, 10.0, 100.0)
    told.lost = True
    told.renewed(101.0, 102.0)
    assert not told.is_held(102.0)


def test_process_that_pauses_relies_on_less_of_its_ttl() -> None:
    """The deadline and the shutdown may each be delayed by a pause. At least half of the ttl is left."""
    for pause, counted in ((0.0, 8.0), (1.0, 8.0), (1.5, 7.0), (2.0, 6.0), (2.5, 5.0), (60.0, 5.0)):
        assert LeaseTerm(3, 10.0, 100.0, pause).until == 100.0 + counted
        renewed = LeaseTerm(3, 10.0, 100.0)
        renewed.renewed(104.0, 105.0, pause)
        assert renewed.until == max(108.0, 104.0 + counted), "a renewal must not shorten the term"


@contextmanager
def collections_that_take(clock: MockClock, seconds: float) -> Iterator[None]:
    """Make every collection take that many seconds of the test's clock."""

    def pass_time(phase: str, info: Mapping[str, int]) -> None:  # noqa: ARG001 - see `gc.callbacks`
        if phase == "start":
            clock.jump(seconds)

    # Run only the collections that the test requests.
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
            assert lease.remaining > 2.5, "the lease must outlast this pause"
            if elsewhere:
                # The collector stops all threads, whichever thread runs it.
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
        assert lease.remaining <= TTL - 2 * 2.5, "the measured pauses must count for later leases of the process"


async def test_holder_stopped_for_longer_than_its_ttl_loses_the_lease_first(
    autojump_clock: MockClock,
) -> None:
    """The holder sends no late renewal, which would block other holders, and its block does not continue."""
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
    """Each run has its own clock, and its own measurements."""
    world = World(autojump_clock)
    async with world.hold() as lease:
        assert lease.remaining == TTL * 0.8


async def test_slowly_renewed_lease_is_given_up_before_it_expires(autojump_clock: MockClock) -> None:
    """C7: the reply to a renewal takes long, and no later renewal succeeds. The server counts from the request on."""
    world = World(autojump_clock)
    with pytest.raises(LeaseLost, match="could not be renewed in time"):  # noqa: PT012  # what is in it is canceled
        async with world.hold():
            world.network.latency = TTL / 4 - 0.1
            while "KeepAlive" not in world.network.calls:  # noqa: ASYNC110  # the network has no event for it
                await trio.sleep(0.1)
            world.network.broken = Fault.FAILED
            renewed_at = world.network.times[-1]
            try:
                await trio.sleep_forever()
            finally:
                assert trio.current_time() - renewed_at == pytest.approx(TTL * 0.8)
                with trio.CancelScope(shield=True):
                    assert await world.holder() == ("ada", 1), "another could have had it while the block was running"
