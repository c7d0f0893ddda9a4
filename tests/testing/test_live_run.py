"""`LiveRun`: virtual time passes only while every task waits for time or for an event."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio

from headway.base import ThreadCalls
from headway.testing import LiveRun


class Nothing:
    """A base class with an empty teardown."""

    def teardown(self) -> None:
        pass


class Run(LiveRun, Nothing):
    """A live run."""


@pytest.fixture
def run() -> Iterator[Run]:
    live = Run()
    yield live
    live.teardown()


async def in_thread() -> None:
    await trio.to_thread.run_sync(time.sleep, 0.02)


async def in_thread_call() -> None:
    calls: ThreadCalls[None] = ThreadCalls()
    await calls.run(lambda: time.sleep(0.02))
    calls.close()


Work = Callable[[], Awaitable[None]]
each_work = pytest.mark.parametrize("work", [in_thread, in_thread_call])


@each_work
def test_time_stands_still_while_a_thread_works(run: Run, work: Work) -> None:
    """No deadline of a call passes while a disk is slow. Otherwise every commit to a file would take ten seconds."""

    async def commit(work: Work) -> bool:
        with trio.move_on_after(10) as scope:
            await work()
            await trio.lowlevel.checkpoint()
        return scope.cancelled_caught

    began = run.clock.current_time()
    for _ in range(3):
        assert not run.call(commit, work)
    assert run.clock.current_time() == began


def test_time_passes_after_the_thread_has_ended(run: Run) -> None:
    """Virtual time passes by the whole sleep, in no real time."""

    async def commit_and_sleep() -> None:
        await trio.to_thread.run_sync(time.sleep, 0.001)
        await trio.sleep(3600)

    began = run.clock.current_time()
    run.call(commit_and_sleep)
    assert run.clock.current_time() == began + 3600


@each_work
def test_waiting_until_idle_includes_threads(run: Run, work: Work) -> None:
    """A task that a thread works for has not finished."""
    ended: list[float] = []

    async def start() -> None:
        run.nursery.start_soon(commit)

    async def commit() -> None:
        await work()
        await trio.lowlevel.checkpoint()
        ended.append(run.clock.current_time())

    began = run.clock.current_time()
    run.call(start)
    run.run_until_blocked()
    assert ended == [began]
