"""The pace of the users: how long they wait after each change, and which call of a reconciler their change falls into.

Only the pace of a plan is applied here. Without one, users are as fast as the scenario.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

import trio

from headway.base import AsyncBlock
from headway.client import Client
from headway.errors import HistoryCompacted, Unavailable
from headway.resource import Resource, resource_id
from headway.testing.simulation import faults
from headway.testing.simulation._trace import named
from headway.testing.simulation.world._injector import Injector

_HELD = 10.0
"""The number of seconds that a call waits at most for the users' next change."""
_AFTERWARDS = 1.0
"""The number of seconds that a call waits after that change, while everything else reacts to it."""
_BEFORE_A_TICK = 5.0
"""The number of seconds between a change of the users and the tick that falls into its handling."""
_LONGEST_TICK = 3700.0
"""The number of seconds for which users wait for a call that the program makes by its own clock."""
_EARLY = 3
"""How often in a row users may go on before the world is idle. A scenario that waits in a loop must not spin."""

_OF_USERS = (faults.Spaced, faults.Settled, faults.Hurried, faults.Relay, faults.Interim)
Wait = Callable[[], Awaitable[None]]


class Pace:
    """The users' pace in one run.

    Attributes:
        asked: the changes that users made, each with the number of calls that reconcilers had begun before.
        asked_at: the virtual time of each of these changes, and its time of the wall clock.
        waited: true if the scenario has waited for idleness between two changes.
        lead: lets a process lead, by its number, which may be counted up. If ``begins``, it waits until the process
            leads, otherwise it suspends the others.
        restore: restores the store's backup of a revision.
        begin_runs: lets each controller begin a new run in the process that leads.
        next_wait: returns the seconds until the program does something by its own clock, or 0 if it does nothing.
        wall: returns the wall clock in seconds since 1970.

    Args:
        due: the times of the wall clock when users make their changes. Without any, the scenario decides.
    """

    lead: Callable[[int, bool], Awaitable[None]]
    restore: Callable[[int], Awaitable[None]]
    begin_runs: Callable[[], Awaitable[None]]
    next_wait: Callable[[], float]
    wall: Callable[[], float]

    def __init__(self, injector: Injector, plan: faults.Plan, due: Sequence[float] = ()) -> None:
        self._injector = injector
        self._due = due
        self._plan = [each for each in plan if isinstance(each, _OF_USERS)]
        self._when_idle = [
            each
            for each in plan
            if isinstance(each, faults.NewRun) or (isinstance(each, faults.Restore) and not each.step)
        ]
        self._ticks = {each.change: each for each in plan if isinstance(each, faults.ChangeInTick)}
        self._during_ticks = {each.change: each for each in plan if isinstance(each, faults.TickDuring)}
        # The time when the program does something by its own clock, if a call is slow until then.
        self._tick_at: float | None = None
        self._during = any(isinstance(each, faults.ChangeDuring) for each in plan)
        self._relays = any(isinstance(each, faults.Relay) for each in plan)
        # The process that leads from a change of the users on, by the number of changes before it.
        self._turns: dict[int, int] = {}
        for each in plan:
            if isinstance(each, faults.Interim):
                self._turns |= {0: 0, each.away - 1: 1, each.back - 1: 0}
        self._hurried = any(isinstance(each, faults.Hurried) for each in plan)
        # Set when the call begins that a change is to fall into, and when that change has been made.
        self._begun = trio.Event()
        self._changed = trio.Event()
        self._early = 0
        self._over = False
        self._has_waited = False
        self.asked: list[tuple[int, str]] = []
        self.asked_at: list[tuple[float, float]] = []
        self.waited = False

    def begin(self) -> None:
        """Record the plan's pace in the trace."""
        for each in self._plan:
            self._injector.strike(each)

    def end(self) -> None:
        """Record that the scenario is over, so that no further change by users is awaited."""
        self._over = True
        self._changed.set()
        self._injector.changed(sys.maxsize)

    async def hold(self) -> None:
        """Hold a call until users have made their next change, or a tick has come, and everything has reacted to it."""
        if self._tick_at is not None:
            at, self._tick_at = self._tick_at, None
            await trio.sleep_until(max(at, trio.current_time()) + _AFTERWARDS)
            return
        self._begun.set()
        with trio.move_on_after(_HELD):
            await self._changed.wait()
            await trio.sleep(_AFTERWARDS)

    async def sleep(self, seconds: float) -> None:
        """Let time pass as the scenario asks, but not beyond the time when users make their next change."""
        await trio.sleep(min(seconds, self._until_due()))

    def _until_due(self) -> float:
        """Return the seconds until users make their next change; infinity if the scenario decides."""
        made = len(self.asked_at)
        if self._over or made >= len(self._due):
            return math.inf
        return max(self._due[made] - self.wall(), 0.0)

    async def before_change(self, idle: Wait) -> None:
        """Wait until the change is due, or let the next process lead, or wait for a call that the program makes by its
        clock, if the plan says so.
        """
        if math.isfinite(wait := self._until_due()):
            await trio.sleep(wait)
        tick = self._ticks.pop(len(self.asked) + 1, None)
        if tick is not None and not self._over:
            await idle()
        if tick is not None and not self._over and 0 < self.next_wait() <= _LONGEST_TICK:
            self._injector.strike(tick)
            self._injector.hold_call(tick.call)
            with trio.move_on_after(_LONGEST_TICK):
                await self._begun.wait()
            self._injector.hold_call(0)
        during = self._during_ticks.pop(len(self.asked) + 1, None)
        if during is not None and not self._over:
            await idle()
            if wait := self.next_wait():
                self._injector.strike(during)
                self._tick_at = trio.current_time() + wait
                await trio.sleep(max(wait - _BEFORE_A_TICK, 0.0))
                self._injector.hold_call(during.call)
        turn = len(self.asked) if self._relays else self._turns.get(len(self.asked))
        if turn is not None and not self._over:
            await self.lead(turn, not self.asked)
        self.asked_at.append((trio.current_time(), self.wall()))

    async def after_change(self, what: str, idle: Wait) -> None:
        """Wait for as long as the plan says."""
        self.asked.append((len(self._injector.trace.steps), what))
        self._injector.changed(len(self.asked))
        self.waited = self.waited or self._has_waited
        if self._over:
            return
        await self._strike_when_idle(idle)
        if self._begun.is_set():
            self._changed.set()
            return
        for each in self._plan:
            if isinstance(each, faults.Spaced):
                await trio.sleep(each.seconds)
            elif isinstance(each, faults.Settled):
                await idle()
        if self._during:
            await self._until_begun(idle)

    async def _strike_when_idle(self, idle: Wait) -> None:
        """Strike the faults that come when all work on the change that has just been made is done."""
        made = {each.revision for each in self._injector.trace.commits if not each.by}
        due = [each for each in self._when_idle if each.revision in made]
        self._when_idle = [each for each in self._when_idle if each.revision not in made]
        for each in due:
            await idle()
            self._injector.strike(each)
            if isinstance(each, faults.Restore):
                await self.restore(each.revision)
            else:
                await self.begin_runs()
            # The store may have lost a record of what a deletion must undo, until the program stores it again.
            await idle()

    async def wait_idle(self, idle: Wait) -> None:
        """Wait for idleness as the scenario asks, unless users go on earlier by the plan."""
        if self._over:
            await idle()
            return
        self._has_waited = bool(self.asked)
        goes_on = self._hurried or (self._begun.is_set() and not self._changed.is_set())
        if self._injector.delays_until_a_change and self._early < _EARLY:
            self._early += 1
            await trio.sleep(_AFTERWARDS)
        elif goes_on and self._early < _EARLY:
            self._early += 1
            await trio.lowlevel.checkpoint()
        elif goes_on or not self._during or self._begun.is_set():
            self._changed.set()
            self._early = 0
            await idle()
        else:
            await self._until_begun(idle)

    async def _until_begun(self, idle: Wait) -> None:
        async with trio.open_nursery() as nursery:

            async def begun() -> None:
                await self._begun.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(begun)
            await idle()
            nursery.cancel_scope.cancel()


DELETED = " while it is being deleted"
"""The end of the text of a change that is lost, because a finalizer has kept the resource that it was made to."""

# The last one is used by the functions of `headway.kubernetes`.
_CHANGES = frozenset(("apply", "create", "delete", "write", "write_status", "_write"))


class PacedClient:
    """A `Client` of users who wait after each change, and before it too if ``before`` is given.

    It outlasts restarts of the server: ``up`` waits until there is one, and ``current`` returns its client.
    """

    def __init__(
        self, current: Callable[[], Client], up: Wait, pace: Pace, idle: Wait, before: Wait | None = None
    ) -> None:
        self._current = current
        self._up = up
        self._pace = pace
        self._idle = idle
        self._before = before

    def watch(self, *arguments: Any, **named: Any) -> Any:
        return _UsersWatch(self._up, lambda: self._current().watch(*arguments, **named))

    def __getattr__(self, name: str) -> Any:
        if not inspect.iscoroutinefunction(getattr(Client, name, None)):
            return getattr(self._current(), name)

        async def call(*arguments: Any, **named: Any) -> Any:
            await self._up()
            return await getattr(self._current(), name)(*arguments, **named)

        async def change(*arguments: Any, **named: Any) -> Any:
            if self._before is not None:
                await self._before()
            await self._pace.before_change(self._idle)
            result = await call(*arguments, **named)
            lost = DELETED if name in ("apply", "write") and isinstance(result, Resource) and result.is_deleting else ""
            await self._pace.after_change(_text(name, arguments) + lost, self._idle)
            return result

        made = change if name in _CHANGES else call
        # Python names it if it is never awaited.
        made.__qualname__ = f"Client.{name}"
        return made


class _UsersWatch(AsyncBlock):
    """A watch of users, who meet no faults: a restart of the server is only a reason to open another one, as a history
    that is too short is. `headway.until` does so by itself.
    """

    _usage = "world.client.watch(TEAM) as events"

    def __init__(self, up: Wait, make: Callable[[], Any]) -> None:
        super().__init__()
        self._up = up
        self._make = make
        self._events: Any = None

    async def __aenter__(self) -> _UsersWatch:
        self._entered = True
        await self._up()
        self._events = await self._make().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._events.__aexit__(kind, error, traceback)

    def __aiter__(self) -> _UsersWatch:
        return self

    async def __anext__(self) -> Any:
        self._entered = True  # One error is enough.
        try:
            return await (self._events or self._make()).__anext__()
        except (Unavailable, StopAsyncIteration):
            text = "the simulated server has restarted: open the watch again, without resume_after"
            raise HistoryCompacted(text) from None


def _text(method: str, arguments: tuple[Any, ...]) -> str:
    """Return a change as text, to see whether users ask for the same in two runs."""
    if not arguments:
        return method
    if method == "_write":
        type, message = arguments[:2]
        return _text(f"write, {message.metadata.get(':verb', '')}", (type.view(message),))
    if isinstance(arguments[0], Resource):
        message = arguments[0].message()
        id = resource_id(message.id)
        rest = "" if method == "delete" else f" {arguments[0].data} {sorted(message.metadata.items())}"
        return f"{method} {named(id.type.unversioned, id.key)}{rest}"
    return f"{method} {arguments[0]}"
