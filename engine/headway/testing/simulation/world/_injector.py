"""Injects the faults of a plan into a run: finds the fault of each step, change and checkpoint, and makes calls late.

It records the run's trace. It knows neither the store nor the server and the processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import trio

from headway.errors import HeadwayError
from headway.resource import Key, Kind
from headway.testing.simulation import faults
from headway.testing.simulation._trace import Happened, Reconcile, Step, Trace
from headway.testing.simulation.world._jumping import Clock

_CALLING: ContextVar[Step | None] = ContextVar("headway.simulation.calling", default=None)
"""The step whose call the present task makes: the store commits in the task of the call."""


class GivenUp(Exception):
    """A run has gone on for so long that it is taken to be endless."""


class Injector:
    """The faults of one run.

    Attributes:
        clock: the virtual clock.
        trace: everything that has happened.
        struck: the faults that have struck, in order.
        gave_up: the reason why the run was ended early; empty if it was not.
        nursery: the nursery of the run. The world sets it.
        healed: true when the faults have ended.
        scenario: the task of the scenario while it runs, and the number of the world's nurseries around it.
        during_change: waits until users have made their next change. The world sets it.
        before_reconcile: called before each reconcile.
    """

    nursery: trio.Nursery

    def __init__(self, plan: faults.Plan, clock: Clock, *, most_steps: int) -> None:
        self.clock = clock
        self.trace = Trace()
        self.struck: list[faults.Fault] = []
        self.gave_up = ""
        self.healed = False
        # The number of calls of the world outside that are in progress.
        self.calls_outside = 0
        self.scenario: tuple[trio.lowlevel.Task, int] | None = None
        self.during_change: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.before_reconcile: Callable[[], Awaitable[None]] | None = None
        self._most_steps = most_steps
        self._at_step = {each.step: each for each in plan if isinstance(each, faults.StepFault)}
        self._at_change = {(each.type, each.revision): each for each in plan if isinstance(each, faults.ChangeFault)}
        self._at_checkpoint = {
            (each.process, each.checkpoint): each for each in plan if isinstance(each, faults.CrashAt)
        }
        self._at_look = {each.look: each for each in plan if isinstance(each, faults.WallJump)}
        self.counts_checkpoints = not len(plan) or bool(self._at_checkpoint)
        self._next: deque[Callable[[int], faults.StepFault]] = deque()
        # The number of calls until the one that is held while users make a change; 0 for none.
        self._calls_to_hold = 0
        self._doing: list[Step] = []
        self._when_at: dict[int, list[Callable[[], None]]] = {}
        # The number of pending late calls and lasting faults. Engines don't know of them.
        self.pending = 0
        self._nothing_pending = trio.Event()
        # The times until which calls of the world outside fail, by the call's name.
        self._out: dict[str, float] = {}
        # The functions to call after changes by users, each with the number of changes to wait for.
        self._after_change: list[tuple[int, Callable[[], None]]] = []
        # Calls that arrive when the scenario is over. Until then the world is idle without them.
        self._last: list[Callable[[], None]] = []

    # --- the trace ---

    def note(self, text: str, *, fault: bool = False) -> None:
        """Add a line to the trace."""
        self.trace.add(Happened(trio.current_time(), text, fault))

    def give_up(self, why: str) -> None:
        """End the run and keep the reason."""
        self.gave_up = self.gave_up or why
        self.nursery.cancel_scope.cancel()

    def begin_reconcile(self, reconcile: Reconcile) -> None:
        """Add the start of a reconcile to the trace, and give up if there have been too many."""
        self.trace.add(reconcile)
        if len(self.trace.reconciles) > self._most_steps:
            self.give_up(f"still busy after {self._most_steps} reconciles")

    def begin_step(self, step: Step) -> None:
        """Add the start of a call to the trace, and give up if there have been too many."""
        self.trace.add(step)
        if len(self.trace.steps) > self._most_steps:
            self.give_up(f"still busy after {self._most_steps} calls")

    @contextmanager
    def doing(self, step: Step) -> Iterator[None]:
        """Attribute commits of this step's resource to the step while the block runs."""
        self._doing.append(step)
        token = _CALLING.set(step)
        try:
            yield
        finally:
            _CALLING.reset(token)
            self._doing.remove(step)

    def writer_of(self, kind: Kind, key: Key) -> Step | None:
        """Return the step whose call commits a resource now. Others that write it may be under way, too."""
        step = _CALLING.get()
        # A task that the call has started may go on after its end.
        if step is None or not any(each is step for each in self._doing):
            return None
        return step if step.write and (step.kind, step.key) == (kind, key) else None

    # --- finding faults ---

    def next_call(self, *make: Callable[[int], faults.StepFault]) -> None:
        """Apply these faults to the reconcilers' next calls, one each. A fault is made from the step's number."""
        self._next.extend(make)

    def crash_at(self, process: str, checkpoint: int) -> None:
        """Plan a crash of a process at one of its checkpoints."""
        self._at_checkpoint[process, checkpoint] = faults.CrashAt(process, checkpoint)

    def strike(self, fault: faults.Fault) -> None:
        """Record that a fault strikes."""
        self.struck.append(fault)
        step = fault.step if isinstance(fault, faults.StepFault) else 0
        self.trace.add(Happened(trio.current_time(), str(fault), fault=True, step=step))

    def hold_call(self, number: int) -> None:
        """Hold the next call of this number until users have made a change; 0 for none."""
        self._calls_to_hold = number

    def strike_step(self, step: Step) -> faults.StepFault | None:
        """Return the fault for this step, and remove it from the plan."""
        if self._calls_to_hold:
            self._calls_to_hold -= 1
            if not self._calls_to_hold:
                return faults.ChangeDuring(step.number)
        found = self._at_step.pop(step.number, None)
        if found is None and self._next:
            found = self._next.popleft()(step.number)
        if found is not None:
            self.strike(found)
        return found

    def strike_change(self, kind: Kind, revision: int) -> faults.ChangeFault | None:
        """Return the fault for a change that was committed, and remove it from the plan."""
        found = self._at_change.pop((".".join(kind), revision), None)
        if found is not None:
            self.strike(found)
        return found

    def strike_checkpoint(self, process: str, checkpoint: int) -> bool:
        """Return True if a process is to be killed at a checkpoint, and remove the fault from the plan."""
        found = self._at_checkpoint.pop((process, checkpoint), None)
        if found is not None:
            self.strike(found)
        return found is not None

    def strike_look(self, number: int) -> faults.WallJump | None:
        """Return the fault for a look at the wall clock, and remove it from the plan."""
        if not self.healed:
            self.trace.looks.append(len(self.trace.steps))
        found = self._at_look.pop(number, None)
        if found is not None:
            self.strike(found)
        return found

    def heal(self) -> None:
        """End the faults.

        A fault that lasts for some seconds still runs out. Calls that were to arrive last arrive now.
        """
        self.healed = True
        self._next.clear()
        self._at_step.clear()
        self._at_change.clear()
        self._at_checkpoint.clear()
        self._out.clear()
        for revision in list(self._when_at):
            self.reach(revision)
        last, self._last = self._last, []
        for arrive in last:
            arrive()

    # --- late calls and lasting faults ---

    def make_later(self, seconds: float, step: Step, call: Callable[[], Awaitable[Any]]) -> None:
        """Make a call after some seconds and discard its reply."""

        async def arrive() -> None:
            await trio.sleep(seconds)
            try:
                with self.doing(step):
                    await call()
                outcome = "was done"
            except HeadwayError as error:
                outcome = f"was rejected: {error}"
            except Exception as error:  # noqa: BLE001  # the outside world may raise anything; no caller is left
                outcome = f"failed: {error}"
            self.note(f"step {step.number} arrives late and {outcome}")
            self.end_pending()

        self.begin_pending()
        self.nursery.start_soon(arrive)

    def make_last(self, step: Step, call: Callable[[], Awaitable[Any]]) -> None:
        """Make a call at the end of the scenario, after all changes by users and their effects."""
        self._last.append(lambda: self.make_later(0.0, step, call))

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Call a function after some seconds. Until then the world is not idle."""

        async def wait() -> None:
            await trio.sleep(seconds)
            self.end_pending()
            then()

        self.begin_pending()
        self.nursery.start_soon(wait)

    def begin_outage(self, method: str, seconds: float) -> None:
        """Let every call of a method of the world outside fail for some seconds."""
        self._out[_called(method)] = trio.current_time() + seconds

    def is_out(self, method: str) -> bool:
        """Return True if calls of this method fail now."""
        return self._out.get(_called(method), 0.0) > trio.current_time()

    @property
    def delays_until_a_change(self) -> bool:
        """True if something is delayed until users change something."""
        return bool(self._after_change)

    def after_changes(self, count: int, then: Callable[[], None]) -> None:
        """Call a function when users have made this number of changes, or when the scenario is over."""
        self._after_change.append((count, then))

    def changed(self, count: int) -> None:
        """Call the functions that wait for this number of changes by users, or for fewer."""
        due = [then for least, then in self._after_change if least <= count]
        self._after_change = [each for each in self._after_change if each[0] > count]
        for then in due:
            then()

    def when_at(self, revision: int, then: Callable[[], None]) -> None:
        """Call a function when the store is at a revision or the faults have ended."""
        self._when_at.setdefault(revision, []).append(then)

    def reach(self, revision: int) -> None:
        """Call the functions that wait for a revision of the store."""
        for then in self._when_at.pop(revision, ()):
            then()

    def begin_pending(self) -> None:
        """Count a late call or lasting fault that no engine knows of."""
        if not self.pending:
            self._nothing_pending = trio.Event()
        self.pending += 1

    def end_pending(self) -> None:
        """End what `begin_pending` counted."""
        self.pending -= 1
        if not self.pending:
            self._nothing_pending.set()

    async def wait_nothing_pending(self) -> None:
        """Wait until no late call and no lasting fault is pending."""
        while self.pending:
            await self._nothing_pending.wait()


def _called(method: str) -> str:
    """Return the name of a call of the world outside, without its arguments."""
    return method.partition("(")[0] if method.startswith("call ") else ""
