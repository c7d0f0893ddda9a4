"""Polls and blocking queries whose functions fail while they are canceled, or never wait for anything."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from tests.helpers.fetched import opened, received


@pytest.mark.parametrize("kind", ["poll", "query"])
@pytest.mark.parametrize("ends", ["handle", "block", "cache"])
async def test_failure_of_a_task_of_a_canceled_call_ends_nothing_else(
    kind: str, ends: str, autojump_clock: MockClock
) -> None:
    """The function has a nursery, so its failure comes together with the cancellation, in one group."""
    failed: list[str] = []

    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            failed.append(kind)
            raise ValueError("the connection refuses to be closed")

    async def call(*_: int) -> tuple[int, str]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(trio.sleep_forever)
        return 1, "unreachable"

    async with opened() as (source, cache, updates):
        sound = updates.poll(source.poll, max_age=5)
        async with cache.notify() as other:
            bad = (
                other.poll(headway.notify.Poll(call), max_age=5)
                if kind == "poll"
                else other.query(headway.notify.BlockingQuery(call))
            )
            await received(updates)
            if ends == "handle":
                bad.close()
                await wait_all_tasks_blocked()
                assert failed
            if ends == "cache":
                return
        source.value = "second"
        await trio.sleep(10)
        assert (sound.value, failed) == ("second", [kind])


async def test_poll_that_never_waits_lets_other_tasks_run_and_can_be_canceled() -> None:
    """The function has no checkpoint, and its value is too old as soon as it is there."""
    most, calls = 500, 0

    async def call() -> int:
        nonlocal calls
        calls += 1
        if calls == most:
            # Otherwise a poll that no other task interrupts would never let the test fail.
            await trio.sleep_forever()
        return calls

    async with opened() as (_, cache, updates):
        rates = updates.poll(headway.notify.Poll(call), max_age=1e-300)
        await updates.primed()
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert 1 < rates.value == calls < most
        rates.close()
        await wait_all_tasks_blocked()
        assert calls < most
        assert not cache._answers._answers


@pytest.mark.parametrize("indexes", ["grow", "alternate"])
async def test_query_that_returns_something_new_at_once_is_paced(indexes: str, autojump_clock: MockClock) -> None:
    """Its index may be a time, or of two servers in turn. Without a pause it would take a whole processor."""
    calls = 0

    async def call(_: int) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        if calls == 2000:
            # Without a pause the clock of the test would stand still.
            await trio.sleep_forever()
        return (calls if indexes == "grow" else 1 + calls % 2), calls

    async with opened() as (_, _cache, updates):
        feed = updates.query(headway.notify.BlockingQuery(call))
        await updates.primed()
        await trio.sleep(2.0)
        assert 100 <= feed.value == calls <= 220


async def test_poll_that_returns_the_object_it_has_changed_reports_the_change(autojump_clock: MockClock) -> None:
    """There is nothing to compare a list with that the function has returned before and changed since."""
    rates: list[int] = []

    async def call() -> list[int]:
        rates.append(len(rates))
        return rates

    async with opened() as (_, _cache, updates):
        handle = updates.poll(headway.notify.Poll(call), max_age=5)
        await updates.primed()
        assert await anext(updates) is handle
        with trio.fail_after(20):
            assert await anext(updates) is handle
        assert handle.value == [0, 1]
