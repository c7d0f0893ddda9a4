"""The pulse that wakes a store's watchers: every beat wakes all waiters, even if some of them are canceled."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import trio
import trio.testing

from headway.errors import StoreUnusable
from headway.storage import Pulse


async def test_beat_wakes_each_waiter_once() -> None:
    """A task that waits again is woken by the next beat. A beat without waiters is not remembered."""
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


@pytest.mark.parametrize("canceled_first", [True, False])
async def test_beat_and_cancellation_may_coincide(canceled_first: bool) -> None:
    """The waiter gets the first of them, and the other one has no effect."""
    pulse, scope, outcomes = Pulse(), trio.CancelScope(), list[str]()

    async def waiter() -> None:
        with scope:
            await pulse.wait()
            outcomes.append("woken")
        outcomes.append("over")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter)
        await trio.testing.wait_all_tasks_blocked()
        for act in (scope.cancel, pulse.beat) if canceled_first else (pulse.beat, scope.cancel):
            act()
    assert outcomes == (["over"] if canceled_first else ["woken", "over"])


async def test_canceled_waiter_is_not_woken_by_its_former_pulse() -> None:
    """This holds even before the canceled task has run."""
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


async def test_pulse_drops_canceled_waiters() -> None:
    """Watchers come and go on an idle store, and their tasks must be freed."""
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


async def test_stopped_pulse_refuses_current_and_later_waiters() -> None:
    """A beat can no longer come."""
    pulse = Pulse()

    async def watch() -> None:
        # A woken waiter looks for changes, finds none and waits again.
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


async def test_beat_wakes_all_although_one_cannot_say_whether_it_stays_asleep() -> None:
    """The error belongs to the task that is asked. It is found when the task looks for itself."""
    pulse, woken = Pulse(), list[str]()

    def fails() -> bool:
        raise ValueError("what came cannot be read")

    async def waiter(name: str, stays_asleep: Callable[[], bool] | None) -> None:
        await pulse.wait(stays_asleep)
        woken.append(name)

    async with trio.open_nursery() as nursery:
        for name, stays_asleep in (("one", None), ("failing", fails), ("sleeping", lambda: True), ("two", None)):
            nursery.start_soon(waiter, name, stays_asleep)
        await trio.testing.wait_all_tasks_blocked()
        pulse.beat()
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(woken) == ["failing", "one", "two"]
        nursery.cancel_scope.cancel()


async def test_beat_of_another_run_leaves_the_waiters_to_the_next_beat() -> None:
    """Only a beat in their own run can wake them. One in another run must not lose them, and must not fail."""
    pulse, woken = Pulse(), list[str]()

    async def waiter(name: str) -> None:
        await pulse.wait()
        woken.append(name)

    async def beat() -> None:
        pulse.beat()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiter, "one")
        nursery.start_soon(waiter, "two")
        await trio.testing.wait_all_tasks_blocked()
        await trio.to_thread.run_sync(trio.run, beat)
        assert woken == []
        pulse.beat()
    assert sorted(woken) == ["one", "two"]
