"""`ThreadCalls`: functions in worker threads, whose calls end neither by cancellation nor by an interrupt."""

import contextlib
import os
import signal
import threading
import time
from typing import Any

import pytest
import trio
import trio.testing

from headway.base import ThreadCalls, thread_calls, wait_thread_calls


async def test_call_returns_the_result_or_raises_the_error() -> None:
    """The function runs in another thread."""
    calls: ThreadCalls[object] = ThreadCalls()
    assert await calls.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ValueError, match="invalid literal"):
        await calls.run(lambda: int("x"))
    assert [await calls.run(lambda each=each: each) for each in range(100)] == list(range(100))  # type: ignore[misc]
    calls.close()


async def test_loop_continues_during_a_call() -> None:
    """The call waits for its thread, and other tasks run meanwhile."""
    calls: ThreadCalls[bool] = ThreadCalls()
    goes_on = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.run, lambda: goes_on.wait(20))
        await trio.testing.wait_all_tasks_blocked()
        assert thread_calls() == 1
        goes_on.set()
    assert thread_calls() == 0
    calls.close()


async def test_canceled_call_ends_with_its_thread() -> None:
    """The cancellation is delivered at the next checkpoint. A call in a canceled scope runs too."""
    calls: ThreadCalls[bool] = ThreadCalls()
    goes_on = threading.Event()
    results: list[bool] = []

    async def call() -> None:
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel, scope)
            results.append(await calls.run(lambda: goes_on.wait(20)))
            results.append(await calls.run(lambda: goes_on.wait(20)))
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught

    async def cancel(scope: trio.CancelScope) -> None:
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert results == [], "the call ended before its thread"
        goes_on.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
    assert results == [True, True]
    calls.close()


def test_interrupted_call_ends_with_its_thread() -> None:
    """KeyboardInterrupt comes after the call, although no shield would hold it back."""
    results: list[bool] = []

    @trio.lowlevel.enable_ki_protection
    async def main() -> None:
        calls: ThreadCalls[bool] = ThreadCalls()
        goes_on = threading.Event()

        @trio.lowlevel.enable_ki_protection
        async def interrupt() -> None:
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGINT)
            await trio.testing.wait_all_tasks_blocked()
            assert results == [], "the call ended before its thread"
            goes_on.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt)
            results.append(await calls.run(lambda: goes_on.wait(20)))
            calls.close()
            with pytest.raises(KeyboardInterrupt):
                await trio.lowlevel.checkpoint()

    trio.run(main)
    assert results == [True]


def test_interrupt_before_the_call_waits_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trio would otherwise wake the task for this call while it waits for something else."""
    start: Any = trio.lowlevel.start_thread_soon
    results: list[int] = []

    def interrupted(*given: Any) -> None:
        start(*given)
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        calls: ThreadCalls[int] = ThreadCalls()
        monkeypatch.setattr(trio.lowlevel, "start_thread_soon", interrupted)
        results.append(await calls.run(lambda: 1))
        calls.close()
        await trio.sleep(20)

    with contextlib.suppress(KeyboardInterrupt):
        trio.run(main)
    assert results == [1]


async def test_call_without_a_thread_fails_and_the_next_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may refuse another thread."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    calls: ThreadCalls[int] = ThreadCalls()
    with monkeypatch.context() as patch:
        patch.setattr(trio.lowlevel, "start_thread_soon", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await calls.run(lambda: 1)
    assert thread_calls() == 0
    with trio.fail_after(20):
        assert await calls.run(lambda: 2) == 2
    calls.close()


async def test_waiting_for_calls_ends_with_the_last() -> None:
    """Calls of several objects count together."""
    ends = [threading.Event(), threading.Event()]
    ended: list[int] = []

    async def call(number: int) -> None:
        calls: ThreadCalls[Any] = ThreadCalls()
        await calls.run(lambda: ends[number].wait(20))
        ended.append(number)
        calls.close()

    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(call, number)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(_set_when_blocked, ends)
        await wait_thread_calls()
        assert thread_calls() == 0
    assert sorted(ended) == [0, 1]
    await wait_thread_calls()


async def _set_when_blocked(ends: list[threading.Event]) -> None:
    for each in ends:
        await trio.testing.wait_all_tasks_blocked()
        assert thread_calls() > 0
        each.set()


async def test_closing_releases_the_descriptors() -> None:
    """A store that is opened again and again does not use them up."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        calls: ThreadCalls[None] = ThreadCalls()
        await calls.run(lambda: time.sleep(0))
        calls.close()
    assert len(os.listdir("/proc/self/fd")) == before
