"""A process's connection to the server for one life: numbers its reconcilers' calls and applies faults to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, NoReturn

import trio

from headway.api import Code, described, of_call
from headway.base import calling_line, story
from headway.controller import App
from headway.errors import Conflict, HeadwayError
from headway.pauses import PAUSE
from headway.protobuf import copy_message
from headway.resource import Bookmark, Changes, EndOfSnapshot, Key, Kind, resource_id
from headway.rpc import Channel, Metadata
from headway.service import WATCH_LIST
from headway.subscribing import SUBSCRIBE
from headway.testing._scripted_channel import ScriptedChannel
from headway.testing.simulation import faults
from headway.testing.simulation._trace import Delivered, Reconcile, Step
from headway.testing.simulation.world._injector import Injector
from headway.testing.simulation.world._readers import Readers, SubscriptionStream
from headway.testing.simulation.world._server import Server
from headway.testing.simulation.world._traced_app import RECONCILE
from headway.testing.simulation.world._wire import ListCall, Wire, WireBroken, WireStream

_WRITES = {"Write": "write", "WriteStatus": "write the status of", "Delete": "delete"}
_READS = {"Read": "read", "List": "list", "ListByOwner": "list what belongs to"}
_LONGEST_ANSWER = 2000
"""The number of characters of an answer that are kept."""
Call = Callable[[], Awaitable[Any]]


class Link(Wire):
    """A `Channel` that behaves as one over a network does: a call that fails may have taken effect.

    Attributes:
        script: the script of the process's streams.
        dead: true once the process has been killed.
        readers: the caches and subscriptions that the program has open.
        passed: the number of messages in either direction that are not steps: the engine's own calls, and items of
            streams.

    Args:
        server: the server that faults restart or restore.
        services: the channel that calls go to.
        process: the name of the process.
        hand_over: lets the next process lead.
        kill: kills the process.
    """

    knows_outcomes = False

    def __init__(
        self,
        injector: Injector,
        server: Server,
        services: Channel,
        process: str,
        hand_over: Callable[[], None],
        kill: Callable[..., None],
    ) -> None:
        super().__init__()
        self._injector = injector
        self._server = server
        self._process = process
        self._hand_over = hand_over
        self._kill = kill
        self.script = ScriptedChannel()
        self._services = services
        self._over = self.script.over(services)
        self.dead = False
        # The number of cuts in force. The link works again when the last one has ended.
        self._cuts = 0
        self.passed = 0
        self.readers = Readers()

    def cut(self, *, dead: bool = False) -> None:
        """Break everything under way and let nothing through, for good if ``dead``."""
        self.dead = self.dead or dead
        self._cuts += 1
        super().cut()

    def mend(self) -> None:
        """End one cut. Let calls through again if it was the last one and the process is alive."""
        self._cuts -= 1
        self.up = not self.dead and not self._cuts

    def cut_off(self, seconds: float) -> None:
        """Cut the process off from the network for some seconds."""
        self.cut()
        self._injector.after(seconds, self.mend)

    def suspend(self, seconds: float) -> None:
        """Suspend the process for some seconds: nothing leaves it or reaches it."""
        self.pause()
        self._injector.after(seconds, self.go_on)

    def opened(self, app: App) -> AbstractAsyncContextManager[Channel]:  # noqa: ARG002  # for a cluster
        """Open the channel that the program of a life uses."""
        return nullcontext(self)

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

    async def beside(self, call: Call) -> Any:
        """Make a call that is not a step: Headway's own, or one of a function other than a reconciler."""
        self.passed += 1
        try:
            return await self.through(call)
        finally:
            self.passed += 1

    async def step(self, reconcile: Reconcile, what: str, kind: Kind, key: Key, call: Call, *, write: bool) -> Any:
        """Make a call as a numbered step, with the fault that the plan has for it."""
        await self._check_alive()
        number = len(self._injector.trace.steps) + 1
        step = Step(trio.current_time(), number, reconcile, what, kind, key, write, place=calling_line())
        self._injector.begin_step(step)
        try:
            reply = await self._make(step, call)
        except trio.Cancelled:
            step.outcome = "killed" if self.dead else "canceled"
            raise
        except Exception as error:
            # A call of the outside world may raise anything.
            if step.outcome == "under way":
                step.outcome = _failure(error)
            raise
        if step.revision:
            # Only now does the program know of its write, and its other reconciles may not read an older state.
            step.by.saw(step.kind, step.key, step.revision, "written")
        return reply

    async def _make(self, step: Step, call: Call) -> Any:
        """Make a step's call under its fault."""
        fault = self._injector.strike_step(step)
        if isinstance(fault, faults.Outage):
            self._injector.begin_outage(step.method, fault.seconds)
        if self._injector.is_out(step.method):
            await self._fail(step, "not done: the other side is unavailable")
        match fault:
            case faults.ClockJump():
                self._injector.clock.jump(fault.seconds)
            case faults.DoneAgain(seconds=seconds) if seconds:
                self._injector.make_later(seconds, step, call)
            case faults.DoneAgain():
                self._injector.make_last(step, call)
            case faults.Slow():
                await trio.sleep(fault.seconds)
            case faults.ChangeDuring():
                await self._injector.during_change()
            case faults.ServerRestart():
                await self._server.restart()
            case faults.ApiServerFault():
                self.strike_server(fault)
            case faults.LeaseLost():
                self._server.store.end_leases()
            case faults.HandOver():
                self._hand_over()
            case faults.CrashBefore():
                self._kill()
                await self._fail_as_killed()
            case faults.CutOff():
                self.cut_off(fault.seconds)
            case faults.Pause():
                return await self._make_after_pause(step, call, fault.seconds)
            case faults.NotDone():
                await self._fail(step, "not done: the connection broke")
            case faults.LostRace() if (
                step.write and step.kind[1] and not await self._server.overtake(step.kind, step.key)
            ):
                conflict = of_call(Conflict("another writer was first"))
                await self._fail(step, "conflict: another writer was first", conflict)
            case faults.CommitLate():
                self._injector.make_later(fault.seconds, step, call)
                await self._fail(step, "on its way: the caller has timed out")
            case faults.CommitLast():
                self._injector.make_last(step, call)
                await self._fail(step, "on its way: the caller has timed out")
        reply = await self._get_reply(step, call)
        match fault:
            case faults.CrashAfter():
                self._kill()
                await self._fail_as_killed()
            case faults.Replaced():
                self._kill(until_upgrade=True)
                await self._fail_as_killed()
            case faults.RestartBehind():
                self._kill(behind=fault.revision)
                await self._fail_as_killed()
            case faults.Restore():
                await self._server.restore(fault.revision)
                raise _reply_lost(step)
            case faults.AnswerLost():
                raise _reply_lost(step)
            case faults.AnswerLate():
                await trio.sleep(fault.seconds)
        return reply

    async def _make_after_pause(self, step: Step, call: Call, seconds: float) -> Any:
        self.pause()
        self._injector.after(seconds, lambda: None)
        # Shielded, because the process resumes exactly where it was: the call goes out before it can learn what has
        # happened.
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
            self.note("resumes")
            self.go_on()
            await self._check_alive()
            return await self._get_reply(step, call)

    async def _get_reply(self, step: Step, call: Call) -> Any:
        with self._injector.doing(step):
            reply = await self.through(call)
        step.outcome = "done"
        step.effect = (trio.current_time(), len(self._injector.trace.entries))
        if not step.write or not step.kind[1]:
            step.answer = self.answer(reply) if step.kind[1] else repr(reply)[:_LONGEST_ANSWER]
        return reply

    def strike_server(self, fault: faults.ApiServerFault) -> None:
        """Let the API servers behave otherwise for some seconds, if there are any."""

    def answer(self, reply: Any) -> str:
        """Return the versions of what was read."""
        items = reply if isinstance(reply, list) else [reply]
        found = [each.resource for each in items if getattr(each, "resource", None) is not None]
        found += [change.resource for each in items if isinstance(each, Changes) for change in each.changes]
        found += [each for item in items for each in getattr(item, "resources", ())]
        return " ".join(f"{resource_id(each.id)} {each.version}" for each in found if each.id is not None)

    async def _fail(self, step: Step, outcome: str, error: HeadwayError | None = None) -> NoReturn:
        await trio.lowlevel.checkpoint()
        step.outcome = outcome
        raise error or _timed_out()

    async def _check_alive(self) -> None:
        # The code of a killed process that still runs must change nothing and learn nothing.
        if self.dead:
            await self._fail_as_killed()

    async def _fail_as_killed(self) -> NoReturn:
        # The task is canceled here. A shielded task gets the error instead, as it must not wait forever for a dead
        # process.
        await trio.lowlevel.checkpoint()
        raise WireBroken(Code.UNAVAILABLE, "the process has been killed")

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream over the wire, and record the items that the process receives.

        A list of the client is streamed too, but it is one call, and a step if a reconciler makes it.
        """
        sent: Any = request
        if path == WATCH_LIST and sent.snapshot_only:
            return ListCall(partial(self._list, path, copy_message(sent), metadata))
        if path == SUBSCRIBE:
            opened = self._over.stream(path, self.readers.admitted(sent), metadata=metadata)
            return SubscriptionStream(self, opened, self.readers, sent)
        kind = (sent.type.group, sent.type.kind) if path == WATCH_LIST else ("", "")
        if kind == PAUSE.kind:
            # No scenario pauses a controller. Faults in this stream would only be spent in vain.
            return WireStream(self, self._services.stream(path, request, metadata=metadata), lambda _: None)
        return WireStream(self, self._over.stream(path, request, metadata=metadata), partial(self._note_item, kind))

    async def _list(self, path: str, sent: Any, metadata: Metadata | None) -> list[Any]:
        """Return the items of a list, which is not affected by the faults of the type's watches."""

        async def call() -> list[Any]:
            async with self._services.stream(path, sent, metadata=metadata) as items:
                return [item async for item in items]

        reconcile = RECONCILE.get()
        items: list[Any] = (
            await self.beside(call)
            if reconcile is None
            else await self.step(reconcile, _READS["List"], *_about("List", sent), call, write=False)
        )
        return items

    def note(self, text: str) -> None:
        """Add an action of the process that is not a step to the trace."""
        if not self.dead:
            self._injector.note(f"{self._process} {text}")

    def _note_item(self, kind: Kind, item: Any) -> None:
        if self.dead:
            # The process was killed in the step that delivered the item, so no task is left to receive it.
            return
        self.passed += 1
        if isinstance(item, Changes):
            for change in item.changes:
                id = resource_id(change.resource.id) if change.resource.id is not None else None
                what = f"{id.name if id else ''} {'deleted' if change.deleted else 'stored'}"
                self._note_delivered(kind, what, change.revision)
        elif isinstance(item, EndOfSnapshot):
            self._note_delivered(kind, "the end of a snapshot", item.position.revision)
        elif isinstance(item, Bookmark):
            self._note_delivered(kind, "a bookmark", item.position.revision)

    def _note_delivered(self, kind: Kind, what: str, revision: int) -> None:
        self._injector.trace.add(Delivered(trio.current_time(), self._process, kind, what, revision))


def _failure(error: Exception) -> str:
    if isinstance(error, HeadwayError):
        return described(error)
    return story(error)


def _timed_out() -> WireBroken:
    return WireBroken(Code.DEADLINE_EXCEEDED, "the deadline has passed")


def _reply_lost(step: Step) -> WireBroken:
    step.outcome = "done, but the reply was lost"
    return _timed_out()


def _about(method: str, request: Any) -> tuple[Kind, Key]:
    id = request.resource.id if method == "Write" else getattr(request, "id", None) or getattr(request, "owner", None)
    if id is not None and id.type is not None:
        found = resource_id(id)
        return found.type.unversioned, found.key
    type = getattr(request, "type", None)
    return ((type.group, type.kind) if type is not None else ("", "")), ("", "", "")
