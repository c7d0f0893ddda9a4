"""`LiveRun`: virtual time passes when every task waits for time or for an event, and only then."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import trio

from headway.testing import LiveRun


class Nothing:
    """The end of a machine that has nothing of its own."""

    def teardown(self) -> None:
        pass


class Run(LiveRun, Nothing):
    """A live run."""


@pytest.fixture
def run() -> Iterator[Run]:
    live = Run()
    yield live
    live.teardown()


def test_time_stands_still_while_a_thread_works(run: Run) -> None:
    """A disk is slow, and no deadline of a call passes for that: else every commit to a file would take ten seconds."""

    async def commit() -> bool:
        with trio.move_on_after(10) as scope:
            await trio.to_thread.run_sync(time.sleep, 0.02)
            await trio.lowlevel.checkpoint()
        return scope.cancelled_caught

    began = run.clock.current_time()
    for _ in range(3):
        assert not run.call(commit)
    assert run.clock.current_time() == began


def test_time_passes_again_when_the_thread_has_ended(run: Run) -> None:
    """By the whole sleep, in no real time."""

    async def commit_and_sleep() -> None:
        await trio.to_thread.run_sync(time.sleep, 0.001)
        await trio.sleep(3600)

    began = run.clock.current_time()
    run.call(commit_and_sleep)
    assert run.clock.current_time() == began + 3600


def test_settling_waits_for_threads(run: Run) -> None:
    """A task that a thread works for has yet to go on."""
    ended: list[float] = []

    async def start() -> None:
        run.nursery.start_soon(commit)

    async def commit() -> None:
        await trio.to_thread.run_sync(time.sleep, 0.02)
        await trio.lowlevel.checkpoint()
        ended.append(run.clock.current_time())

    began = run.clock.current_time()
    run.call(start)
    run.settle()
    assert ended == [began]
