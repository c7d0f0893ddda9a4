"""A channel with scripted faults: it simulates the failures of a network and a replica without either.

It stands between an engine and a channel to a store in the same process. Everything passes unharmed until a test calls
one of its methods. It is deterministic: nothing in it is random or depends on time.

    channel = ScriptedChannel()
    async with headway.testing.open_engine("memory:", app, wrap_channel=channel.over) as engine:
        channel.hold(ACCOUNT)        # accounts lag from here on
        channel.writes(Fault.LOST)   # the controllers' next write happens, and its reply is lost
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, TypeVar

import trio

from headway.api import Code, Interrupted, code_of, of_call
from headway.base import Count, checked
from headway.errors import Conflict, HeadwayError
from headway.resource import Kind, ResourceType, pb
from headway.rpc import Channel, Metadata
from headway.testing._scripted_stream import ScriptedStream, StreamScript

Reply = TypeVar("Reply")

_WRITES = frozenset(("Write", "WriteStatus", "Delete"))
_STREAMS = "WatchList"


class Fault(enum.Enum):
    """The fate of one call."""

    NONE = "done and answered"
    FAILED = "not done, answered with UNAVAILABLE"
    BROKEN = "done, answered with UNAVAILABLE"
    LOST = "done, answered with DEADLINE_EXCEEDED"
    SLOW = "done, answered when `answer_slow` is called"
    SILENT = "done, never answered"
    LATE = "answered with DEADLINE_EXCEEDED, and done only when `run_late` is called"
    LATE_BROKEN = "answered with UNAVAILABLE, and done only when `run_late` is called"
    LATE_SILENT = "never answered, and done only when `run_late` is called"
    CONFLICT = "not done, answered with ABORTED"


_LOST = {Fault.LOST: Code.DEADLINE_EXCEEDED, Fault.BROKEN: Code.UNAVAILABLE}
_LATE = {Fault.LATE: Code.DEADLINE_EXCEEDED, Fault.LATE_BROKEN: Code.UNAVAILABLE, Fault.LATE_SILENT: None}


class Call(NamedTuple):
    """A write or a raise of a fence that passed through the script.

    Attributes:
        method: the method's name, such as ``Write`` or ``Raise``.
        reply: the store's reply; None if the call was not done, or was rejected.
        error: the store's error if it rejected the call.
        known: true if the caller learned the result.
    """

    method: str
    request: Any
    reply: Any
    error: HeadwayError | None
    known: bool


class ScriptedChannel:
    """An `rpc.Channel` that fails like a network. For example, a failed call may still have taken effect.

    Attributes:
        done: every write and raise that reached the store, in order, including late ones.
        unknown: the fence of every write whose outcome the caller could not know, in order.
        opened: the kind of every stream, and whether it was asked to resume, in order.
    """

    knows_outcomes = False

    _inner: Channel

    def __init__(self) -> None:
        self._faults: dict[str, deque[Fault]] = {"write": deque(), "raise": deque(), "record": deque()}
        self._slow = trio.Event()
        self._late: list[tuple[str, Any, type[Any]]] = []
        self._scripts: dict[Kind, StreamScript] = {}
        self.done: list[Call] = []
        self.unknown: list[pb.Fence | None] = []
        self.opened: list[tuple[Kind, bool]] = []

    def over(self, inner: Channel) -> Channel:
        """Put this channel over another one. Pass this method to `open_engine` as ``wrap_channel``."""
        self._inner = inner
        return self

    # --- faults of the next calls ---

    def writes(self, *faults: Fault) -> None:
        """Apply these faults to the next writes (Write, WriteStatus, Delete), one each."""
        self._faults["write"].extend(faults)

    def raises(self, *faults: Fault) -> None:
        """Apply these faults to the next raises of a fence, one each."""
        self._faults["raise"].extend(faults)

    def records(self, *faults: Fault) -> None:
        """Apply these faults to the next writes of a checkpoint, one each."""
        self._faults["record"].extend(faults)

    def answer_slow(self) -> None:
        """Deliver the replies held back by `Fault.SLOW`."""
        self._slow.set()
        self._slow = trio.Event()

    async def run_late(self) -> list[Call]:
        """Let the calls held back by the late faults reach the store now. Returns them with their results."""
        late, self._late = self._late, []
        calls: list[Call] = []
        for path, request, reply_type in late:
            try:
                reply = await self._inner.unary(path, request, reply_type)
            except HeadwayError as error:
                calls.append(Call(_method(path), request, None, error, False))
            else:
                calls.append(Call(_method(path), request, reply, None, False))
                self.done.append(calls[-1])
        return calls

    # --- faults of a type's streams ---

    def hold(self, type: ResourceType[Any]) -> None:
        """Hold back changes and bookmarks. Snapshots still arrive."""
        self.kind_script(type.kind).held = True

    def stall(self, type: ResourceType[Any]) -> None:
        """Hold back everything, snapshots included."""
        self.kind_script(type.kind).stalled = True

    @checked()
    def let_pass(self, type: ResourceType[Any], count: Count = 1) -> None:
        """Hold back changes and bookmarks after the next ``count``."""
        self.kind_script(type.kind).let_pass(count)

    def release(self, type: ResourceType[Any]) -> None:
        """Release everything that is held back."""
        self.kind_script(type.kind).release()

    def drop(self, type: ResourceType[Any]) -> None:
        """Break the type's open streams with UNAVAILABLE."""
        self.kind_script(type.kind).drop()

    def refuse_resume(self, type: ResourceType[Any]) -> None:
        """Refuse the next stream that asks to resume, with OUT_OF_RANGE."""
        self.kind_script(type.kind).resumes_refused += 1

    @checked(revision="revision=12")
    def old_snapshot(self, type: ResourceType[Any], revision: Count) -> None:
        """Start the next stream that asks for a snapshot with the state as of that revision, and go on from there."""
        self.kind_script(type.kind).old_snapshots.append(revision)

    def duplicate(self, type: ResourceType[Any]) -> None:
        """Deliver the next changes twice."""
        self.kind_script(type.kind).duplicates += 1

    def false_bookmark(self, type: ResourceType[Any]) -> None:
        """Deliver a bookmark at the last revision of the next changes before these changes."""
        self.kind_script(type.kind).false_bookmarks += 1

    def is_honest(self, type: ResourceType[Any]) -> bool:
        """Return True if a complete snapshot has followed every false bookmark."""
        return not self.kind_script(type.kind).lied_up_to

    def heal(self) -> None:
        """End all faults and deliver slow replies. Calls held back by the late faults still wait for `run_late`."""
        self.answer_slow()
        for faults in self._faults.values():
            faults.clear()
        for script in self._scripts.values():
            script.heal()

    # --- as a channel ---

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Pass a call on, with the fault that the script has for it."""
        method = _method(path)
        write = method in _WRITES
        faults = self._faults.get("write" if write else {"Raise": "raise", "RecordSettled": "record"}.get(method, ""))
        if faults is None:
            return await self._inner.unary(path, request, reply_type, metadata=metadata)
        fault = faults.popleft() if faults else Fault.NONE
        try:
            return await self._call_under(fault, path, request, reply_type)
        except BaseException as error:
            if write and not (isinstance(error, HeadwayError) and _is_rejection(error)):
                self.unknown.append(getattr(request, "fence", None))
            raise

    async def _call_under(self, fault: Fault, path: str, request: Any, reply_type: type[Reply]) -> Reply:
        await trio.lowlevel.checkpoint()
        if fault is Fault.FAILED:
            raise Interrupted(Code.UNAVAILABLE, "the script fails this call")
        if fault is Fault.CONFLICT:
            raise of_call(Conflict("the script simulates another writer that was first"))
        if fault in _LATE:
            self._late.append((path, request, reply_type))
            status = _LATE[fault]
            if status is None:
                await trio.sleep_forever()
            raise Interrupted(status, "the script delays this call")
        reply = await self._inner.unary(path, request, reply_type)
        at = len(self.done)
        self.done.append(Call(_method(path), request, reply, None, fault is Fault.NONE))
        if fault in _LOST:
            raise Interrupted(_LOST[fault], "the script has lost the reply")
        if fault is Fault.SILENT:
            await trio.sleep_forever()
        if fault is Fault.SLOW:
            await self._slow.wait()
            self.done[at] = self.done[at]._replace(known=True)
        return reply

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream that follows the script of its type."""
        if _method(path) != _STREAMS or not isinstance(request, pb.WatchListRequest) or request.type is None:
            return self._inner.stream(path, request, metadata=metadata)
        kind = (request.type.group, request.type.kind)
        self.opened.append((kind, request.resume_after is not None))
        return ScriptedStream(self._inner, path, request, self.kind_script(kind))

    def kind_script(self, kind: Kind) -> StreamScript:
        """Return the script of the streams of a kind, for a caller without the type."""
        return self._scripts.setdefault(kind, StreamScript())


def _method(path: str) -> str:
    return path.rpartition("/")[2]


def _is_rejection(error: HeadwayError) -> bool:
    return code_of(error) not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.UNKNOWN, Code.INTERNAL)


def _meets_the_protocol() -> Channel:
    return ScriptedChannel()
