"""A WatchList stream that follows the script of its type.

An older snapshot is not a recording. The stream asks the store for everything since its beginning, gathers the changes
up to the wanted revision into a snapshot, and passes on the changes after it. So it needs a store with its whole
history.
"""

from __future__ import annotations

import itertools
from collections import deque
from types import TracebackType
from typing import Any

import trio

from headway._gen.headway.store import v1 as store_pb
from headway.api import Code, Interrupted, of_call
from headway.errors import HistoryCompacted
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Position,
    ScopeConfirmed,
    SnapshotChunk,
    StreamItem,
    pb,
    position,
    resource_key,
)
from headway.rpc import Channel
from headway.service import POSITION


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
