"""A live Trio run that is driven from synchronous code, such as the rules of a Hypothesis state machine.

    class Machine(LiveRun, RuleBasedStateMachine):
        @rule()
        def write(self) -> None:
            self.call(self.engine.client.apply, TEAM.new("core"))

Trio runs as a guest of this class, on a virtual clock that jumps to the next deadline when every task is blocked. It
moves only while a `call` waits for its result. Between two rules the world stands still, so what a rule finds depends
only on the rules before it. A task that waits for a thread, as a store in a file does, does not count as blocked: the
clock stands still until the thread has ended.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Awaitable, Callable
from typing import TypeVar

import outcome
import trio
from trio.testing import MockClock, active_thread_count, wait_all_tasks_blocked, wait_all_threads_completed

from headway.base import thread_calls, wait_thread_calls

Answer = TypeVar("Answer")

HANG_LIMIT = 20.0
"""The number of real seconds without a step after which a call counts as deadlocked."""


class _HeldClock(trio.abc.Instrument):
    """An instrument that keeps a clock from jumping while a thread works for a task. Trio takes such a task for
    blocked.

    How long the thread takes depends on the machine. Without this, the clock would jump in one run and not in the next,
    and what a rule finds would depend on that.
    """

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self._held = False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002  # as Trio calls it
        # A task begins and ends its work in a thread within its own steps.
        if self._held != (working := active_thread_count() + thread_calls() > 0):
            self._held = working
            self._clock.autojump_threshold = math.inf if working else 0


class LiveRun:
    """A mixin for a base whose ``teardown`` is called at the end, such as ``RuleBasedStateMachine``. Put it first.

    Attributes:
        clock: the run's clock.
        nursery: a nursery for tasks that live until the end.
    """

    nursery: trio.Nursery

    def __init__(self) -> None:
        super().__init__()
        self.clock = MockClock(autojump_threshold=0)
        self._steps: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._token: trio.lowlevel.TrioToken | None = None
        # The outcome of the run. It is None again once unwrapped, because an outcome can be unwrapped only once.
        self._ended: outcome.Outcome[None] | None = None
        self._over = False
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._steps.put,
            done_callback=self._note_end,
            clock=self.clock,
            instruments=[_HeldClock(self.clock)],
        )
        self._step_until(lambda: self._token is not None)

    def call(self, function: Callable[..., Awaitable[Answer]], *arguments: object) -> Answer:
        """Run an async function in the live run, and return what it returns or raise what it raises."""
        answers: list[outcome.Outcome[Answer]] = []

        async def job() -> None:
            answers.append(await outcome.acapture(function, *arguments))

        def start() -> None:
            if not self.nursery.cancel_scope.cancel_called:
                self.nursery.start_soon(job)

        self._run_soon(start)
        self._step_until(lambda: bool(answers))
        return answers[0].unwrap()

    def run_until_blocked(self) -> None:
        """Run every task until it waits for time or an event, and every thread to its end."""
        self.call(_quiet)

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.call(trio.sleep, seconds)

    def teardown(self) -> None:
        """Cancel what still runs. Raises the exception of a task that has crashed."""
        if not self._over:
            self._run_soon(self.nursery.cancel_scope.cancel)
            while not self._over:
                self._step()
        self._raise_crash()

    async def _main(self) -> None:
        async with trio.open_nursery() as self.nursery:
            self._token = trio.lowlevel.current_trio_token()
            await trio.sleep_forever()

    def _run_soon(self, function: Callable[[], object]) -> None:
        assert self._token is not None
        self._token.run_sync_soon(function)

    def _note_end(self, result: outcome.Outcome[None]) -> None:
        self._ended, self._over = result, True

    def _raise_crash(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.unwrap()

    def _step(self) -> None:
        try:
            self._steps.get(timeout=HANG_LIMIT)()
        except queue.Empty:
            raise AssertionError(f"deadlock: the run has made no step for {HANG_LIMIT} s") from None

    def _step_until(self, done: Callable[[], bool]) -> None:
        while not done():
            if self._over:
                self._raise_crash()
                raise AssertionError("the run has ended while a rule waited for it")
            self._step()


async def _quiet() -> None:
    await wait_all_tasks_blocked()
    while active_thread_count() + thread_calls():
        await wait_all_threads_completed()
        await wait_thread_calls()
        await wait_all_tasks_blocked()
