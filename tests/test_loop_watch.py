"""A task that blocks the event loop is reported with its controller, its key and its stack. No other task is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.engine._loop_watch import Judge
from headway.observe import Metrics, log_report
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff

TASK, OTHER = object(), object()


@pytest.fixture(autouse=True)
def loop_watch() -> None:
    """Leave the watchdog as it is, where other tests have none."""


class SimulatedLoop:
    """A watchdog of a simulated loop, with a clock that the test sets.

    Attributes:
        reported: the duration of the block at each report.
    """

    def __init__(self, limit: float = 1.0) -> None:
        self.judge = Judge(limit, 0.0, 0.0)
        self.now = self.used = self.beat = 0.0
        self.reported: list[float] = []

    def turn(self, seconds: float) -> None:
        """Let the loop run one turn."""
        end = self.now + seconds
        while self.now < end:
            self._check(None, beats=True)

    def block(self, seconds: float, *tasks: object) -> None:
        """Block the loop. At each check, the next of these tasks is running."""
        self.beat, end, number = self.now, self.now + seconds, 0
        while self.now < end:
            self._check(tasks[number % len(tasks)])
            number += 1

    def stall(self, seconds: float, *, works: bool) -> None:
        """Let no Python code run for a time. With ``works``, C code keeps the lock and uses the processor."""
        self.now += seconds
        self.used += seconds if works else 0.001

    def _check(self, task: object, *, beats: bool = False) -> None:
        self.now += self.judge.wait
        self.beat = self.now if beats else self.beat
        held = self.judge.look(self.now, self.used, self.beat, task)
        if held is not None:
            self.reported.append(round(held, 2))


def test_block_is_reported_again_each_time_its_duration_has_doubled() -> None:
    """A block that never ends makes one line a minute."""
    loop = SimulatedLoop()
    loop.turn(5)
    assert loop.reported == []
    loop.block(200, TASK)
    assert loop.reported == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 124.0, 184.0]


def test_function_that_holds_the_interpreter_lock_is_reported() -> None:
    """The watchdog could not run during that time, but the process has used the processor."""
    loop = SimulatedLoop()
    loop.turn(5)
    loop.beat = loop.now
    loop.stall(30, works=True)
    held = loop.judge.look(loop.now, loop.used, loop.beat, TASK)
    assert held == pytest.approx(30, abs=1)


def test_successive_blocks_are_reported_every_ten_seconds() -> None:
    """The report has the number of the blocks in between."""
    loop = SimulatedLoop()
    suppressed = []
    for _ in range(20):
        reported = len(loop.reported)
        loop.block(0.9, TASK)
        loop.turn(0.5)
        if len(loop.reported) > reported:
            suppressed.append(loop.judge.suppressed)
            loop.judge.suppressed = 0
    assert 3 <= len(loop.reported) <= 6
    assert sum(suppressed) + len(loop.reported) + loop.judge.suppressed == 20


def _watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "headway watchdog"]


async def _blocked(
    staff: Staff, limit: float | None = 0.2, *, begun: trio.Event | None = None
) -> list[events.LoopBlocked]:
    """Run the app with an account and a team until it is idle, and check that all threads are joined.

    ``begun`` is set by a function that `wait_idle` does not wait for.
    """
    async with headway.open_engine(
        "memory:", staff.app, report=staff.events.append, timing=headway.Timing(block_limit=limit)
    ) as engine:
        assert len(_watchdogs()) == 1
        await engine.client.apply(staff.account.new("ada", Account()))
        await engine.client.apply(staff.team.new("core", Team()))
        with trio.fail_after(60):
            await engine.wait_idle()
            if begun is not None:
                await begun.wait()
    assert _watchdogs() == []
    return staff.events_of(events.LoopBlocked)


def _hold(staff: Staff) -> Callable[[], object]:
    """Return a function that holds the loop until that has been reported.

    Reports of what held the loop before are left out: on a busy machine, that may be anything.
    """
    reported = threading.Event()

    class Events(list[object]):
        def append(self, event: object) -> None:
            if isinstance(event, events.LoopBlocked):
                if ", in hold" not in event.stack:
                    return
                reported.set()
            super().append(event)

    def hold() -> None:
        reported.wait(50)

    staff.events = Events()
    return hold


def held_by_a_reconcile(hold: Any) -> None:
    """Block in a function whose name appears in the stack."""
    hold()


async def test_blocking_reconcile_is_reported_with_its_key_and_stack() -> None:
    """The report comes from another thread during the block. The log and the metrics have it as well."""
    staff = Staff()
    hold = _hold(staff)

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, __: headway.Request) -> None:
        held_by_a_reconcile(hold)

    blocked = (await _blocked(staff))[0]
    assert (blocked.controller, blocked.key, blocked.attempt) == ("staff/teams", ("default", "default", "core"), 1)
    assert "held_by_a_reconcile(hold)" in blocked.stack
    assert "worker" in blocked.task
    assert blocked.seconds >= 0.2
    metrics, lines = Metrics(), []

    class Logger:
        def warning(self, name: str, **fields: object) -> None:
            lines.append((name, fields["controller"], fields["key"]))

    metrics(blocked)
    log_report(Logger())(blocked)
    assert b'headway_loop_blocked_total{controller="staff/teams"} 1.0' in metrics.text()
    assert lines == [("LoopBlocked", "staff/teams", "default/default/core")]


async def test_loop_of_asyncio_in_a_reconcile_is_named_with_what_to_do() -> None:
    """It works, so nothing else would say that no other task runs meanwhile."""
    staff = Staff()
    hold = _hold(staff)

    async def fetch() -> None:
        hold()

    @staff.app.controller(manages=staff.team)
    async def teams(_: headway.Runtime, __: headway.Request) -> None:
        # Like asyncio.run(), which is refused instead once trio-asyncio is imported.
        with contextlib.closing(asyncio.SelectorEventLoop()) as loop:
            loop.run_until_complete(fetch())

    blocked = (await _blocked(staff))[0]
    assert "await trio.to_thread.run_sync(function)` for a function that blocks or calls asyncio.run()" in blocked.stack


async def test_no_thread_is_started_in_virtual_time(autojump_clock: MockClock) -> None:
    """Virtual time does not pass during a computation, and a simulation has no threads."""
    async with headway.open_engine("memory:", Staff().app):
        assert _watchdogs() == []


@pytest.mark.parametrize("limit", [0, -1, "1", True])
async def test_invalid_block_limit_is_refused(limit: Any) -> None:
    with pytest.raises(headway.errors.DeclarationError, match="block_limit="):
        async with headway.open_engine("memory:", Staff().app, timing=headway.Timing(block_limit=limit)):
            pass
    with pytest.raises(headway.errors.DeclarationError, match="block_limit="):
        async with headway.open_workers("127.0.0.1:9", Staff().app, timing=headway.Timing(block_limit=limit)):
            pass
