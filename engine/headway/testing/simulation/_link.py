"""A process's connection to the server for one life: numbers its reconcilers' calls and applies faults to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway._safe_text import error_text
from headway.protobuf import copy_message
from headway.resource import Bookmark, Changes, EndOfSnapshot, Key, Kind, resource_id
from headway.rpc import Channel, Metadata
from headway.testing._scripted import ScriptedChannel
from headway.testing.simulation import _faults as faults
from headway.testing.simulation._trace import Reconcile, Step, Told
from headway.testing.simulation._wire import Wire, WireStream

if TYPE_CHECKING:
    from headway.testing.simulation._process import Process
    from headway.testing.simulation._world import World

RECONCILE: ContextVar[Reconcile | None] = ContextVar("headway.simulation.reconcile", default=None)
"""The reconcile that the current task works for, set around each reconcile and inherited by the tasks it starts."""

_WRITES = {"Write": "write", "WriteStatus": "write the status of", "Delete": "delete"}
_READS = {"Read": "read", "List": "list", "ListByOwner": "list what belongs to"}


class Link(Wire):
    """A `Channel` that behaves as one over a network does: a call that fails may have taken effect."""

    knows_outcomes = False

    def __init__(self, world: World, process: Process, server: Channel) -> None:
        super().__init__()
        self._world = world
        self._process = process
        self.script = ScriptedChannel()
        self._over = self.script.over(server)
        self.dead = False
        # The number of cuts in force. The link works again when the last one has ended.
        self._cuts = 0
        # The number of messages in either direction that are not steps: the engine's own calls, and items of streams.
        self.passed = 0

    def cut(self, *, dead: bool = False) -> None:
        """Break everything under way and let nothing through, for good if ``dead``."""
        self.dead = self.dead or dead
        self._cuts += 1
        super().cut()

    def mend(self) -> None:
        """End one cut. Let calls through again if it was the last one and the process is alive."""
        self._cuts -= 1
        self.up = not self.dead and not self._cuts

    async def unary(
        self, path: str, request: object, reply_type: type[Any], *, metadata: Metadata | None = None
    ) -> Any:
        """Make a call, as a numbered step if a reconciler makes it."""
        method = path.rpartition("/")[2]
        reconcile = RECONCILE.get()
        sent: Any = request

        async def call() -> Any:
            return await self._over.unary(path, sent, reply_type, metadata=metadata)

        if reconcile is None or (method not in _WRITES and method not in _READS):
            return await self.beside(call)
        # Copied, because a late call must send what the caller passed: the caller may change its message in between.
        sent = copy_message(sent)
        kind, key = _about(method, sent)
        what = _WRITES.get(method) or _READS[method]
        return await self.step(reconcile, what, kind, key, call, write=method in _WRITES)

    async def beside(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call that is not a step: Headway's own, or one of a function other than a reconciler."""
        self.passed += 1
        try:
            return await self.through(call)
        finally:
            self.passed += 1

    async def step(
        self,
        reconcile: Reconcile,
        what: str,
        kind: Kind,
        key: Key,
        call: Callable[[], Awaitable[Any]],
        *,
        write: bool,
        unreachable: Callable[[Status, str], BaseException] = GRPCError,
    ) -> Any:
        """Make a call as a numbered step, with the fault that the plan has for it."""
        world = self._world
        if self.dead:
            # The process has been killed: its code that still runs must change nothing and learn nothing.
            return await self._nothing(unreachable)
        step = world.begin_step(
            Step(trio.current_time(), len(world.trace.steps) + 1, reconcile, what, kind, key, write)
        )
        try:
            return await self._befall(step, call, unreachable)
        except trio.Cancelled:
            step.outcome = "killed" if not self._process.life else "canceled"
            raise
        except GRPCError as error:
            if step.outcome == "under way":
                step.outcome = f"{error.status.name}: {error.message}"
            raise
        except Exception as error:
            # From a call of the outside world, which may raise anything.
            if step.outcome == "under way":
                step.outcome = f"{type(error).__name__}: {error_text(error)}"
            raise

    async def _befall(
        self, step: Step, call: Callable[[], Awaitable[Any]], unreachable: Callable[[Status, str], BaseException]
    ) -> Any:
        world, found = self._world, self._world.strike(step)
        if isinstance(found, faults.ClockJump):
            world.clock.jump(found.seconds)
        elif isinstance(found, faults.ServerRestart):
            await world.restart_server()
        elif isinstance(found, faults.LeaseLost):
            world.store.end_leases()
        elif isinstance(found, faults.CrashBefore):
            self._process.kill()
            return await self._nothing(unreachable)
        elif isinstance(found, faults.CutOff):
            world.cut_off(self, found.seconds)
        elif isinstance(found, faults.Pause):
            return await self._pause(step, call, found.seconds, unreachable)
        elif isinstance(found, faults.NotDone):
            await trio.lowlevel.checkpoint()
            raise self._lost(step, "not done: the connection broke", unreachable)
        elif isinstance(found, faults.LostRace) and step.write and not await world.overtake(step.kind, step.key):
            await trio.lowlevel.checkpoint()
            step.outcome = "conflict: another writer was first"
            raise unreachable(Status.ABORTED, "another writer was first")
        elif isinstance(found, faults.CommitLate | faults.CommitLast):
            if isinstance(found, faults.CommitLate):
                world.later(found.seconds, step, call)
            else:
                world.last(step, call)
            await trio.lowlevel.checkpoint()
            step.outcome = "on its way: the caller has timed out"
            raise unreachable(Status.DEADLINE_EXCEEDED, "the deadline has passed")
        answer = await self._done(step, call)
        if isinstance(found, faults.Restore):
            await world.restore(found.revision)
        if isinstance(found, faults.CrashAfter | faults.RestartBehind):
            self._process.kill(behind=getattr(found, "revision", None))
            return await self._nothing(unreachable)
        if isinstance(found, faults.AnswerLost | faults.Restore):
            raise self._lost(step, "done, but the reply was lost", unreachable)
        if isinstance(found, faults.AnswerLate):
            await trio.sleep(found.seconds)
        return answer

    async def _pause(
        self,
        step: Step,
        call: Callable[[], Awaitable[Any]],
        seconds: float,
        unreachable: Callable[[Status, str], BaseException],
    ) -> Any:
        self.pause()
        self._world.after(seconds, lambda: None)
        # Shielded, because the process resumes exactly where it was: the call goes out before it can learn what has
        # happened.
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
            self.note("resumes")
            self.go_on()
            if self.dead:
                return await self._nothing(unreachable)
            return await self._done(step, call)

    async def _done(self, step: Step, call: Callable[[], Awaitable[Any]]) -> Any:
        with self._world.doing(step):
            answer = await self.through(call)
        step.outcome = "done"
        if step.revision:
            step.by.saw(step.kind, step.key, step.revision, "written")
        return answer

    def _lost(self, step: Step, outcome: str, unreachable: Callable[[Status, str], BaseException]) -> BaseException:
        step.outcome = outcome
        return unreachable(Status.DEADLINE_EXCEEDED, "the deadline has passed")

    async def _nothing(self, unreachable: Callable[[Status, str], BaseException]) -> Any:
        # The task is canceled here. A shielded task gets the error instead, as it must not wait forever for a dead
        # process.
        await trio.lowlevel.checkpoint()
        raise unreachable(Status.UNAVAILABLE, "the process has been killed")

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream over the wire, and record the items that the process receives."""
        sent: Any = request
        kind = (sent.type.group, sent.type.kind) if path.endswith("/WatchList") else ("", "")
        return WireStream(self, self._over.stream(path, request, metadata=metadata), partial(self.heard, kind))

    def note(self, text: str) -> None:
        """Add an action of the process that is not a step to the trace."""
        if not self.dead:
            self._world.note(f"{self._process.name} {text}")

    def heard(self, kind: Kind, item: Any) -> None:
        """Add an item of a stream that the process receives to the trace."""
        world, name = self._world, self._process.name
        if self.dead:
            # The process was killed in the step that delivered the item, so no task is left to receive it.
            return
        now = trio.current_time()
        self.passed += 1
        if isinstance(item, Changes):
            for change in item.changes:
                id = resource_id(change.resource.id) if change.resource.id is not None else None
                what = f"{id.name if id else ''} {'deleted' if change.deleted else 'stored'}"
                world.trace.add(Told(now, name, kind, what, change.revision))
        elif isinstance(item, EndOfSnapshot):
            world.trace.add(Told(now, name, kind, "the end of a snapshot", item.position.revision))
        elif isinstance(item, Bookmark):
            world.trace.add(Told(now, name, kind, "a bookmark", item.position.revision))


def _about(method: str, request: Any) -> tuple[Kind, Key]:
    id = request.resource.id if method == "Write" else getattr(request, "id", None) or getattr(request, "owner", None)
    if id is not None and id.type is not None:
        found = resource_id(id)
        return found.type.unversioned, found.key
    type = getattr(request, "type", None)
    return ((type.group, type.kind) if type is not None else ("", "")), ("", "", "")
