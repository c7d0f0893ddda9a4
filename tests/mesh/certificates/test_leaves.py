"""The leaves of one process, in virtual time: facts LC-4 to LC-6, and the weaknesses W-6, W-7 and W-17."""

from __future__ import annotations

import datetime
import gc
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import FailedPrecondition
from mesh.certificates import IdentityKey, LeafLimits, Leaves
from mesh.certificates.leaves import renewal
from mesh.certificates.signing import Signer

START = datetime.datetime(2026, 3, 4, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
WEB, API = IdentityKey("default", "default", "web"), IdentityKey("default", "default", "api")


def now() -> datetime.datetime:
    """Return the time of a clock that begins at `START`."""
    return START + datetime.timedelta(seconds=trio.current_time())


def signer() -> Signer:
    return Signer.new("cluster.local", now=now(), lifetime=1000 * HOUR)


@asynccontextmanager
async def renewing(
    limits: LeafLimits | None = None, seed: int = 1
) -> AsyncIterator[tuple[Leaves, list[IdentityKey | None]]]:
    """Yield leaves that are renewed, and the changes that they tell."""
    leaves = Leaves(limits=limits, now=now, chance=random.Random(seed).random)
    told: list[IdentityKey | None] = []
    leaves.subscribe(told.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leaves.renew)
        yield leaves, told
        nursery.cancel_scope.cancel()


def trust(leaves: Leaves, *roots: Signer, lifetime: datetime.timedelta = HOUR) -> None:
    leaves.trust(tuple(each.certificate for each in roots), roots[-1], lifetime)


@given(st.floats(0, 1), st.integers(1, 10**8))
def test_lc4_renewal_is_between_sixty_and_ninety_percent(chance: float, seconds: int) -> None:
    life = datetime.timedelta(seconds=seconds)
    found = renewal(START, START + life, chance) - START
    assert life * 0.599 <= found <= life * 0.901
    assert renewal(START, START + life, 0) < renewal(START, START + life, 1)


async def test_lc4_leaf_is_renewed_in_time_and_its_users_are_told(autojump_clock: trio.testing.MockClock) -> None:
    async with renewing() as (leaves, told):
        trust(leaves, signer())
        first = await leaves.leaf(WEB)
        assert await leaves.leaf(WEB) is first
        assert told == [None]
        times = []
        for count in range(1, 20):
            while told.count(WEB) < count:  # noqa: ASYNC110  # what is told is the subject
                await trio.sleep(30)
            times.append(now())
            assert (await leaves.leaf(WEB)).expires > now()
        between = [(later - earlier) / HOUR for earlier, later in itertools.pairwise(times)]
        assert 0.59 < min(between) < 0.7
        assert 0.8 < max(between) < 0.91


async def test_lc5_other_root_renews_all_leaves_soon_and_not_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with renewing() as (leaves, told):
        old, new = signer(), signer()
        trust(leaves, old)
        keys = [WEB._replace(name=f"web-{number}") for number in range(50)]
        for key in keys:
            await leaves.leaf(key)
        trust(leaves, old, new)
        start = trio.current_time()
        seconds = []
        while len(told) < 2 + len(keys):
            before = len(told)
            await trio.sleep(1)
            seconds += [trio.current_time() - start] * (len(told) - before)
        assert set(told) == {None, *keys}
        assert seconds[-1] <= 31
        assert len(set(seconds)) > 15
        for key in keys:
            assert new.has_signed(await leaves.leaf(key))
        trust(leaves, old, new)
        await trio.sleep(60)
        assert len(told) == 2 + len(keys)


async def test_lc6_w17_a_thousand_first_leaves_wait_their_turn_and_none_fails(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with renewing(LeafLimits(rate=100)) as (leaves, _):
        trust(leaves, signer())
        done: list[tuple[float, int]] = []

        async def one(number: int) -> None:
            await leaves.leaf(WEB._replace(name=f"web-{number}"))
            done.append((trio.current_time(), number))

        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(one, number)
        assert len(done) == 300
        assert 2.9 < trio.current_time() - start < 3.2
        in_a_second = sum(at < start + 1 for at, _ in done)
        assert in_a_second <= 102


async def test_one_identity_is_signed_once_for_all_that_ask(autojump_clock: trio.testing.MockClock) -> None:
    async with renewing(LeafLimits(rate=1)) as (leaves, _):
        trust(leaves, signer())
        found = []

        async def one() -> None:
            found.append(await leaves.leaf(WEB))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        assert len({each.chain for each in found}) == 1


async def test_w6_released_leaf_is_forgotten_and_never_signed_again(autojump_clock: trio.testing.MockClock) -> None:
    async with renewing() as (leaves, told):
        trust(leaves, signer())
        first = await leaves.leaf(WEB)
        leaves.release(WEB)
        leaves.release(API)
        assert len(leaves) == 0
        await trio.sleep(2 * 3600)
        assert told == [None]
        key = first.key
        del first
        gc.collect()
        assert key not in [each.key for each in gc.get_objects() if type(each).__name__ == "Leaf"]
        assert (await leaves.leaf(WEB)).key != key


async def test_released_while_it_waits_is_not_kept(autojump_clock: trio.testing.MockClock) -> None:
    async with renewing() as (leaves, told):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leaves.leaf, WEB)
            await trio.testing.wait_all_tasks_blocked()
            leaves.release(WEB)
            trust(leaves, signer())
        assert len(leaves) == 0
        await trio.sleep(2 * 3600)
        assert told == [None]


async def test_queue_of_renewals_is_bounded_when_identities_come_and_go(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with renewing() as (leaves, _):
        trust(leaves, signer(), lifetime=500 * HOUR)
        for number in range(300):
            key = WEB._replace(name=f"web-{number}")
            await leaves.leaf(key)
            leaves.release(key)
        assert len(leaves._renewals) < 70


async def test_number_of_leaves_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    async with renewing(LeafLimits(leaves=1)) as (leaves, _):
        trust(leaves, signer())
        await leaves.leaf(WEB)
        with pytest.raises(FailedPrecondition, match="keeps 1 leaves, and may not keep more"):
            await leaves.leaf(API)
        leaves.release(WEB)
        await leaves.leaf(API)


async def test_w7_leaf_waits_until_the_roots_are_known(autojump_clock: trio.testing.MockClock) -> None:
    async with renewing() as (leaves, _):
        assert leaves.roots() == ()
        with trio.move_on_after(100) as scope:
            await leaves.leaf(WEB)
        assert scope.cancelled_caught
        trust(leaves, signer())
        assert (await leaves.leaf(WEB)).expires > now()


@pytest.mark.parametrize("bad", [{"rate": 0}, {"leaves": -1}])
def test_limit_names_its_field(bad: dict[str, int]) -> None:
    [(name, value)] = bad.items()
    with pytest.raises(ValueError, match=f"{name} is {value}: it must be > 0"):
        LeafLimits(**bad)
