"""The simulated world: a store, its server and the processes on it, under virtual time and the faults of a plan."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, cast

import trio
from trio.testing import MockClock

from headway.base import check_plain
from headway.client import Client
from headway.controller import App, Sharded
from headway.resource import Key, Kind, Registry, ResourceType
from headway.rpc import Channel
from headway.testing.simulation import faults
from headway.testing.simulation._always import Always, type_of
from headway.testing.simulation._clocks import LOOK, Clocks
from headway.testing.simulation._injector import Injector
from headway.testing.simulation._link import Link
from headway.testing.simulation._oracles import Scheduled
from headway.testing.simulation._pace import Pace, PacedClient, Wait
from headway.testing.simulation._process import PROCESS, Checkpoints, MakeApp, Process
from headway.testing.simulation._server import OwnServices, Server
from headway.testing.simulation._store import SimulatedStore
from headway.testing.simulation._streams import Streams
from headway.testing.simulation._upgrade import Upgrades, merged

Scenario = Callable[["World"], Awaitable[None]]
Invariant = Callable[["World"], Awaitable[None] | None]
"""A check of the end state that raises AssertionError if something is wrong."""


class Rival(Protocol):
    """Another writer, who acts before a reconcile begins, or when the scenario is over."""

    async def before_reconcile(self, world: World) -> None:
        """Act before a reconcile begins."""

    async def at_the_end(self, world: World) -> None:
        """Act when the scenario is over and all work is done."""


_SUSPENDED = 40.0
"""The number of seconds for which a former leader is suspended: longer than its lease lasts."""
_SHARDS_MOVE = 1.0
"""The number of seconds between two looks at who holds the shards."""
_PATIENCE = 120.0
"""A number of seconds longer than any fault lasts."""


class GivenUp(Exception):
    """A run has gone on for so long that it is taken to be endless."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The settings of a run, apart from its plan."""

    app: App | MakeApp
    scenario: Scenario
    processes: int = 1
    outside: Callable[[], Any] | None = None
    holds: Sequence[Invariant] = ()
    always: Sequence[Always] = ()
    quiet: float | None = 900.0
    own_services: bool = False
    long: bool = False
    """Whether the quiet time begins only when the program has done what it waits for by its own clock."""
    salt: str = ""
    """The end of each process's name. Shards are spread by the names."""
    new_from_start: Registry | None = None
    """The types of an older program. If it is given, ``app`` is the newest one already, and upgrades do nothing."""

    @property
    def owners(self) -> Sequence[object]:
        """The functions and classes of the program and its scenario."""
        return (self.app, self.scenario, self.outside, *self.holds, *self.always)

    def __post_init__(self) -> None:
        for each in self.always:
            # A coroutine function would never be awaited, and so never fail.
            check_plain("always", each, 1, "the stored resources", "always=[lambda stored: ...]")


class World:
    """The world that a scenario works in, by ``client``, ``outside`` and the methods from `wait_idle` to
    `restart_server`. Everything else is for the simulation itself, and may change.

    Attributes:
        outside: the outside world, without faults.
        processes: the processes that run the controllers.
        clock: the virtual clock.
        clocks: the clocks that the program sees.
        pace: the pace of the users.
        injector: applies the faults.
        trace: everything that has happened.
        waits: the seconds that the program had still to wait by its own clock when the quiet time began.
        struck: the faults that have struck.
    """

    def __init__(
        self,
        setting: Setting,
        plan: faults.Plan,
        *,
        most_steps: int = 2000,
        patient: bool = False,
        clock: MockClock | None = None,
        rival: Rival | None = None,
        look: int = LOOK,
    ) -> None:
        self._setting = setting
        self.clock = clock or MockClock(autojump_threshold=0)
        self.injector = Injector(plan, self.clock, most_steps=most_steps)
        self.clocks = Clocks(self.injector, self.clock, _current_process, look=look)
        self.trace = self.injector.trace
        self.struck = self.injector.struck
        self.pace = Pace(self.injector, plan)
        self.pace.lead, self.pace.restore = self._lead_in_turn, self.restore
        self.injector.during_change = self.pace.hold
        if rival is not None:
            self.injector.before_reconcile = partial(rival.before_reconcile, self)
        with self.clocks.in_force():
            self.outside: Any = None if setting.outside is None else setting.outside()
        self.processes = [
            Process(
                self.injector,
                f"p{at + 1}{setting.salt}",
                self._make_app,
                self._new_link,
                self.outside,
                watches_outside=bool(setting.always),
            )
            for at in range(setting.processes)
        ]
        with self.clocks.in_force():
            app = self._make_app(self.processes[0])
        types = merged(app.registry, setting.new_from_start)
        self._note_shards(app)
        self._streams = Streams(self.injector, self.processes, lambda: len(self.pace.asked))
        self._patient = patient
        self.waits = 0.0
        self._server = Server(
            self.injector,
            types,
            on_restart=self._break_links,
            harm_streams=self._streams.harm,
            users=partial(self._users, self._wait_for_everything if patient else None),
        )
        self._upgrades = Upgrades(self.injector, self._server, self.processes, types)

    # --- for scenarios ---

    @property
    def client(self) -> Client:
        """Reads and writes as a user, without faults."""
        return self._server.client

    @property
    def store(self) -> SimulatedStore:
        """The store of the server. A restore replaces it."""
        return self._server.store

    async def wait_idle(self, within: float = 1800.0) -> None:
        """Wait until no late call is pending and every controller is idle.

        Calls that arrive last do not count until the scenario is over.

        Raises:
            GivenUp: if that takes more than ``within`` seconds.
        """
        await self.pace.wait_idle(partial(self._wait_idle, within))

    async def _wait_idle(self, within: float = 1800.0) -> None:
        with trio.move_on_after(within):
            while True:
                revision, lives = self.store.position, [process.life for process in self.processes]
                await self.injector.wait_nothing_pending()
                for process in self.processes:
                    await process.wait_idle()
                await self._server.wait_idle()
                now = [process.life for process in self.processes]
                if (self.injector.pending, self.store.position, now) == (0, revision, lives):
                    if not self._has_free_shard():
                        return
                    # A shard whose lease was lost belongs to no process for some seconds, and no process owes its work.
                    await trio.sleep(_SHARDS_MOVE)
        owing = "; ".join(
            f"{process.name}: {status.name} {status.problem or 'has work left'}"
            for process in self.processes
            for status in process.status()
            if not status.settled
        )
        raise GivenUp(f"the world is not idle after {within:.0f} s: {owing or 'no process is running'}")

    def _note_shards(self, app: App) -> None:
        # The number of shards of each sharded controller.
        self._shards = {
            name: each.placement.shards for name, each in app.controllers.items() if isinstance(each.placement, Sharded)
        }

    def _has_free_shard(self) -> bool:
        """Return True if a shard of a sharded controller is held by no process, although no process is dead."""
        if any(process.held for process in self.processes):
            return False
        held: Counter[str] = Counter()
        for process in self.processes:
            for status in process.status():
                held[status.name] += len(status.shards or ())
        return any(held[name] < shards for name, shards in self._shards.items())

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await trio.sleep(seconds)

    @property
    def types(self) -> Registry:
        """The types of the program, and of those that it has replaced."""
        return self._upgrades.types

    def type(self, kind: str, version: str = "") -> ResourceType[Any]:
        """Return the program's type of this kind, such as ``Team``: the version declared last, or the one given.

        Raises:
            DeclarationError: if there is no such type.
        """
        return type_of(self.types, kind, version)

    async def upgrade(self, app: App | MakeApp, *, process: int | None = None) -> None:
        """End the processes in an orderly way, and start them again with another program on the same store.

        Returns when they run. A process that does not end in 30 seconds is killed.

        Args:
            app: the new program, or a function that builds it, as for `explore`.
            process: the only process to upgrade. The others go on with their program.
        """
        chosen = self.processes if process is None else [self.processes[process]]
        if self._patient:
            await self._wait_for_everything()
        await self.pace.before_change()
        if self._setting.new_from_start is None:
            await self._upgrades.upgrade(app, partial(_made, app), chosen)
            self._note_shards(chosen[0].app)
        await self.pace.after_change(f"upgrade {' '.join(each.name for each in chosen)}", self._wait_idle)

    def crash(self, process: int = 0, *, checkpoints: int = 0) -> None:
        """Kill a process, now or after this number of its Trio checkpoints. It starts again."""
        killed = self.processes[process]
        if checkpoints:
            self.injector.crash_at(killed.name, killed.checkpoints + checkpoints)
        else:
            killed.kill()

    async def lead(self, process: int = 0) -> None:
        """Let a process lead every controller that another one leads now, and wait until it does.

        The old leader learns of it as in production: at its next write, or when it fails to renew its lease.

        Raises:
            GivenUp: if the process does not become the leader in time, for example because it is dead.
        """
        leader = self.processes[process].name
        self.injector.note(f"{leader} is to lead")
        self._hand_over(self.processes[process])
        with trio.move_on_after(_PATIENCE):
            await self.store.wait_handed_over()
            return
        raise GivenUp(f"{leader} did not become the leader within {_PATIENCE:.0f} s")

    async def _lead_in_turn(self, turn: int) -> None:
        """Let the next process lead. The others are suspended for a while, so they handle nothing in between."""
        leader = self.processes[turn % len(self.processes)]
        if not turn:
            await self.lead(self.processes.index(leader))
            return
        self.injector.note(f"{leader.name} is to lead, and the others are suspended", fault=True)
        for process in self.processes:
            if process is not leader and process.life:
                process.link.suspend(_SUSPENDED)
        self._hand_over(leader)

    def jump_wall_clock(self, seconds: float) -> None:
        """Let the wall clock jump forward or back. The other clocks go on."""
        self.injector.note(f"the wall clock jumps by {seconds} s", fault=True)
        self.clocks.jump(seconds)

    async def catch_up(self) -> None:
        """If the wall clock has jumped back, wait for that long, so that what was due before is due again."""
        if self.clocks.behind:
            await self.sleep(self.clocks.behind)
            await self.wait_idle()

    def harm_streams(self, fault: faults.ChangeFault) -> None:
        """Apply a fault to the streams of its type now, whatever its revision."""
        group, _, kind = fault.type.partition(".")
        self.injector.strike(fault)
        self._streams.harm((group, kind), fault)

    async def restore(self, revision: int) -> None:
        """Restore the store's backup of a revision, and let users ask again for what is lost."""
        await self._server.restore(revision)

    async def overtake(self, kind: Kind, key: Key) -> bool:
        """Change a resource as another writer. Returns False if it does not exist."""
        return await self._server.overtake(kind, key)

    async def restart_server(self) -> None:
        """Restart the server on the same store."""
        await self._server.restart()

    # --- for the runner ---

    @property
    def upgraded_to(self) -> App | MakeApp | None:
        """The program of the last upgrade, or None."""
        return self._upgrades.program

    def release(self) -> None:
        """Start the processes that have waited for an upgrade that never came."""
        self._upgrades.release()

    def scheduled(self) -> set[Scheduled]:
        """Return what will be reconciled at a requested time."""
        return {each for process in self.processes for each in process.scheduled()}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run the server and the processes while the block runs."""
        if self.injector.counts_checkpoints:
            trio.lowlevel.add_instrument(Checkpoints())
        with self.clocks.in_force(), self._upgrades.clocks:
            async with self._run():
                yield

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as self.injector.nursery:
            await self.injector.nursery.start(self._server.serve)
            self.processes[0].note_outside("the start")
            self.start_processes()
            self.pace.begin()
            yield
            self.injector.nursery.cancel_scope.cancel()

    async def stop_processes(self) -> None:
        """Shut every process down in an orderly way."""
        for process in self.processes:
            await process.stop()

    def start_processes(self) -> None:
        """Start the processes, or start them again when they have been stopped."""
        for process in self.processes:
            self.injector.nursery.start_soon(process.live, name=f"process {process.name}")

    def _hand_over(self, leader: Process) -> None:
        # The program that it runs now, which may have been upgraded.
        app = leader.app if leader.lives else leader.make_app(leader)
        singletons = [name for name, each in app.controllers.items() if each.placement == "singleton"]
        self.store.hand_over([f"{app.name}/{name}" for name in singletons], leader.name)

    def _make_app(self, process: Process) -> App:
        return _made(self._setting.app, process)

    def _new_link(self, process: Process) -> Link:
        services: Channel = self._server
        if self._setting.own_services:
            services = OwnServices(self._server, process.app.registry)
        after = self.processes[(self.processes.index(process) + 1) % len(self.processes)]
        link = Link(self.injector, self._server, services, process.name, lambda: self._hand_over(after), process.kill)
        self._streams.begin(process, link.script)
        return link

    def _break_links(self) -> None:
        for process in self.processes:
            if process.life:
                process.link.break_all()

    async def _wait_for_everything(self) -> None:
        """Wait until any fault would have ended and all work is done."""
        await trio.sleep(_PATIENCE)
        await self._wait_idle()

    def _users(self, before: Wait | None, client: Client) -> Client:
        return cast("Client", PacedClient(client, self.pace, self._wait_idle, before))


def _made(given: App | MakeApp, process: Process) -> App:
    return given if isinstance(given, App) else given(process)


def _current_process() -> tuple[str, int] | None:
    process = PROCESS.get()
    return None if process is None else (process.name, process.lives)
