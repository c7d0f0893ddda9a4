"""The simulated world: a store, its server and the processes on it, under virtual time and the faults of a plan."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio
from grpclib import GRPCError
from trio.testing import MockClock

from headway.client import Client
from headway.controller import App
from headway.protobuf import copy_message
from headway.resource import Key, Kind, Registry, ResourceType, is_marked, pb, type_name
from headway.rpc import Channel
from headway.storage import Fence, Put
from headway.testing.simulation import _faults as faults
from headway.testing.simulation._always import type_of
from headway.testing.simulation._checkpoints import Checkpoints
from headway.testing.simulation._link import Link
from headway.testing.simulation._oracles import Scheduled
from headway.testing.simulation._own_services import OwnServices
from headway.testing.simulation._process import Process
from headway.testing.simulation._server import Server
from headway.testing.simulation._store import SimulatedStore, asked_again
from headway.testing.simulation._streams import Streams
from headway.testing.simulation._trace import Committed, Happened, Reconcile, Step, Trace

MakeApp = Callable[["Process"], App]


class GivenUp(Exception):
    """A run has gone on for so long that it is taken to be endless."""


class World:
    """The world that a scenario works in.

    Attributes:
        client: reads and writes as a user, without faults.
        outside: the outside world, without faults.
        processes: the processes that run the controllers.
        types: the program's types.
        clock: the virtual clock.
    """

    client: Client

    def __init__(
        self,
        make_app: App | MakeApp,
        plan: faults.Plan,
        *,
        processes: int = 1,
        outside: object = None,
        lease_ttl: float = 15.0,
        most_steps: int = 2000,
        patient: bool = False,
        own_services: bool = False,
        clock: MockClock | None = None,
    ) -> None:
        self._make_app = make_app
        self.plan = plan
        self.clock = clock or MockClock(autojump_threshold=0)
        self.trace = Trace()
        self.store = SimulatedStore(self._committed)
        self.outside: Any = outside
        self.lease_ttl = lease_ttl
        self.patient = patient
        self._own_services = own_services
        self._most_steps = most_steps
        self.processes = [Process(self, f"p{at + 1}") for at in range(processes)]
        self.types: Registry = self.make_app(self.processes[0]).registry
        self.gave_up = ""
        self.nursery: trio.Nursery
        self._server = Server(self)
        self._at_step = {each.step: each for each in plan if isinstance(each, faults.StepFault)}
        self._at_change = {(each.type, each.revision): each for each in plan if isinstance(each, faults.ChangeFault)}
        self._at_checkpoint = {
            (each.process, each.checkpoint): each for each in plan if isinstance(each, faults.CrashAt)
        }
        # By process: the number of messages on its link when its last checkpoint was noted. None ends the noting.
        self._noted: dict[str, tuple[Link, int]] | None = {}
        self._until: dict[int, list[Callable[[], None]]] = {}
        # The number of late calls and lasting faults, which no engine knows of.
        self._pending = 0
        self._nothing_pending = trio.Event()
        # Calls that arrive when the scenario is over. `wait_idle` does not wait for them before that.
        self._last: list[Callable[[], None]] = []
        self._next: deque[Callable[[int], faults.StepFault]] = deque()
        self._doing: list[Step] = []
        # The last desired state by users, by kind and key. After a restore they ask for it again.
        self._wishes: dict[tuple[Kind, Key], pb.Resource | None] = {}
        self._streams = Streams(self)
        self.struck: list[faults.Fault] = []

    # --- for scenarios ---

    async def wait_idle(self, within: float = 1800.0) -> None:
        """Wait until no late call is pending and every controller is idle.

        Calls that arrive last do not count until the scenario is over.

        Raises:
            GivenUp: if that takes more than ``within`` seconds.
        """
        with trio.move_on_after(within):
            while True:
                revision, lives = self.store.position, [process.life for process in self.processes]
                while self._pending:
                    await self._nothing_pending.wait()
                for process in self.processes:
                    await process.wait_idle()
                await self._server.wait_idle()
                now = [process.life for process in self.processes]
                if (self._pending, self.store.position, now) == (0, revision, lives):
                    return
        owing = "; ".join(
            f"{process.name}: {status.name} {status.problem or 'has work left'}"
            for process in self.processes
            for status in process.status()
            if not status.settled
        )
        raise GivenUp(f"the world is not idle after {within:.0f} s: {owing or 'no process is running'}")

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await trio.sleep(seconds)

    def type(self, kind: str) -> ResourceType[Any]:
        """Return the program's type of this kind, such as ``Team``.

        Raises:
            DeclarationError: if there is no such type.
        """
        return type_of(self.types, kind)

    def crash(self, process: int = 0, *, checkpoints: int = 0) -> None:
        """Kill a process, now or after this number of its Trio checkpoints. It starts again."""
        killed = self.processes[process]
        if checkpoints:
            fault = faults.CrashAt(killed.name, killed.checkpoints + checkpoints)
            self._at_checkpoint[fault.process, fault.checkpoint] = fault
        else:
            killed.kill()

    def next_call(self, *befall: Callable[[int], faults.StepFault]) -> None:
        """Apply these faults to the reconcilers' next calls, one each. A fault is made from the step's number."""
        self._next.extend(befall)

    def befall(self, fault: faults.ChangeFault) -> None:
        """Apply a fault to the streams of its type now, whatever its revision."""
        group, _, kind = fault.type.partition(".")
        self._struck(fault)
        self._streams.harm((group, kind), fault)

    def heal(self) -> None:
        """End the faults.

        A fault that lasts for some seconds still runs out. Calls that were to arrive last arrive now.
        """
        self._next.clear()
        self._at_step.clear()
        self._at_change.clear()
        self._at_checkpoint.clear()
        self._noted = None
        for waiting in list(self._until):
            self._reach(waiting)
        last, self._last = self._last, []
        for arrive in last:
            arrive()

    @property
    def written(self) -> int:
        """The number of changes made by controllers."""
        return sum(1 for each in self.trace.commits if each.by)

    # --- for the runner ---

    def scheduled(self) -> set[Scheduled]:
        """Return what will be reconciled at a requested time."""
        return {each for process in self.processes for each in process.scheduled()}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run the server and the processes while the block runs."""
        if not len(self.plan) or self._at_checkpoint:
            trio.lowlevel.add_instrument(Checkpoints(self))
        async with trio.open_nursery() as self.nursery:
            await self.nursery.start(self._server.serve)
            for process in self.processes:
                self.nursery.start_soon(process.live, name=f"process {process.name}")
            yield
            self.nursery.cancel_scope.cancel()

    async def stop_processes(self) -> None:
        """Shut every process down in an orderly way."""
        for process in self.processes:
            await process.stop()

    def start_processes(self) -> None:
        """Start the stopped processes again."""
        for process in self.processes:
            self.nursery.start_soon(process.live, name=f"process {process.name}")

    def note(self, text: str, *, fault: bool = False) -> None:
        """Add a line to the trace."""
        self.trace.add(Happened(trio.current_time(), text, fault))

    def give_up(self, why: str) -> None:
        """End the run and remember the reason."""
        self.gave_up = self.gave_up or why
        self.nursery.cancel_scope.cancel()

    # --- steps ---

    def begin_reconcile(self, reconcile: Reconcile) -> None:
        """Add the start of a reconcile to the trace, and give up if there have been too many."""
        self.trace.add(reconcile)
        if len(self.trace.reconciles) > self._most_steps:
            self.give_up(f"still busy after {self._most_steps} reconciles")

    def begin_step(self, step: Step) -> Step:
        """Add the start of a call to the trace, and give up if there have been too many."""
        self.trace.add(step)
        if len(self.trace.steps) > self._most_steps:
            self.give_up(f"still busy after {self._most_steps} calls")
        return step

    def strike(self, step: Step) -> faults.StepFault | None:
        """Return the fault for this step, and remove it from the plan."""
        found = self._at_step.pop(step.number, None)
        if found is None and self._next:
            found = self._next.popleft()(step.number)
        if found is not None:
            self._struck(found)
        return found

    def _struck(self, fault: faults.Fault) -> None:
        self.struck.append(fault)
        self.note(str(fault), fault=True)

    def pass_checkpoint(self, process: Process, task: str) -> None:
        """Count a Trio checkpoint that a task is about to leave, and kill the process if the plan says so."""
        process.checkpoints += 1
        if self._noted is not None:
            passed = (process.link, process.link.passed)
            if self._noted.get(process.name, (process.link, 0)) != passed:
                self.trace.checkpoints.append((process.name, process.checkpoints))
            self._noted[process.name] = passed
        found = self._at_checkpoint.pop((process.name, process.checkpoints), None)
        if found is not None:
            self._struck(found)
            self.note(f"{process.name} was about to resume the task {task}")
            process.kill()

    @contextmanager
    def doing(self, step: Step) -> Iterator[None]:
        """Attribute commits of this step's resource to the step while the block runs."""
        self._doing.append(step)
        try:
            yield
        finally:
            self._doing.remove(step)

    def later(self, seconds: float, step: Step, call: Callable[[], Awaitable[Any]]) -> None:
        """Make a call after some seconds and discard its reply."""

        async def arrive() -> None:
            await trio.sleep(seconds)
            try:
                with self.doing(step):
                    await call()
                became = "was done"
            except GRPCError as error:
                became = f"was rejected: {error.message}"
            except Exception as error:  # noqa: BLE001  # the outside world may raise anything; no caller is left
                became = f"failed: {error}"
            self.note(f"step {step.number} arrives late and {became}")
            self.end_pending()

        self.begin_pending()
        self.nursery.start_soon(arrive)

    def last(self, step: Step, call: Callable[[], Awaitable[Any]]) -> None:
        """Make a call at the end of the scenario, after all that users do and all that follows from it."""
        self._last.append(lambda: self.later(0.0, step, call))

    def begin_pending(self) -> None:
        """Count a late call or lasting fault that no engine knows of."""
        if not self._pending:
            self._nothing_pending = trio.Event()
        self._pending += 1

    def end_pending(self) -> None:
        """End what `begin_pending` counted."""
        self._pending -= 1
        if not self._pending:
            self._nothing_pending.set()

    # --- faults that last ---

    def cut_off(self, link: Link, seconds: float) -> None:
        """Cut a process off from the network for some seconds."""
        link.cut()
        self.after(seconds, link.mend)

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Call a function after some seconds. Until then the world is not idle."""

        async def wait() -> None:
            await trio.sleep(seconds)
            self.end_pending()
            then()

        self.begin_pending()
        self.nursery.start_soon(wait)

    async def restart_server(self) -> None:
        """Restart the server on the same store."""
        await self._server.restart()

    async def restore(self, revision: int) -> None:
        """Replace the store by a backup of itself. Then users ask again for what is lost."""
        self.store = await self.store.restored(revision)
        await self._server.restart()
        for (kind, key), wish in self._wishes.items():
            type = next((each for each in self.types if each.kind == kind), None)
            if type is None:
                continue
            if wish is None:
                await self.client.delete(type.id(key[2], partition=key[0], namespace=key[1]))
                continue
            # In its stored version, if the program knows that version.
            stored_as = type_name(wish.id.type if wish.id is not None else None)
            await self.client.apply((self.types.find(stored_as) or type).view(asked_again(wish)))

    async def overtake(self, kind: Kind, key: Key) -> bool:
        """Write a resource unchanged, as another writer, so that only its version differs.

        Returns False if the resource does not exist.
        """
        stored = self.store.now.get((kind, key))
        if stored is None:
            return False
        # Not a user's write, so it is not asked for again after a restore.
        wishes = dict(self._wishes)
        await self.store.commit([Put(kind, key, copy_message(stored), stored.version)])
        self._wishes = wishes
        return True

    def _committed(
        self, revision: int, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None, fence: Fence | None
    ) -> None:
        by = fence.controller.partition("/")[2] if fence is not None else ""
        step = next((each for each in self._doing if each.write and (each.kind, each.key) == (kind, key)), None)
        if step is not None and fence is not None:
            step.revision = revision
        if fence is None:
            self._wishes[kind, key] = None if new is not None and is_marked(new.metadata) else new
        term = fence.term if fence is not None else 0
        member = fence.member if fence is not None else ""
        self.trace.add(Committed(trio.current_time(), revision, kind, key, old, new, by, term, member))
        self._reach(revision)
        found = self._at_change.pop((f"{kind[0]}.{kind[1]}", revision), None)
        if found is not None:
            self._struck(found)
            self._streams.harm(kind, found)

    def when_at(self, revision: int, then: Callable[[], None]) -> None:
        """Call a function when the store is at a revision or the faults have ended."""
        self._until.setdefault(revision, []).append(then)

    def _reach(self, revision: int) -> None:
        for then in self._until.pop(revision, ()):
            then()

    def new_link(self, process: Process) -> Link:
        """Return the connection to the server for a process that begins a life."""
        served_by: Channel = self._server
        if self._own_services:
            served_by = OwnServices(self, process.app.registry, lambda: self._server.is_up)
        link = Link(self, process, served_by)
        self._streams.begin(process, link.script)
        return link

    def make_app(self, process: Process) -> App:
        """Return the program that a process runs in its next life."""
        given = self._make_app
        return given if isinstance(given, App) else given(process)
