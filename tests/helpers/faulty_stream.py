"""One WatchList stream with faults at its beginning and later.

It delivers the items of a real stream of the service. Only an older snapshot and repeated changes, which that server
would not send, are made from the store's record.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import trio
from grpclib.const import Status

from headway._gen.headway.store import v1 as store_pb
from headway.errors import HeadwayError
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Kind,
    Position,
    ScopeConfirmed,
    SnapshotChunk,
    StreamItem,
    Within,
    pb,
    position,
    selected,
)
from headway.rpc import Channel
from headway.service import POSITION, WATCH_LIST
from tests.helpers.service_errors import failed
from tests.helpers.stream_beginnings import NEEDS_SNAPSHOT, Again, Begins, Behind, Beyond, Compacted, Half, Unreachable
from tests.helpers.truth import Record

_STEP_SECONDS, _STEPS, _REPETITIONS = 10.0, 8, 40
"""The seconds between two steps of a replica that is slow to catch up, and the number of its steps.

A replica that stands still takes more of them than any reader may wait for.
"""


@dataclass
class KindStreams:
    """The streams of one kind, and the faults of the next ones.

    Attributes:
        delivered: the highest revision up to which a stream was complete, according to the stream.
        longest_below: the longest time, in seconds, that a stream remained below that revision.
        longest_stuck: the longest time, in seconds, in which a stream's items brought it no further below the store.
        false_up_to: the revision of the last false bookmark that no snapshot has corrected yet; 0 if there is none.
        false_bookmarks: the number of false bookmarks to deliver.
        false_delivered: the number of false bookmarks that were delivered.
        repeats: the number of items with changes to deliver twice.
        holds_next: True if streams that are opened from now on are held from their beginning.
    """

    kind: Kind
    beginnings: deque[Begins]
    changed: trio.lowlevel.ParkingLot
    open: list[FaultyStream] = field(default_factory=list)
    delivered: int = 0
    longest_below: float = 0.0
    longest_stuck: float = 0.0
    false_up_to: int = 0
    false_bookmarks: int = 0
    false_delivered: int = 0
    repeats: int = 0
    holds_next: bool = False

    def hold(self) -> None:
        """Make the open streams deliver nothing more."""
        for stream in self.open:
            stream.held, stream.passes = True, 0

    def let_pass(self, count: int = 1) -> None:
        """Let the next items of the held streams pass."""
        for stream in self.open:
            stream.passes += count
        self.changed.unpark_all()

    def release(self) -> None:
        """Let the open streams catch up."""
        for stream in self.open:
            stream.held = False
        self.changed.unpark_all()

    def drop(self) -> None:
        """Break the open streams."""
        for stream in self.open:
            stream.drop()
        self.changed.unpark_all()

    def repeat(self, changes: list[Change]) -> None:
        """Make the open streams deliver these changes, which some stream has delivered before, again."""
        for stream in self.open:
            stream.insert(changes)


class FaultyStream:
    """The reader's side of a faulty stream: an async context manager that is its own iterator."""

    def __init__(
        self,
        channel: Channel,
        request: pb.WatchListRequest,
        record: Record,
        streams: KindStreams,
        begins: Begins | None,
    ) -> None:
        self.held = streams.holds_next
        self.passes = 0
        self._channel = channel
        self._request = request
        self._record = record
        tenancy = request.tenancy or pb.Tenancy()
        self._within = Within(
            tenancy.partition, tenancy.namespace, request.name_prefix, selected(request.metadata_filter)
        )
        self._streams = streams
        self._begins = begins
        self._inner: Any = None
        self._items: Any = None
        self._ready: deque[StreamItem | ScopeConfirmed] = deque()
        if request.metadata_filter:
            # Every server confirms the scope, whatever else it does wrong.
            self._ready.append(ScopeConfirmed(request.metadata_filter))
        # The position up to which this stream is complete, according to the stream.
        self._at: Position | None = None
        # The position after which the real stream begins; None if that begins with a snapshot.
        self._asked = position(request.resume_after)
        # The items that a slow replica delivers, by step.
        self._steps: deque[list[StreamItem]] = deque()
        self._snapshot_left: int | None = None
        self._failure: HeadwayError | None = None
        self._lags = False
        self._repeated = 0
        self._scope: trio.CancelScope | None = None
        self._dropped = False
        self._false_bookmark: Bookmark | None = None
        # True between a false bookmark and the change that proves it false. A reader could not distinguish a
        # stream that broke or stopped there from a correct one.
        self._hides_change = False
        # The time since which it has been below `KindStreams.delivered`: its beginning or its last snapshot chunk.
        self._below_since: float | None = None
        # The time of its first item that did not bring it further although the store was.
        self._stuck_since: float | None = None

    def drop(self) -> None:
        """Break this stream, even while it waits."""
        self._dropped = True
        if self._scope is not None:
            self._scope.cancel()

    def insert(self, changes: list[Change]) -> None:
        """Deliver these changes next, if the snapshot has ended."""
        if self._at is not None and not self._hides_change:
            self._ready.extendleft(reversed(list(_by_commit(changes))))

    async def __aenter__(self) -> FaultyStream:
        self._streams.open.append(self)
        self._note_progress()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._note_wait()
        self._streams.open.remove(self)
        if self._inner is not None:
            await self._inner.__aexit__(kind, error, traceback)

    def __aiter__(self) -> FaultyStream:
        return self

    async def __anext__(self) -> StreamItem | ScopeConfirmed:
        await trio.lowlevel.checkpoint()
        while True:
            if self._dropped and not self._hides_change:
                raise failed(Status.UNAVAILABLE, "the connection broke")
            if self._ready and (not self.held or self.passes or self._hides_change):
                self.passes = max(0, self.passes - 1)
                return self._hand_out(self._ready.popleft())
            if self._ready or (self.held and not self.passes and self._at is not None):
                await self._streams.changed.park()
            elif self._failure is not None:
                raise self._failure
            elif self._steps:
                await self._step()
            else:
                await self._pull()

    async def _step(self) -> None:
        with trio.CancelScope() as self._scope:
            await trio.sleep(_STEP_SECONDS)
            self._note_wait()
            self._ready.extend(self._steps.popleft())
        self._scope = None

    def _hand_out(self, item: StreamItem | ScopeConfirmed) -> StreamItem | ScopeConfirmed:
        streams, before = self._streams, self._at
        if before is None and isinstance(item, Bookmark | EndOfSnapshot) and self._is_refused(item):
            return item
        if isinstance(item, EndOfSnapshot) or (isinstance(item, Bookmark) and self._at is None):
            self._at = item.position
        elif isinstance(item, Bookmark | Changes) and self._at is not None:
            # A change that another stream has delivered may have come before a bookmark.
            revision = item.changes[-1].revision if isinstance(item, Changes) else item.position.revision
            self._at = self._at._replace(revision=max(self._at.revision, revision))
        self._note_advance(before)
        if isinstance(item, EndOfSnapshot) and item.position.revision >= streams.false_up_to:
            streams.false_up_to = 0
        if item is self._false_bookmark and self._at is not None:
            streams.false_up_to = max(streams.false_up_to, self._at.revision)
            self._hides_change = True
            streams.false_delivered += 1
        elif isinstance(item, Changes):
            self._hides_change = False
        self._note_progress(in_snapshot=isinstance(item, SnapshotChunk))
        return item

    def _is_refused(self, begins: Bookmark | EndOfSnapshot) -> bool:
        """Return True if the reader refuses a stream that begins so: it resumes elsewhere, or is of another store."""
        at, asked, known = begins.position, position(self._request.resume_after), position(self._request.known)
        elsewhere = isinstance(begins, Bookmark) and asked is not None and at.revision != asked.revision
        return elsewhere or (known is not None and at.store_id != known.store_id)

    def _note_advance(self, before: Position | None) -> None:
        commits = self._record.commits
        if before != self._at or self._at is None or not commits or commits[-1].revision <= self._at.revision:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = trio.current_time()
        else:
            seconds = trio.current_time() - self._stuck_since
            self._streams.longest_stuck = max(self._streams.longest_stuck, seconds)

    def _note_wait(self) -> None:
        if self._below_since is not None:
            seconds = trio.current_time() - self._below_since
            self._streams.longest_below = max(self._streams.longest_below, seconds)

    def _note_progress(self, *, in_snapshot: bool = False) -> None:
        self._note_wait()
        at = 0 if self._at is None else self._at.revision
        self._streams.delivered = max(self._streams.delivered, at)
        if at >= self._streams.delivered:
            self._below_since = None
        elif in_snapshot or self._below_since is None:
            self._below_since = trio.current_time()

    # --- the real stream ---

    async def _pull(self) -> None:
        with trio.CancelScope() as self._scope:
            begins, self._begins = self._begins, None
            if begins is not None:
                await self._begin(begins)
            elif self._items is None:
                await self._open()
            else:
                self._receive(await self._items.__anext__())
        self._scope = None

    async def _begin(self, begins: Begins) -> None:
        if isinstance(begins, Unreachable):
            raise failed(Status.UNAVAILABLE, "connection refused")
        if self._asked is not None and isinstance(begins, NEEDS_SNAPSHOT):
            if not isinstance(begins, Compacted):
                self._streams.beginnings.appendleft(begins)
            raise failed(Status.OUT_OF_RANGE, f"history after revision {self._asked.revision} was compacted")
        if isinstance(begins, Half):
            self._snapshot_left = begins.resources
        elif isinstance(begins, Behind):
            await self._begin_behind(begins)
        elif isinstance(begins, Beyond) and self._asked is not None:
            self._asked = self._asked._replace(revision=(await self._position()).revision)
        elif isinstance(begins, Again):
            self._repeated = begins.revisions

    async def _begin_behind(self, begins: Behind) -> None:
        here, kind, record = await self._position(), self._streams.kind, self._record
        known = position(self._request.known)
        if known is not None and known.session != here.session:
            # A replica knows as well as its store whether the cache is of another history.
            await self._open()
            return
        revision = min(here.revision, max(0, begins.revision))
        self._ready.extend(SnapshotChunk([resource]) for resource in record.state(kind, revision, self._within))
        self._ready.append(EndOfSnapshot(here._replace(revision=revision)))
        self._lags = True
        if begins.then == "hangs":
            self.held, self.passes = True, len(self._ready)
        step = math.ceil((here.revision - revision) / _STEPS)
        while begins.then == "is slow" and revision < here.revision:
            reached = min(here.revision, revision + step)
            changes = list(_by_commit(record.changes(kind, revision, reached, self._within)))
            self._steps.append([*changes, Bookmark(here._replace(revision=reached))])
            revision = reached
        if begins.then == "stands still":
            self._steps.extend([Bookmark(here._replace(revision=revision))] for _ in range(_REPETITIONS))
        self._asked = here._replace(revision=revision)

    async def _open(self) -> None:
        request, resume_after = self._request, self._asked
        asking = pb.WatchListRequest(
            type=request.type,
            tenancy=request.tenancy,
            name_prefix=request.name_prefix,
            metadata_filter=request.metadata_filter,
            resume_after=None if resume_after is None else resume_after.message(),
            bookmark_interval_ms=request.bookmark_interval_ms,
            bookmarks=True,
            # A replica that lags cannot check the position that the reader knows.
            known=None if self._lags else request.known,
        )
        self._inner = self._channel.stream(WATCH_LIST, asking)
        self._items = await self._inner.__aenter__()

    async def _position(self) -> Position:
        request = store_pb.PositionRequest(type=self._request.type)
        reply = await self._channel.unary(POSITION, request, store_pb.PositionResponse)
        at = position(reply.position)
        assert at is not None
        return at

    def _receive(self, item: StreamItem | ScopeConfirmed) -> None:
        if isinstance(item, ScopeConfirmed):
            return
        if self._lags and isinstance(item, Bookmark) and item.resumed:
            # The snapshot that was made from the record came before it.
            return
        if isinstance(item, SnapshotChunk):
            self._snapshot(item)
        elif isinstance(item, Changes):
            for commit in _by_commit(item.changes):
                self._changes(commit, item.changes[-1].revision)
        elif isinstance(item, EndOfSnapshot) and self._snapshot_left is not None:
            self._break()
        else:
            self._ready.append(item)
            begins = isinstance(item, EndOfSnapshot) or item.resumed
            if begins and self._repeated:
                until = item.position.revision
                repeated = self._record.changes(self._streams.kind, until - self._repeated, until, self._within)
                self._ready.extend(_by_commit(repeated))

    def _snapshot(self, item: SnapshotChunk) -> None:
        for resource in item.resources:
            if self._snapshot_left == 0:
                self._break()
                return
            if self._snapshot_left is not None:
                self._snapshot_left -= 1
            self._ready.append(SnapshotChunk([resource]))

    def _break(self) -> None:
        """Break the connection once everything before has been delivered."""
        self._failure = failed(Status.UNAVAILABLE, "the connection broke in the middle of the snapshot")

    def _changes(self, item: Changes, last: int) -> None:
        streams = self._streams
        before = self._at if not self._ready else None
        if streams.false_bookmarks and before is not None and self._false_bookmark is None:
            streams.false_bookmarks -= 1
            self._false_bookmark = Bookmark(before._replace(revision=last))
            self._ready.append(self._false_bookmark)
        elif streams.repeats:
            streams.repeats -= 1
            self._ready.append(item)
        self._ready.append(item)


def _by_commit(changes: list[Change]) -> Iterator[Changes]:
    """Yield one item for each commit, so that a test can look at a reader between any two."""
    for _, commit in itertools.groupby(changes, key=lambda change: change.revision):
        yield Changes(list(commit))
