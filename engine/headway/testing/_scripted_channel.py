"""A channel with scripted faults: it simulates the failures of a network and a replica without either.

It stands between an engine and a channel to a store in the same process. Everything passes unharmed until a test calls
one of its methods. It is deterministic: nothing in it is random or depends on time.

    channel = ScriptedChannel()
    async with headway.testing.open_engine("memory:", app, wrap_channel=channel.over) as engine:
        channel.hold(ACCOUNT)        # accounts lag from here on
        channel.writes(Fault.LOST)   # the controllers' next write happens, and its reply is lost

An older snapshot is not a recording. The stream asks the store for everything since its beginning, gathers the changes
up to the wanted revision into a snapshot, and passes on the changes after it. So it needs a store with its whole
history.
"""

from __future__ import annotations

import enum
import itertools
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NamedTuple

import trio
from typing_extensions import override

from headway._gen.headway.store import v1 as store_pb
from headway.api import Code, Interrupted, PassingChannel, code_of, of_call
from headway.base import Count, checked
from headway.errors import Conflict, HeadwayError, HistoryCompacted
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Kind,
    Position,
    ResourceType,
    ScopeConfirmed,
    SnapshotChunk,
    StreamItem,
    pb,
    position,
    resource_key,
)
from headway.rpc import Channel, Metadata
from headway.service import POSITION

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


class ScriptedChannel(PassingChannel):
    """A channel that fails like a network. For example, a failed call may still have taken effect.

    Attributes:
        done: every write and raise that reached the store, in order, including late ones.
        unknown: the fence of every write whose outcome the caller could not know, in order.
        opened: the kind of every stream, and whether it was asked to resume, in order.
    """

    remote = True

    def __init__(self) -> None:
        super().__init__()
        self._faults: dict[str, deque[Fault]] = {"write": deque(), "raise": deque(), "record": deque()}
        self._slow = trio.Event()
        self._late: list[tuple[str, Any, type[Any]]] = []
        self._scripts: dict[Kind, StreamScript] = {}
        self.done: list[Call] = []
        self.unknown: list[pb.Fence | None] = []
        self.opened: list[tuple[Kind, bool]] = []

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
                reply = await self.inner.unary(path, request, reply_type)
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

    @override
    async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Metadata | None = None) -> Any:
        """Pass a call on, with the fault that the script has for it."""
        method = _method(path)
        write = method in _WRITES
        faults = self._faults.get("write" if write else {"Raise": "raise", "RecordSettled": "record"}.get(method, ""))
        if faults is None:
            return await self.inner.unary(path, request, reply_type, metadata=metadata)
        fault = faults.popleft() if faults else Fault.NONE
        try:
            return await self._call_under(fault, path, request, reply_type)
        except BaseException as error:
            if write and not (isinstance(error, HeadwayError) and _is_rejection(error)):
                self.unknown.append(getattr(request, "fence", None))
            raise

    async def _call_under(self, fault: Fault, path: str, request: Any, reply_type: type[Any]) -> Any:
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
        reply = await self.inner.unary(path, request, reply_type)
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

    @override
    def stream(
        self, path: str, request: Any, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream that follows the script of its type."""
        if _method(path) != _STREAMS or not isinstance(request, pb.WatchListRequest) or request.type is None:
            return self.inner.stream(path, request, metadata=metadata)
        kind = (request.type.group, request.type.kind)
        self.opened.append((kind, request.resume_after is not None))
        return ScriptedStream(self.inner, path, request, self.kind_script(kind))

    def kind_script(self, kind: Kind) -> StreamScript:
        """Return the script of the streams of a kind, for a caller without the type."""
        return self._scripts.setdefault(kind, StreamScript())


def _method(path: str) -> str:
    return path.rpartition("/")[2]


def _is_rejection(error: HeadwayError) -> bool:
    return code_of(error) not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.UNKNOWN, Code.INTERNAL)


class StreamScript:
    """The script of the streams of one type, open and future ones."""

    def __init__(self) -> None:
        self.held = False
        self.stalled = False
        self.passes = 0
        self.resumes_refused = 0
        self.old_snapshots: deque[int] = deque()
        self.duplicates = 0
        self.false_bookmarks = 0
        # The revision of the last false bookmark that no snapshot has corrected yet; 0 if there is none.
        self.lied_up_to = 0
        self.open: list[ScriptedStream] = []
        self._changed_script = trio.lowlevel.ParkingLot()

    def release(self) -> None:
        """Release everything that is held back."""
        self.held = self.stalled = False
        self.passes = 0
        self._changed_script.unpark_all()

    def let_pass(self, count: int) -> None:
        """Hold back changes and bookmarks after the next ``count``."""
        self.held, self.passes = True, count
        self._changed_script.unpark_all()

    def drop(self) -> None:
        """Break the open streams."""
        for stream in self.open:
            stream.drop()
        self._changed_script.unpark_all()

    def heal(self) -> None:
        """End all faults."""
        self.resumes_refused = self.duplicates = self.false_bookmarks = 0
        self.old_snapshots.clear()
        self.release()

    def holds(self, item: StreamItem | ScopeConfirmed) -> bool:
        """Return True if this item has to wait."""
        if not self.stalled and self.passes and isinstance(item, Changes | Bookmark):
            self.passes -= 1
            return False
        return self.stalled or (self.held and isinstance(item, Changes | Bookmark))

    async def wait(self) -> None:
        """Wait until the script changes."""
        await self._changed_script.park()


class ScriptedStream:
    """The reader's side of a scripted stream: an async context manager that is its own iterator."""

    def __init__(self, channel: Channel, path: str, request: pb.WatchListRequest, script: StreamScript) -> None:
        self._channel = channel
        self._path = path
        self._request = request
        self._script = script
        self._inner: Any = None
        self._items: Any = None
        self._ready: deque[StreamItem | ScopeConfirmed] = deque()
        self._at: Position | None = position(request.resume_after)
        # While an older snapshot is gathered: its revision, and its resources so far.
        self._until: int | None = None
        self._gathered: dict[Key, pb.Resource] = {}
        self._scope: trio.CancelScope | None = None
        self._dropped = False
        # One false bookmark is enough: the change after it ends this stream.
        self._lie: Bookmark | None = None
        # True between the false bookmark and the change that proves it false.
        self._hides_change = False

    def drop(self) -> None:
        """Break this stream, even while it waits."""
        self._dropped = True
        if self._scope is not None:
            self._scope.cancel()

    async def __aenter__(self) -> ScriptedStream:
        self._script.open.append(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._script.open.remove(self)
        if self._inner is not None:
            await self._inner.__aexit__(kind, error, traceback)

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> StreamItem | ScopeConfirmed:
        await trio.lowlevel.checkpoint()
        while True:
            # Never broken between a false bookmark and the change that it hid: the reader could not find out then.
            if self._dropped and not self._hides_change:
                raise Interrupted(Code.UNAVAILABLE, "the script broke this stream")
            if not self._ready:
                await self._pull()
            elif self._script.holds(self._ready[0]):
                await self._script.wait()
            else:
                return self._hand_out(self._ready.popleft())

    def _hand_out(self, item: StreamItem | ScopeConfirmed) -> StreamItem | ScopeConfirmed:
        script = self._script
        if isinstance(item, EndOfSnapshot) and item.position.revision >= script.lied_up_to:
            script.lied_up_to = 0
        elif item is self._lie and isinstance(item, Bookmark):
            script.lied_up_to = max(script.lied_up_to, item.position.revision)
            self._hides_change = True
        elif isinstance(item, Changes):
            self._hides_change = False
        return item

    async def _pull(self) -> None:
        with trio.CancelScope() as self._scope:
            if self._items is None:
                await self._open()
            self._receive(await self._items.__anext__())
        self._scope = None

    async def _open(self) -> None:
        script, request = self._script, self._request
        if request.resume_after is not None:
            if script.resumes_refused:
                script.resumes_refused -= 1
                raise of_call(HistoryCompacted("the script refuses to resume"))
        elif script.old_snapshots:
            wanted = script.old_snapshots.popleft()
            here = await self._position()
            self._until = min(wanted, here.revision)
            request = pb.WatchListRequest(
                type=request.type,
                tenancy=request.tenancy,
                name_prefix=request.name_prefix,
                metadata_filter=request.metadata_filter,
                resume_after=here._replace(revision=0).message(),
            )
        self._inner = self._channel.stream(self._path, request)
        self._items = await self._inner.__aenter__()

    async def _position(self) -> Position:
        assert self._request.type is not None
        request = store_pb.PositionRequest(type=self._request.type)
        reply = await self._channel.unary(POSITION, request, store_pb.PositionResponse)
        at = position(reply.position)
        assert at is not None
        return at

    def _receive(self, item: StreamItem | ScopeConfirmed) -> None:
        if isinstance(item, ScopeConfirmed):
            self._ready.append(item)
            return
        if isinstance(item, Bookmark | EndOfSnapshot):
            self._at = item.position
        if self._until is not None:
            self._gather(item, self._until)
        elif isinstance(item, Changes):
            self._deliver(item)
        else:
            self._ready.append(item)

    def _gather(self, item: StreamItem, until: int) -> None:
        """Add changes up to ``until`` to the snapshot, and deliver the snapshot once it is complete."""
        later: list[Change] = []
        reached = 0
        if isinstance(item, Changes):
            reached = item.changes[-1].revision
            for change in item.changes:
                if change.revision > until:
                    later.append(change)
                elif change.deleted:
                    self._gathered.pop(resource_key(change.resource), None)
                else:
                    self._gathered[resource_key(change.resource)] = change.resource
        elif isinstance(item, Bookmark):
            reached = item.position.revision
        if reached < until:
            return
        assert self._at is not None
        self._until = None
        if self._gathered:
            self._ready.append(SnapshotChunk(list(self._gathered.values())))
        self._ready.append(EndOfSnapshot(self._at._replace(revision=until)))
        # One commit at a time, so that a test can look at a reader between any two.
        for _, commit in itertools.groupby(later, key=lambda change: change.revision):
            self._deliver(Changes(list(commit)))
        if later:
            return
        if reached > until:
            self._ready.append(item)

    def _deliver(self, item: Changes) -> None:
        script = self._script
        if script.false_bookmarks and self._at is not None and self._lie is None:
            script.false_bookmarks -= 1
            self._lie = Bookmark(self._at._replace(revision=item.changes[-1].revision))
            self._ready.append(self._lie)
        elif script.duplicates:
            script.duplicates -= 1
            self._ready.append(item)
        self._ready.append(item)
