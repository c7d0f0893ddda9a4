"""A process of a simulation."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import trio

from headway import events
from headway._groups import story
from headway._safe_text import error_text
from headway.controller import App
from headway.engine import Engine, open_workers
from headway.errors import RemoteError
from headway.run import ControllerStatus
from headway.testing.simulation._checkpoints import PROCESS
from headway.testing.simulation._link import Link
from headway.testing.simulation._oracles import Scheduled
from headway.testing.simulation._outside import Outside
from headway.testing.simulation._watched import watched

if TYPE_CHECKING:
    from headway.testing.simulation._world import World

_DOWN = 1.0
"""The number of seconds from a process's death to its next life."""
_NEVER = 86_400.0
_TOLD = (
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
)
"""The events of an engine that a story mentions."""


class Process:
    """A process, which may be killed and started again.

    Attributes:
        name: the process's name, as its engine uses it.
        life: the number of the current life; 0 while the process is dead.
        outside: its access to the outside world.
        checkpoints: the number of Trio checkpoints that its tasks have passed, over all lives.
    """

    link: Link
    engine: Engine
    app: App

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self.checkpoints = 0
        self.life = 0
        self.behind: int | None = None
        self.history_gone = False
        self.outside: Any = Outside(world.outside, self)
        self._lives = 0
        self._scope = trio.CancelScope()
        self._waiting = trio.CancelScope()
        self._running = trio.Event()
        self._over = trio.Event()
        self._stopped = False

    def kill(self, *, behind: int | None = None) -> None:
        """Kill the process as ``kill -9`` does; it starts again.

        Its link is cut first, so that nothing that its tasks still do has an effect.
        """
        if self.life:
            self._world.note(f"{self.name} is killed", fault=True)
            self.behind = behind
            self.link.cut(dead=True)
            self._end_life()
            self._scope.cancel()

    @property
    def killed(self) -> bool:
        """True if the current life was ended by a kill, so that its tasks must have no more effect."""
        return hasattr(self, "link") and self.link.dead

    async def stop(self) -> None:
        """Shut the process down in an orderly way, and wait until it has ended."""
        self._stopped = True
        self._scope.cancel()
        await self._over.wait()

    async def live(self) -> None:
        """Run one life after the other until the process is stopped."""
        self._stopped, self._over = False, trio.Event()
        PROCESS.set(self)
        try:
            while not self._stopped:
                await self._live_once()
                if not self._stopped:
                    await trio.sleep(_DOWN)
        finally:
            self._over.set()

    async def _live_once(self) -> None:
        world = self._world
        self.app = world.make_app(self)
        self.link = world.new_link(self)
        self._lives += 1
        self._scope = trio.CancelScope()
        try:
            with self._scope:
                opened: AbstractAsyncContextManager[Engine] = open_workers(
                    self.link,
                    watched(self.app, world, self),
                    process=self.name,
                    report=self._hear,
                    lease_ttl=world.lease_ttl,
                    # The bound uses the real clock, and virtual time may stand still here. `_run.py` checks the time
                    # taken.
                    shutdown_bound=_NEVER,
                )
                async with opened as self.engine:
                    self.life = self._lives
                    self._running.set()
                    await trio.sleep_forever()
        finally:
            self._end_life()

    def _end_life(self) -> None:
        self.life = 0
        if self._running.is_set():
            self._running = trio.Event()
        self._waiting.cancel()

    async def wait_idle(self) -> None:
        """Wait until the process runs and is idle."""
        while True:
            await self._running.wait()
            life = self.life
            # Canceled at the end of the life, because waiting for a dead engine would take forever.
            with trio.CancelScope() as self._waiting:
                try:
                    await self.engine.wait_idle()
                except RemoteError:
                    # wait_idle() calls the server over the link, which a fault may have cut.
                    await trio.sleep(1)
                    continue
            if self.life == life:
                return

    def status(self) -> list[ControllerStatus]:
        """Return the status of its controllers."""
        return self.engine.status() if self.life else []

    def scheduled(self) -> set[Scheduled]:
        """Return what its controllers will reconcile at a requested time."""
        return {
            (name, self.app.controllers[name].manages.kind, key)
            for name, supervisor in (self.engine.controllers if self.life else {}).items()
            for key in (supervisor.run.scheduled() if supervisor.run is not None else ())
        }

    def _hear(self, event: object) -> None:
        if self.life:
            self._world.trace.events.append(event)
            if isinstance(event, _TOLD):
                self._world.note(f"{self.name}: {_told(event)}")


def _text(value: object) -> str:
    if isinstance(value, BaseExceptionGroup):
        return story(value)
    return error_text(value) if isinstance(value, BaseException) else str(value)


def _told(event: Any) -> str:
    fields = ", ".join(
        f"{name} {_text(value)}" for name, value in vars(event).items() if name not in ("stack", "queued")
    )
    return f"{type(event).__name__} ({fields})"
