"""The simulated world: a store, its server and the processes on it, under virtual time and the faults of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated, Any, Protocol, cast

import trio

from headway.base import Count, Endless, Range, Seconds, answer_problem, checked, function_text, repr_text
from headway.client import Client
from headway.controller import App
from headway.errors import DeclarationError
from headway.resource import Key, Kind, Registry, ResourceType
from headway.rpc import Channel
from headway.run import ControllerStatus
from headway.sharding import Sharded
from headway.testing.simulation import faults
from headway.testing.simulation._trace import PeersTrace, Trace
from headway.testing.simulation.faults import HOME
from headway.testing.simulation.oracles import Finding, Scheduled, type_of
from headway.testing.simulation.world._clocks import LOOK, Clocks
from headway.testing.simulation.world._injector import GivenUp as GivenUp
from headway.testing.simulation.world._injector import Injector
from headway.testing.simulation.world._jumping import Clock, JumpingClock
from headway.testing.simulation.world._link import Link
from headway.testing.simulation.world._outside_state import made_outside
from headway.testing.simulation.world._pace import Pace, PacedClient
from headway.testing.simulation.world._peer_network import PeerNetwork
from headway.testing.simulation.world._peerings import Peerings
from headway.testing.simulation.world._process import PROCESS, Checkpoints, MakeApp, Process, next_wait
from headway.testing.simulation.world._server import OwnServices, Server
from headway.testing.simulation.world._setting import Setting
from headway.testing.simulation.world._store import SimulatedStore
from headway.testing.simulation.world._streams import Streams
from headway.testing.simulation.world._upgrade import Upgrades, merged


class FreeShards:
    """The sharded controllers of a program."""

    def __init__(self, app: App) -> None:
        self.note(app)

    def note(self, app: App) -> None:
        """Note the number of shards of each sharded controller of a program."""
        self._shards = {
            each.full_name: each.placement.shards
            for each in app.controllers.values()
            if isinstance(each.placement, Sharded)
        }

    def are_left(self, processes: Sequence[Process]) -> bool:
        """Return True if a shard is held by no process, although no process is dead."""
        if any(process.held for process in processes):
            return False
        held: Counter[str] = Counter()
        for process in processes:
            for status in process.status():
                held[status.name] += len(status.shards or ())
        return any(held[name] < shards for name, shards in self._shards.items())


Scenario = Callable[["World"], Awaitable[None]]
Invariant = Callable[["World"], Awaitable[None] | None]
"""A check of the end state that raises AssertionError if something is wrong."""

_SUSPENDED = 40.0
"""The number of seconds for which a former leader is suspended: longer than its lease lasts."""
_SHARDS_MOVE = 1.0
"""The number of seconds between two looks at who holds the shards."""
_PATIENCE = 120.0
"""A number of seconds longer than any fault lasts."""


class World:
    """The world that a scenario works in, by ``client``, ``outside`` and the methods from `wait_idle` to
    `restart_server`. Everything else is for the simulation itself, and may change.

    Attributes:
        outside: the outside world, without faults.
        processes: the processes that run the controllers.
        clock, clocks: Trio's clock, and the clocks that the program sees.
        pace: the pace of the users.
        injector: applies the faults.
        trace: everything that has happened.
        waits: how long the program was still waiting by its own clock when the quiet time began, in seconds.
        struck: the faults that have struck.
        side: ``home``, or the name of a peer.
        peers: the worlds of the peers, by name. Each has a ``client`` and processes of its own.
        network: what connects the engines of the peerings.
        server: the server, with the store.
    """

    trace: Trace
    clocks: Clocks
    network: PeerNetwork
    _peerings: Peerings

    def __init__(
        self,
        setting: Setting,
        plan: faults.Plan,
        *,
        most_steps: int = 2000,
        patient: bool = False,
        clock: Clock | None = None,
        rival: Rival | None = None,
        look: int = LOOK,
        due: Sequence[float] = (),
        side: str = HOME,
        of: World | None = None,
    ) -> None:
        self._setting = setting
        self.side = side
        self.clock: Clock = clock or JumpingClock()
        self.injector = Injector(plan, self.clock, most_steps=most_steps)
        if of is not None:
            self.injector.trace = PeersTrace(side, of.trace)
        self.clocks = Clocks(self.injector, self.clock, _current_process, look=look) if of is None else of.clocks
        self.trace = self.injector.trace
        self.network = PeerNetwork(self.injector, plan) if of is None else of.network
        self._peerings = Peerings(setting.peers, self.network, self.injector) if of is None else of._peerings
        self.struck = self.injector.struck
        self.pace = Pace(self.injector, plan, due)
        self.pace.lead, self.pace.restore = self._lead_in_turn, self.restore
        self.pace.begin_runs = lambda: self.server.store.begin_terms()
        self.pace.next_wait = lambda: next_wait(self.processes)
        self.pace.wall = self.clocks.seconds
        self.injector.during_change = self.pace.hold
        if rival is not None:
            self.injector.before_reconcile = partial(rival.before_reconcile, self)
        with self.clocks.in_force():
            self.outside: Any = made_outside(setting.outside)
        self.processes = [
            Process(
                self.injector,
                f"p{at + 1}{setting.salt}",
                self._make_app,
                self._new_link,
                self.outside,
                watches_outside=bool(setting.always),
                beside=setting.beside,
            )
            for at in range(setting.processes)
        ]
        with self.clocks.in_force():
            app = self._make_app(self.processes[0])
        types = merged(app.registry, setting.new_from_start)
        self._shards = FreeShards(app)
        self._patient = patient
        self.waits = 0.0
        self._link_type = Link
        if any(each.foreign for each in types):
            server = self._on_cluster(types)
        else:
            for each in plan:
                if isinstance(each, faults.CLUSTER_FAULTS):
                    raise DeclarationError(f"plan: {each} is for a program whose types are of Kubernetes")
            self._streams = Streams(self.injector, self.processes, lambda: len(self.pace.asked))
            server = Server(
                self.injector,
                types,
                on_restart=self._break_links,
                harm_streams=self._streams.harm,
                name="store" if of is None else side,
                peer_links=self.network.ends(side, setting.engines) if setting.peers or of is not None else (),
                on_commit=partial(self._peerings.committed, side),
                on_replaced=partial(self._peerings.replaced, side),
            )
        self.server = server
        # All users have one pace.
        home = of or self
        before = home._wait_for_everything if home._patient else None
        users = PacedClient(lambda: server.client, server.wait_up, home.pace, home._wait_idle, before)
        self._client = cast("Client", users)
        self._upgrades = Upgrades(self.injector, server, self.processes, types)
        self.peers = {
            name: World(
                setting.of_peer(peer), plan.at(name), most_steps=most_steps, clock=self.clock, side=name, of=self
            )
            for name, peer in setting.peers.items()
        }

    def _on_cluster(self, types: Registry) -> Server:
        """Return the server of a program whose types are of Kubernetes."""
        # It needs the extra `kubernetes`.
        from headway.testing.simulation.world._cluster import ClusterServer, check_no_peers
        from headway.testing.simulation.world._cluster_link import ClusterLink, ClusterStreams

        check_no_peers(self._setting.peers)
        self.trace.on_cluster, self._link_type = True, ClusterLink
        streams = self._streams = ClusterStreams(self.injector, self.processes, lambda: len(self.pace.asked))
        streams.server = ClusterServer(
            self.injector,
            types,
            now=self.clocks.seconds,
            on_restart=self._break_links,
            harm_streams=streams.harm,
        )
        # It has what is used of a server.
        return cast("Server", streams.server)

    # --- for scenarios ---

    @property
    def client(self) -> Client:
        """Reads and writes as a user, without faults."""
        return self._client

    @property
    def store(self) -> SimulatedStore:
        """The store of the server. A restore replaces it."""
        return self.server.store

    @checked()
    async def wait_idle(self, within: Endless = 1800.0) -> None:
        """Wait until no late call is pending and every controller is idle.

        Calls that arrive last do not count until the scenario is over.

        Raises:
            GivenUp: if that takes more than ``within`` seconds.
        """
        await self.pace.wait_idle(partial(self._wait_idle, within))

    async def _wait_idle(self, within: float = 1800.0) -> None:
        if not self.peers:
            await self._wait_idle_here(within)
            return
        await self._peerings.wait_copied(partial(self._wait_everyone_idle, within))

    async def _wait_everyone_idle(self, within: float) -> None:
        for each in self.everyone:
            await each._wait_idle_here(within)

    async def _wait_idle_here(self, within: float) -> None:
        with trio.move_on_after(within):
            while True:
                revision, lives = self.store.position, [process.life for process in self.processes]
                await self.injector.wait_nothing_pending()
                for process in self.processes:
                    await process.wait_idle()
                await self.server.wait_idle()
                for process in self.processes:
                    await process.wait_shown(self.store.position)
                now = [process.life for process in self.processes]
                if (self.injector.pending, self.store.position, now) == (0, revision, lives):
                    if not self._shards.are_left(self.processes):
                        return
                    # A shard whose lease was lost belongs to no process for some seconds, and no process owes its work.
                    await trio.sleep(_SHARDS_MOVE)
        owing = "; ".join(
            f"{process.name}: {status.name} {status.problem or 'has work left'}{_first_error(status)}"
            for process in self.processes
            for status in process.status()
            if not status.settled
        )
        raise GivenUp(f"the world is not idle after {within:.0f} s: {owing or 'no process is running'}")

    @checked(seconds="seconds=60")
    async def sleep(self, seconds: Seconds) -> None:
        """Let virtual time pass."""
        await self.pace.sleep(seconds)

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

    @checked(process="process=0")
    async def upgrade(self, app: App | MakeApp, *, process: Count | None = None) -> None:
        """End the processes in an orderly way, and start them again with another program on the same store.

        Returns when they run. A process that does not end in 30 seconds is killed.

        Args:
            app: the new program, or a function that builds it, as for `explore`.
            process: the only process to upgrade. The others go on with their program.
        """
        chosen = self.processes if process is None else [self._process(process)]
        if self._patient:
            await self._wait_for_everything()
        await self.pace.before_change(self._wait_idle)
        if self._setting.new_from_start is None:
            await self._upgrades.upgrade(app, partial(_made, app), chosen)
            self._shards.note(chosen[0].app)
        await self.pace.after_change(f"upgrade {' '.join(each.name for each in chosen)}", self._wait_idle)

    @checked(process="process=0", checkpoints="checkpoints=10")
    def crash(self, process: Count = 0, *, checkpoints: Count = 0) -> None:
        """Kill a process, now or after this number of its Trio checkpoints. It starts again."""
        killed = self._process(process)
        if checkpoints:
            self.injector.crash_at(killed.name, killed.checkpoints + checkpoints)
        else:
            killed.kill()

    @checked(process="process=0")
    async def lead(self, process: Count = 0) -> None:
        """Let a process lead every controller that another one leads now, and wait until it does.

        The old leader learns of it as in production: at its next write, or when it fails to renew its lease.

        Raises:
            GivenUp: if the process does not become the leader in time, for example because it is dead.
        """
        chosen = self._process(process)
        leader = chosen.name
        self.injector.note(f"{leader} is to lead")
        self._hand_over(chosen)
        with trio.move_on_after(_PATIENCE):
            await self.store.wait_handed_over()
            return
        raise GivenUp(f"{leader} did not become the leader within {_PATIENCE:.0f} s")

    async def _lead_in_turn(self, turn: int, begins: bool) -> None:
        """Let a process lead. The others are suspended for a while, so they handle nothing in between."""
        leader = self.processes[turn % len(self.processes)]
        if begins:
            await self.lead(self.processes.index(leader))
            return
        self.injector.note(f"{leader.name} is to lead, and the others are suspended", fault=True)
        for process in self.processes:
            if process is not leader and process.life:
                process.link.suspend(_SUSPENDED)
        self._hand_over(leader)

    @checked(seconds="seconds=-600")
    def jump_wall_clock(self, seconds: Annotated[float, Range()]) -> None:
        """Let the wall clock jump forward or back. The other clocks go on."""
        self.injector.note(f"the wall clock jumps by {seconds} s", fault=True)
        self.clocks.jump(seconds)

    async def catch_up(self) -> None:
        """If the wall clock has jumped back, wait for that long, so that everything that was due is due again."""
        if self.clocks.behind:
            await self.sleep(self.clocks.behind)
            await self.wait_idle()

    def harm_streams(self, fault: faults.ChangeFault) -> None:
        """Apply a fault to the streams of its type now, whatever its revision."""
        group, _, kind = fault.type.partition(".")
        self.injector.strike(fault)
        self._streams.harm((group, kind), fault)

    @checked(revision="revision=12")
    async def restore(self, revision: Count) -> None:
        """Restore the store's backup of a revision, and let users ask again for what is lost."""
        await self.server.restore(revision)

    async def overtake(self, kind: Kind, key: Key) -> bool:
        """Change a resource as another writer. Returns False if it does not exist."""
        return await self.server.overtake(kind, key)

    async def restart_server(self) -> None:
        """Restart the server on the same store."""
        await self.server.restart()

    # --- for the runner ---

    @property
    def everyone(self) -> list[World]:
        """This world, and the worlds of its peers."""
        return [self, *self.peers.values()]

    def findings(self) -> list[Finding]:
        """Return what was wrong with the peerings."""
        return self._peerings.findings + self._peerings.problems() if self.peers else []

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
            async with AsyncExitStack() as stack:
                for each in self.everyone:
                    await stack.enter_async_context(each._run())
                if self.peers:
                    self.network.nursery = self.injector.nursery
                    await self._peerings.establish({each.side: each for each in self.everyone})
                self.pace.begin()
                yield

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as self.injector.nursery:
            await self.injector.nursery.start(self.server.serve)
            self.injector.nursery.start_soon(self.server.serve_beside)
            self.processes[0].note_outside("the start")
            self.start_processes()
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

    def _process(self, number: int) -> Process:
        """Return a process by its number. Raises DeclarationError if there is none of that number."""
        if number >= len(self.processes):
            raise DeclarationError(
                f"process must be from 0 to {len(self.processes) - 1}, not {number}: the world has "
                f"{len(self.processes)} of them: simulation.explore(..., processes={number + 1}) makes more"
            )
        return self.processes[number]

    def _make_app(self, process: Process) -> App:
        return _made(self._setting.app, process)

    def _new_link(self, process: Process) -> Link:
        services: Channel = self.server
        if self._setting.own_services:
            services = OwnServices(self.server, process.app.registry)
        after = self.processes[(self.processes.index(process) + 1) % len(self.processes)]
        link = self._link_type(
            self.injector, self.server, services, process.name, lambda: self._hand_over(after), process.kill
        )
        self._streams.begin(process, link)
        return link

    def _break_links(self) -> None:
        for process in self.processes:
            if process.life:
                process.link.break_all()

    async def _wait_for_everything(self) -> None:
        """Wait until any fault would have ended and all work is done."""
        await trio.sleep(_PATIENCE)
        await self._wait_idle()


class Rival(Protocol):
    """Another writer, which acts before a reconcile begins, or when the scenario is over and all work is done."""

    async def before_reconcile(self, world: World) -> None:
        """Act before a reconcile begins."""

    async def at_the_end(self, world: World) -> None:
        """Act at the end."""


def _first_error(status: ControllerStatus) -> str:
    """Return the first key whose reconcile is tried again, with its error, for the end of a sentence."""
    tried_again = [each for each in status.not_done if each.outcome != "permanent"]
    return "".join(f", such as {each.id}: {each.error}" for each in tried_again[:1])


def _made(given: App | MakeApp, process: Process) -> App:
    made: object = given if isinstance(given, App) else given(process)
    if isinstance(made, App):
        return made
    problem = answer_problem(made) or f"it returned {repr_text(made)}: it must return the headway.App that it makes"
    raise DeclarationError(f"the function that makes the app, {function_text(given)}: {problem}")


def _current_process() -> tuple[str, int] | None:
    process = PROCESS.get()
    return None if process is None else (process.name, process.lives)
