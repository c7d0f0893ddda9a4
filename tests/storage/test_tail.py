"""The pulse that wakes a store's watchers: every beat wakes those who wait, whatever is cancelled around it."""

from __future__ import annotations

import gc
import weakref

import pytest
import trio
import trio.testing

from headway.errors import StoreUnusable
from headway.storage._tail import Pulse


async def test_a_beat_wakes_all_who_wait_and_nobody_twice() -> None:
    """Who waits again is woken by the next beat, and a beat that nobody waits for is nobody's."""
    pulse, woken = Pulse(), 0

    async def waiter() -> None:
        nonlocal woken
        while True:
            await pulse.wait()
            woken += 1

    async with trio.open_nursery() as nursery:
        pulse.beat()
        for _ in range(3):
            nursery.start_soon(waiter)
        for wanted in (0, 3, 6):
            await trio.testing.wait_all_tasks_blocked()
            assert woken == wanted
            pulse.beat()
            pulse.beat()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_a_beat_and_a_cancellation_may_meet(cancelled_first: bool) -> None:
    """Whichever comes first is what the waiter gets; the other finds nobody there."""
    pulse, scope, outcomes = Pulse(), trio.CancelScope(), list[str]()

    async def waiter() -> None:
        with scope:
            await pulse.wait()
            outcomes.append("woken")
        outcomes.append("over")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter)
        await trio.testing.wait_all_tasks_blocked()
        for act in (scope.cancel, pulse.beat) if cancelled_first else (pulse.beat, scope.cancel):
            act()
    assert outcomes == (["over"] if cancelled_first else ["woken", "over"])


async def test_who_is_cancelled_and_waits_elsewhere_is_woken_only_there() -> None:
    """A cancelled waiter is a stranger to its former pulse, also before it has run."""
    former, other, woken = Pulse(), Pulse(), trio.Event()
    scope = trio.CancelScope()

    async def waiter() -> None:
        with scope:
            await former.wait()
        await other.wait()
        woken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        former.beat()
        await trio.testing.wait_all_tasks_blocked()
        assert not woken.is_set()
        other.beat()


async def test_a_pulse_keeps_nothing_of_who_was_cancelled() -> None:
    """Watchers come and go on a store that nothing is written to: their tasks go with them."""
    pulse = Pulse()
    tasks: list[weakref.ref[trio.lowlevel.Task]] = []

    async def waiter() -> None:
        tasks.append(weakref.ref(trio.lowlevel.current_task()))
        await pulse.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(waiter)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint()
    gc.collect()
    assert [task() for task in tasks] == [None] * 3


async def test_a_stopped_pulse_refuses_who_waits_then_and_later() -> None:
    """Nobody waits for a beat that can't come."""
    pulse = Pulse()

    async def watch() -> None:
        # What a beat has woken looks for news, finds none and waits again.
        while True:
            await pulse.wait()

    async def waiter() -> None:
        with pytest.raises(StoreUnusable, match="closed"):
            await watch()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter)
        await trio.testing.wait_all_tasks_blocked()
        pulse.stop(lambda: StoreUnusable("closed"))
        pulse.stop(lambda: StoreUnusable("again"))
        await waiter()
