"""One WatchList stream that does what its type's script says.

An older snapshot is no recording: the stream asks the store for everything since its beginning, gathers the changes up
to the wanted revision into a snapshot, and hands on those after it. So it needs a store whose history is whole.
"""

from __future__ import annotations

import itertools
from collections import deque
from types import TracebackType
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Key,
    Position,
    SnapshotChunk,
    StreamItem,
    pb,
    position,
    resource_key,
)
from headway.rpc import Channel

_LIST_BY_OWNER = "/headway.resource.v1.ResourceService/ListByOwner"


class StreamScript:
    """What the streams of one type do, those that are open and those to come."""

    def __init__(self) -> None:
        self.held = False
        self.stalled = False
        self.passes = 0
        self.resumes_refused = 0
        self.old_snapshots: deque[int] = deque()
        self.duplicates = 0
        self.false_bookmarks = 0
        # The revision up to which a false bookmark has been told that no snapshot has made good; 0: none.
        self.lied_up_to = 0
        self.open: list[ScriptedStream] = []
        self._told = trio.lowlevel.ParkingLot()

    def release(self) -> None:
        """Hold back nothing any more."""
        self.held = self.stalled = False
        self.passes = 0
        self._told.unpark_all()

    def let_pass(self, count: int) -> None:
        """Hold back, but let so many items of an open stream through."""
        self.held, self.passes = True, count
        self._told.unpark_all()

    def drop(self) -> None:
        """Break the streams that are open."""
        for stream in self.open:
            stream.drop()
        self._told.unpark_all()

    def heal(self) -> None:
        """Do nothing unusual from now on."""
        self.resumes_refused = self.duplicates = self.false_bookmarks = 0
        self.old_snapshots.clear()
        self.release()

    def holds(self, item: StreamItem) -> bool:
        """Whether this item has to wait."""
        if not self.stalled and self.passes and isinstance(item, Changes | Bookmark):
            self.passes -= 1
            return False
        return self.stalled or (self.held and isinstance(item, Changes | Bookmark))

    async def wait(self) -> None:
        """Wait until the script says something else."""
        await self._told.park()


class ScriptedStream:
    """The reader's side of a scripted stream: an async context manager that is its own iterator."""

    def __init__(self, channel: Channel, path: str, request: pb.WatchListRequest, script: StreamScript) -> None:
        self._channel = channel
        self._path = path
        self._request = request
        self._script = script
        self._inner: Any = None
        self._items: Any = None
        self._ready: deque[StreamItem] = deque()
        self._at: Position | None = position(request.resume_after)
        # While an older snapshot is being gathered: its revision, and what was there up to now.
        self._until: int | None = None
        self._gathered: dict[Key, pb.Resource] = {}
        self._scope: trio.CancelScope | None = None
        self._dropped = False
        # One is enough: the change that follows it ends this stream.
        self._lie: Bookmark | None = None
        # Whether it has been told, and the change that proves it false has not.
        self._owes_truth = False

    def drop(self) -> None:
        """Break this stream, whatever it is waiting for."""
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

    async def __anext__(self) -> StreamItem:
        await trio.lowlevel.checkpoint()
        while True:
            # Not between a false bookmark and what it hid: nobody could ever know of that then.
            if self._dropped and not self._owes_truth:
                raise GRPCError(Status.UNAVAILABLE, "the script has broken this stream")
            if not self._ready:
                await self._pull()
            elif self._script.holds(self._ready[0]):
                await self._script.wait()
            else:
                return self._hand_out(self._ready.popleft())

    def _hand_out(self, item: StreamItem) -> StreamItem:
        script = self._script
        if isinstance(item, EndOfSnapshot) and item.position.revision >= script.lied_up_to:
            script.lied_up_to = 0
        elif item is self._lie and isinstance(item, Bookmark):
            script.lied_up_to = max(script.lied_up_to, item.position.revision)
            self._owes_truth = True
        elif isinstance(item, Changes):
            self._owes_truth = False
        return item

    async def _pull(self) -> None:
        with trio.CancelScope() as self._scope:
            if self._items is None:
                await self._open()
            self._take(await self._items.__anext__())
        self._scope = None

    async def _open(self) -> None:
        script, request = self._script, self._request
        if request.resume_after is not None:
            if script.resumes_refused:
                script.resumes_refused -= 1
                raise GRPCError(Status.OUT_OF_RANGE, "the script refuses to resume")
        elif script.old_snapshots:
            wanted = script.old_snapshots.popleft()
            here = await self._position()
            self._until = min(wanted, here.revision)
            request = pb.WatchListRequest(
                type=request.type,
                tenancy=request.tenancy,
                name_prefix=request.name_prefix,
                resume_after=here._replace(revision=0).message(),
            )
        self._inner = self._channel.stream(self._path, request)
        self._items = await self._inner.__aenter__()

    async def _position(self) -> Position:
        assert self._request.type is not None
        nobody = pb.Id(type=self._request.type, name="nobody", uid="none")
        request = pb.ListByOwnerRequest(owner=nobody)
        reply = await self._channel.unary(_LIST_BY_OWNER, request, pb.ListByOwnerResponse)
        at = position(reply.position)
        assert at is not None
        return at

    def _take(self, item: StreamItem) -> None:
        if isinstance(item, Bookmark | EndOfSnapshot):
            self._at = item.position
        if self._until is not None:
            self._gather(item, self._until)
        elif isinstance(item, Changes):
            self._tell(item)
        else:
            self._ready.append(item)

    def _gather(self, item: StreamItem, until: int) -> None:
        """Put what happened up to ``until`` into the snapshot; once all of it is in, tell it."""
        later: list[Change] = []
        told = 0
        if isinstance(item, Changes):
            told = item.changes[-1].revision
            for change in item.changes:
                if change.revision > until:
                    later.append(change)
                elif change.deleted:
                    self._gathered.pop(resource_key(change.resource), None)
                else:
                    self._gathered[resource_key(change.resource)] = change.resource
        elif isinstance(item, Bookmark):
            told = item.position.revision
        if told < until:
            return
        assert self._at is not None
        self._until = None
        if self._gathered:
            self._ready.append(SnapshotChunk(list(self._gathered.values())))
        self._ready.append(EndOfSnapshot(self._at._replace(revision=until)))
        # A commit at a time, so that a reader can be seen between any two.
        for _, commit in itertools.groupby(later, key=lambda change: change.revision):
            self._tell(Changes(list(commit)))
        if later:
            return
        if told > until:
            self._ready.append(item)

    def _tell(self, item: Changes) -> None:
        script = self._script
        if script.false_bookmarks and self._at is not None and self._lie is None:
            script.false_bookmarks -= 1
            self._lie = Bookmark(self._at._replace(revision=item.changes[-1].revision))
            self._ready.append(self._lie)
        elif script.duplicates:
            script.duplicates -= 1
            self._ready.append(item)
        self._ready.append(item)
