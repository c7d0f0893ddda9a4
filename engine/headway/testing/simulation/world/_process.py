"""A process of a simulation: its lives, its checkpoints, what it waits for, and its access to the outside world."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import trio

from headway import events
from headway.base import error_text, story
from headway.controller import App
from headway.engine import Engine, Timing, open_workers
from headway.errors import Closed, RemoteError
from headway.resource import Position
from headway.run import ControllerStatus
from headway.steps import StepUncertain
from headway.testing.simulation._trace import OutsideChanged, Uncertain
from headway.testing.simulation.oracles import Scheduled, things_in
from headway.testing.simulation.world._beside import Besides
from headway.testing.simulation.world._injector import Injector
from headway.testing.simulation.world._link import Link
from headway.testing.simulation.world._outside_state import outside_state
from headway.testing.simulation.world._readers import Readers
from headway.testing.simulation.world._traced_app import RECONCILE, traced_app
from headway.testing.simulation.world._wire import WireBroken

MakeApp = Callable[["Process"], App]
Beside = Callable[["Process"], Awaitable[object]]
"""A function of the program that runs beside its controllers, such as a proxy that reads from a cache."""

LEASE_TTL = 15.0
_DOWN = 1.0
"""The number of seconds from a process's death to its next life."""
_NEVER = 86_400.0
_IN_THE_STORY = (
    events.RunStarted,
    events.RunEnded,
    events.WriteUnknown,
    events.WriteResolved,
    events.SelfTriggered,
    events.StaleRefused,
    events.DeletionsUnknown,
    events.LeaseEnded,
    events.MappingFailed,
    events.DaemonEnded,
    events.SourceFailed,
    StepUncertain,
)
"""The events of an engine that are added to the trace."""


class Process:
    """A process, which may be killed and started again.

    A program that is built for a `Process` uses its ``name`` and ``outside``, and `wait_running` for its engine.
    Everything else is for the simulation itself, and may change.

    Attributes:
        name: the process's name, as its engine uses it.
        life: the number of the current life; 0 while the process is dead.
        lives: the number of lives that have begun.
        outside: its access to the outside world.
        checkpoints: the number of Trio checkpoints that its tasks have passed, over all lives.
        behind: the revision whose state the next life is shown first; None for the current one.
        history_gone: true if the streams of the next life cannot resume.
        make_app: returns the program of a life. An upgrade replaces it.

    Args:
        make_app: returns the program of a life.
        new_link: returns the connection of a life to the server.
        outside: the outside world.
        watches_outside: record the state of the outside world after each call of it.
        beside: the functions that run beside the controllers in each life.
    """

    link: Link
    engine: Engine
    app: App

    def __init__(
        self,
        injector: Injector,
        name: str,
        make_app: MakeApp,
        new_link: Callable[[Process], Link],
        outside: object,
        *,
        watches_outside: bool = False,
        beside: Sequence[Beside] = (),
    ) -> None:
        self._injector = injector
        self._real_outside, self._watches_outside = outside, watches_outside
        self._besides = Besides(beside, injector)
        self._readers = Readers()
        self.name = name
        self.make_app = make_app
        self._new_link = new_link
        self.outside: Any = Outside(outside, self)
        self.checkpoints = 0
        self.life = 0
        self.behind: int | None = None
        self.history_gone = False
        self.lives = 0
        # The link and the number of messages on it when the last checkpoint was noted.
        self._noted: tuple[Link, int] | None = None
        self._scope = trio.CancelScope()
        self._waiting = trio.CancelScope()
        self._running = trio.Event()
        self._over = trio.Event()
        self._stopping = trio.Event()
        # Set while a life may begin, and after the end of a life.
        self._may_begin, self._ended = trio.Event(), trio.Event()
        self._may_begin.set()
        self._ended.set()

    def kill(self, *, behind: int | None = None, until_upgrade: bool = False) -> None:
        """Kill the process as ``kill -9`` does; it starts again, or waits for an upgrade first.

        Its link is cut first, so that nothing that its tasks still do has an effect.
        """
        if self.life:
            if until_upgrade:
                self._may_begin = trio.Event()
            self._injector.note(f"{self.name} is killed", fault=True)
            self.behind = behind
            self.link.cut(dead=True)
            self._end_life()
            self._scope.cancel()

    @property
    def killed(self) -> bool:
        """True if the current life was ended by a kill, so that its tasks must have no more effect."""
        return hasattr(self, "link") and self.link.dead

    async def end(self, make_app: MakeApp, grace: float) -> None:
        """Shut the life down in an orderly way, or kill it after some seconds. The next one has another program.

        It does not begin before `begin` is called.
        """
        self.make_app = make_app
        if not self.held:  # else it waits for this event already
            self._may_begin = trio.Event()
        self._scope.cancel()
        with trio.move_on_after(grace):
            await self._ended.wait()
        self.kill()
        await self._ended.wait()

    def begin(self) -> None:
        """Let the next life begin."""
        self._may_begin.set()

    @property
    def held(self) -> bool:
        """True if the process is dead until it is upgraded."""
        return not self._may_begin.is_set() and not self.life

    async def wait_running(self) -> Engine:
        """Wait until a life has begun, and return its engine."""
        await self._running.wait()
        return self.engine

    async def stop(self) -> None:
        """Shut the process down in an orderly way, and wait until it has ended."""
        self._stopping.set()
        self.begin()
        self._scope.cancel()
        await self._over.wait()

    async def live(self) -> None:
        """Run one life after the other until the process is stopped."""
        self._stopping, self._over = trio.Event(), trio.Event()
        PROCESS.set(self)
        try:
            while not self._stopping.is_set():
                await self._live_once()
                with trio.move_on_after(max(_DOWN, self._besides.delay)):
                    await self._stopping.wait()
                await self._may_begin.wait()
        finally:
            self._over.set()

    async def _live_once(self) -> None:
        self._ended = trio.Event()
        self.app = self.make_app(self)
        self.link = self._new_link(self)
        self._readers = self.link.readers
        self.lives += 1
        self._scope = trio.CancelScope()
        try:
            with self._scope:
                async with (
                    self.link.opened(self.app) as channel,
                    open_workers(
                        channel,
                        traced_app(self.app, self._injector, self.name),
                        process=self.name,
                        report=self._report,
                        # The bound uses the real clock, and virtual time may stand still here. The run checks the time
                        # taken.
                        timing=Timing(lease_ttl=LEASE_TTL, shutdown_bound=_NEVER),
                    ) as self.engine,
                ):
                    self.life = self.lives
                    self._readers.watch_caches(self.engine)
                    self._running.set()
                    await self._besides.run(self)
        finally:
            self._end_life()
            self._ended.set()

    def _end_life(self) -> None:
        self.life = 0
        if self._running.is_set():
            self._running = trio.Event()
        self._waiting.cancel()

    async def wait_idle(self) -> None:
        """Wait until the process runs and is idle, unless it is dead until it is upgraded."""
        while not self.held:
            await self._running.wait()
            life = self.life
            # Canceled at the end of the life, because waiting for a dead engine would take forever.
            with trio.CancelScope() as self._waiting:
                try:
                    await self.engine.wait_idle()
                except (RemoteError, Closed):
                    # wait_idle() calls the server over the link, which a fault may have cut. A kill may have ended the
                    # engine just before.
                    await trio.sleep(1)
                    continue
            if self.life == life:
                return

    async def wait_shown(self, position: Position) -> None:
        """Wait until the caches and subscriptions that the program has opened show a position of the store."""
        # Reconcilers end, so only other functions keep a cache or a subscription open.
        others = self._besides or any(each.sources for each in self.app.controllers.values())
        if self.life and others:
            with trio.CancelScope() as self._waiting:
                await self._readers.wait_shown(position, self._count_subscriptions)

    def _count_subscriptions(self) -> int:
        tasks = (each for each in all_tasks() if each.name == "subscription")
        return sum(each.context.get(PROCESS) is self for each in tasks)

    def status(self) -> list[ControllerStatus]:
        """Return the status of its controllers."""
        return self.engine.status() if self.life else []

    def scheduled(self) -> set[Scheduled]:
        """Return what its controllers will reconcile at a requested time."""
        return {
            (supervisor.name, self.app.controllers[supervisor.name].manages.kind, key)
            for supervisor in (self.engine.controllers if self.life else {}).values()
            for key in (supervisor.run.scheduled() if supervisor.run is not None else ())
        }

    def due(self) -> list[float]:
        """Return the requested times of its controllers' next reconciles."""
        runs = [supervisor.run for supervisor in (self.engine.controllers if self.life else {}).values()]
        return [due for run in runs if run is not None for due in run.scheduled().values()]

    def pass_checkpoint(self, task: str) -> None:
        """Count a Trio checkpoint that a task is about to leave, and kill the process if the plan says so."""
        injector = self._injector
        self.checkpoints += 1
        if not injector.healed:
            passed = (self.link, self.link.passed)
            if passed != (self._noted or (self.link, 0)):
                injector.trace.checkpoints.append((self.name, self.checkpoints))
            self._noted = passed
        if injector.strike_checkpoint(self.name, self.checkpoints):
            injector.note(f"{self.name} was about to resume the task {task}")
            self.kill()

    def begin_outside(self) -> None:
        """Note what others have changed in the world outside since the last call, unless one is in progress."""
        injector = self._injector
        if not (injector.healed or injector.calls_outside) and self._note_things():
            injector.trace.drifted.add(len(injector.trace.outside) - 1)
        injector.calls_outside += 1

    def end_outside(self, call: str) -> None:
        """Record what a call that has begun has changed in the world outside."""
        self._injector.calls_outside -= 1
        self.note_outside(call)

    def _note_things(self) -> bool:
        """Record what the world outside contains. Return True if that has changed."""
        there, noted = things_in(outside_state(self._real_outside)), self._injector.trace.outside
        if noted and there == noted[-1]:
            return False
        noted.append(there)
        return True

    def note_outside(self, call: str) -> None:
        """Record what the world outside contains, and its state if a check of ``always`` looks at it."""
        injector = self._injector
        if not injector.healed:
            self._note_things()
        if self._watches_outside:
            injector.trace.add(OutsideChanged(trio.current_time(), call, copy.deepcopy(self._real_outside)))

    def _report(self, event: object) -> None:
        if self.life:
            trace, call = self._injector.trace, RECONCILE.get()
            trace.events.append(event)
            if isinstance(event, StepUncertain) and call is not None:
                trace.uncertain.append(Uncertain(call, event.id, event.step, event.key, len(trace.steps)))
            if isinstance(event, _IN_THE_STORY):
                self._injector.note(f"{self.name}: {_described(event)}")


def _text(value: object) -> str:
    if isinstance(value, BaseExceptionGroup):
        return story(value)
    return error_text(value) if isinstance(value, BaseException) else str(value)


def _described(event: Any) -> str:
    fields = ", ".join(
        f"{name} {_text(value)}" for name, value in vars(event).items() if name not in ("stack", "queued")
    )
    return f"{type(event).__name__} ({fields})"


# --- the outside world ---


class OutsideUnreachable(ConnectionError):
    """A call to the outside world got no answer. It may have taken effect.

    A program catches it as a `ConnectionError`. An exception that the object itself raises is passed on unchanged.
    """


class Outside:
    """A process's access to the outside world: an object of the user, whose async methods are steps.

    It has the attributes of that object, also to assign and to delete them.
    """

    _real: object
    _process: Process

    def __init__(self, real: object, process: Process) -> None:
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_process", process)

    def __setattr__(self, name: str, value: object) -> None:
        self._check_alive()
        setattr(self._real, name, value)

    def __delattr__(self, name: str) -> None:
        self._check_alive()
        delattr(self._real, name)

    def _check_alive(self) -> None:
        if self._process.killed:
            raise OutsideUnreachable("the process has been killed")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        process = self._process
        if not inspect.iscoroutinefunction(found):
            self._check_alive()
            return found

        async def call(*arguments: Any, **named: Any) -> Any:
            link, reconcile = process.link, RECONCILE.get()
            text = ", ".join([*map(repr, arguments), *(f"{each}={value!r}" for each, value in named.items())])
            what = f"outside.{name}({text})"

            async def really() -> Any:
                process.begin_outside()
                try:
                    return await found(*arguments, **named)
                finally:
                    process.end_outside(what)

            try:
                if reconcile is None:
                    link.note(f"calls {what}")
                    return await link.beside(really)
                nothing = ("", ""), ("", "", "")
                return await link.step(reconcile, f"call {what}", *nothing, really, write=True)
            except WireBroken as error:
                raise OutsideUnreachable(str(error)) from None

        # The name of its coroutine, which the finding of a forgotten `await` shows.
        call.__qualname__ = f"outside.{name}"
        return call


# --- checkpoints ---

PROCESS: ContextVar[Process | None] = ContextVar("headway.simulation.process", default=None)
"""The process that the current task belongs to. A process sets it; the tasks that it starts inherit it."""


class Checkpoints(trio.abc.Instrument):
    """An instrument that counts the Trio checkpoints of each process, so that it can be killed between two calls."""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        process = task.context.get(PROCESS)
        if process is not None and process.life:
            process.pass_checkpoint(task.name)


def all_tasks() -> Iterator[trio.lowlevel.Task]:
    """Yield every task of the current run."""
    root = trio.lowlevel.current_root_task()
    left = [root] if root is not None else []
    while left:
        task = left.pop()
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        yield task


LONGEST = 7200.0
"""The number of seconds for which a run goes on at most, because the program has something to do then."""


def longest_wait(processes: Iterable[Process]) -> float:
    """Return the seconds until the last thing that the program waits for, apart from what is too far away.

    A requeue or a timer waits in a queue. A daemon, a source and a delay in memory wait in a task of the program.
    """
    return max(_waits(processes), default=0.0)


def next_wait(processes: Iterable[Process]) -> float:
    """Return the seconds until the next thing that the program waits for, or 0 if there is nothing."""
    return min(_waits(processes), default=0.0)


def _waits(processes: Iterable[Process]) -> list[float]:
    alive = {each for each in processes if each.life}
    now = trio.current_time()
    due = [*_of_tasks(alive), *(due for process in alive for due in process.due())]
    return [each - now for each in due if 0 < each - now <= LONGEST]


def _of_tasks(alive: set[Process]) -> Iterator[float]:
    for task in all_tasks():
        process = task.context.get(PROCESS)
        if task.context.get(RECONCILE) is not None and process is not None and process in alive:
            # Trio has no public way to ask another task for its deadline. The innermost scope belongs to a sleep.
            # Scopes around it may be Headway's, such as the scope of a lease.
            yield task._cancel_status._scope.deadline
