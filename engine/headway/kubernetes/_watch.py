"""The stream of a type: a snapshot of its objects, their changes, and bookmarks on demand.

A server sends a bookmark once a minute. Who waits until the stream is complete up to a revision cannot wait that long,
so the stream asks (`_barrier`): a consistent list says up to which revision the type must be known and, while it is
small, which objects there are at it. If the open watch has delivered these, the stream is complete up to there. For a
longer list, a second watch from the same place on ends soon, and a server sends a bookmark before it ends a watch.

Invariants:
- What is delivered is complete up to the frontier, and in order.
- No change is lost. One that comes late, at or below the frontier, is of an object that was created and deleted within
  one barrier. It is delivered at the next revision of which a watch says that nothing before it is missing, by the next
  stream if need be. So it is mapped, and undoes no state.
- The next process is not told that all is done up to a revision below which something may still come late (`sure`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from headway.api import of_call
from headway.base import retry_delay
from headway.errors import (
    FailedPrecondition,
    HeadwayError,
    HistoryCompacted,
    NotFound,
    PermissionDenied,
    RateLimited,
    StoreChanged,
    Unauthenticated,
)
from headway.kubernetes._http import ApiServer
from headway.kubernetes._objects import revision_of
from headway.kubernetes._watched import METADATA_LIST, Watched
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
    resource_key,
)

SMALL = 500
"""The number of objects up to which a list of them all is always cheaper than to wait for a bookmark."""

_MOST_LISTED = 2_000
_REST = 0.001
"""A larger list is made if so many seconds for each of its objects have passed since the last one."""

_LIGHT = 1 << 20
"""The number of characters in their labels and annotations up to which it is cheap."""

_CHUNK = 500
_QUEUE = 64
_DELAYS = 64
SIDE_SECONDS = 3
"""The shortest end of a watch before which a server sends a bookmark, which it does two seconds earlier."""

_PATIENCE = 2.0
_SHORT = 0.5
"""A server that ends a watch sooner is asked again after a delay, in seconds."""

_END = "k8s.io/initial-events-end"


class TypeWatch:
    """One stream. `items` opens it.

    Args:
        made: makes a resource of an object, given whether it was deleted.
        store_id: the id of the cluster.
        resume: the revision after which it begins; None for a snapshot.
        before: the last stream of the same objects, which was read up to this revision; None if there was none.

    Attributes:
        delivered: the objects that it has delivered and that exist.
        frontier: the revision up to which it is complete; 0 before the end of the snapshot.
        read: the revision up to which its reader has taken what it has delivered.
    """

    def __init__(
        self,
        server: ApiServer,
        watched: Watched,
        made: Callable[[dict[str, Any], bool], pb.Resource],
        store_id: str,
        *,
        resume: int | None = None,
        before: TypeWatch | None = None,
    ) -> None:
        self._server = server
        self._watched = watched
        self._type = watched.type
        self._made = made
        self._store_id = store_id
        self._resume = resume
        self.delivered: dict[Key, pb.Resource] = {}
        self.frontier = self.read = resume or 0
        # True if `delivered` has all objects that exist at the frontier.
        self._whole = resume is None
        # How far the open watch is. Revisions above it that a second watch has delivered, and late changes.
        self._main = self.frontier
        self._seen: set[int] = set()
        self._late: list[Change] = []
        # How far a watch is, this one or a second one. The first of the changes that came late, and when they went on.
        self._proven = self.frontier
        self._delayed: deque[tuple[int, int]] = deque(maxlen=_DELAYS)
        # What its reader has not taken, and what that of the last stream has not.
        self._unread: deque[StreamItem | HeadwayError] = deque()
        self._owed: list[StreamItem | HeadwayError] = []
        if before is not None:
            # It goes on where the last one stood, which may be below the frontier.
            self.delivered, self._whole, self.frontier = before.delivered, before._whole, before.frontier
            self._main, self._seen, self._late = before._main, before._seen, before._late
            self._proven, self._delayed = before._proven, before._delayed
            self._owed = [each for each in (*before._owed, *before._unread) if not isinstance(each, HeadwayError)]
        # When a larger list may be made again.
        self._rested = 0.0
        self._chunk: list[pb.Resource] = []
        self._began = False
        self._wanted = 0
        # Set once the first bookmark or the end of the snapshot has been sent.
        self._live = trio.Event()
        self._asked = trio.Event()
        self._progress = trio.Event()
        self._doubted = trio.Event()
        self._to_prove = 0
        self._reader, self._full = trio.lowlevel.ParkingLot(), trio.lowlevel.ParkingLot()

    @asynccontextmanager
    async def items(self) -> AsyncIterator[AsyncIterator[StreamItem]]:
        """Open the stream for a block."""
        raised: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run, self._follow, name=f"watching {self._type.name}")
            nursery.start_soon(self._run, self._answer, name=f"barriers of {self._type.name}")
            nursery.start_soon(self._run, self._read_late, name=f"late changes of {self._type.name}")
            try:
                yield self
            except Exception as error:  # noqa: BLE001  # raised again below, outside of the nursery's group
                raised = error
            nursery.cancel_scope.cancel()
        if raised is not None:
            raise raised

    def __aiter__(self) -> AsyncIterator[StreamItem]:
        return self

    async def __anext__(self) -> StreamItem:
        await trio.lowlevel.checkpoint()
        while not self._unread:
            await self._reader.park()
        item = self._unread.popleft()
        self._full.unpark_all()
        if isinstance(item, HeadwayError):
            raise item
        if not isinstance(item, SnapshotChunk):
            self.read = item.changes[-1].revision if isinstance(item, Changes) else item.position.revision
        return item

    async def _send(self, item: StreamItem | HeadwayError) -> None:
        """Add an item, also if this is canceled, and wait while there are many."""
        self._unread.append(item)
        self._reader.unpark()
        while len(self._unread) > _QUEUE:
            await self._full.park()

    async def _run(self, task: Any) -> None:
        try:
            await task()
        except HeadwayError as error:
            await self._send(error)

    async def ask_now(self) -> None:
        """Let the stream become complete up to the current revision soon."""
        self.ask(await self.position())

    def has_no(self, key: Key) -> bool:
        """Return True if it delivers an object of this name as long as it exists, and has none."""
        range = self._watched.range
        return (
            self._whole
            and self.frontier > 0
            and not range.metadata
            and range.matches(key)
            and key not in self.delivered
        )

    def ask(self, wanted: int) -> None:
        """Let the stream become complete up to a revision soon. It sends a bookmark then."""
        if wanted > max(self.frontier, self._wanted):
            self._wanted = wanted
            self._asked.set()

    def sure(self, revision: int) -> int:
        """Return the revision, or a lower one if its reader has not been told of all changes up to it.

        A list that ends a barrier does not tell what came and went.
        """
        doubts = [(each.revision, self.frontier) for each in self._late]
        doubts += [*self._delayed, (self._proven + 1, self.frontier)]
        return min([revision, *(first - 1 for first, last in doubts if first <= revision <= last)])

    async def prove(self, revision: int) -> None:
        """Let a second watch bring what may come late up to a revision, and wait for it, but for seconds only."""
        self._to_prove = max(self._to_prove, min(revision, self.frontier))
        self._doubted.set()
        with trio.move_on_after(SIDE_SECONDS):
            while self._proven < self._to_prove:
                await self._progress.wait()

    # The open watch.

    async def _follow(self) -> None:
        if self._resume is None:
            await self._snapshot_and_follow()
        await self._check_history()
        short = 0
        while True:
            # A server ends each watch after some minutes. Meanwhile it may have been restarted on older data.
            began = trio.current_time()
            async with self._watched.opened(self._server, self._main) as events:
                if not self._live.is_set():
                    # Only now, because its reader takes the stream for one that works, and tries the next one at once.
                    self._unread.append(Bookmark(self._position(self.read), resumed=True))
                    self._unread.extend(self._owed)
                    self._owed.clear()
                    self._reader.unpark()
                    self._live.set()
                async for kind, object in events:
                    await self._take(kind, object)
            short = short + 1 if trio.current_time() - began < _SHORT else 0
            await trio.sleep(retry_delay(short - 1) if short else 0)
            await self._check_history()

    async def _check_history(self) -> None:
        """Raise StoreChanged if the cluster's data are older than what was delivered: it would send nothing then."""
        here = await self.position()
        if here < self.frontier:
            raise of_call(
                StoreChanged(f"{self._type.name} is at {here}, but its changes up to {self.frontier} were delivered")
            )

    async def position(self) -> int:
        """Return the revision of a consistent read of the type."""
        found = await self._server.call(
            "GET", self._watched.path, params={**self._watched.params, "limit": "1"}, accept=METADATA_LIST
        )
        return revision_of(found["metadata"].get("resourceVersion"))

    async def _snapshot_and_follow(self) -> None:
        try:
            async with self._watched.opened(self._server, None) as events:
                async for kind, object in events:
                    if await self._snapshot(kind, object):
                        self._main = self.frontier
                        async for kind, object in events:  # the same stream goes on
                            await self._take(kind, object)
                        return
            raise of_call(HistoryCompacted(f"the snapshot of {self._type.name} ended before its end"))
        except (HistoryCompacted, NotFound, PermissionDenied, RateLimited, Unauthenticated):
            raise
        except HeadwayError:
            if self.frontier or self._began:
                # What was sent cannot be taken back, and some of it may be gone in a list.
                raise
            # The server has no streamed lists, or says why it does not answer.
            self.delivered.clear()
            self._chunk.clear()
            await self._list()

    async def _snapshot(self, kind: str, object: dict[str, Any]) -> bool:
        if kind == "BOOKMARK":
            meta = object["metadata"]
            if (meta.get("annotations") or {}).get(_END) != "true":
                return False
            await self._end_snapshot(revision_of(meta["resourceVersion"]))
            return True
        if kind == "DELETED":
            name = object["metadata"]["name"]
            raise of_call(HistoryCompacted(f"{self._type.name} {name} was deleted within the snapshot: begin it anew"))
        await self._gather(object)
        return False

    async def _gather(self, object: dict[str, Any]) -> None:
        resource = self._resource(object)
        if resource is not None:
            self._chunk.append(resource)
            self.delivered[resource_key(resource)] = resource
            if len(self._chunk) >= _CHUNK:
                chunk, self._chunk, self._began = self._chunk, [], True
                await self._send(SnapshotChunk(chunk))

    async def _end_snapshot(self, revision: int) -> None:
        if self._chunk:
            await self._send(SnapshotChunk(self._chunk))
            self._chunk = []
        self.frontier = self._proven = revision
        await self._send(EndOfSnapshot(self._position(revision)))
        self._live.set()
        self._moved()

    async def _list(self) -> None:
        """Send a snapshot from a server without streamed lists."""
        page: dict[str, str] = {}
        while True:
            params = {**self._watched.params, "limit": str(_CHUNK), **page}
            found = await self._server.call("GET", self._watched.path, params=params, accept=self._type.accept("List"))
            for object in found.get("items") or ():
                await self._gather(object)
            page = {"continue": found["metadata"].get("continue", "")}
            if not page["continue"]:
                break
        self._main = revision_of(found["metadata"].get("resourceVersion"))
        await self._end_snapshot(self._main)

    async def _take(self, kind: str, object: dict[str, Any]) -> None:
        """Deliver an event of the open watch."""
        revision = revision_of(object["metadata"].get("resourceVersion"))
        self._main = max(self._main, revision)
        self._proven = max(self._proven, revision)
        if kind == "BOOKMARK":
            self._seen = {each for each in self._seen if each > revision}
            await self._reach(revision)
            self._moved()
        elif revision in self._seen:
            self._seen.discard(revision)
        else:
            await self._change(kind, object, revision)

    # What both watches deliver.

    async def _change(self, kind: str, object: dict[str, Any], revision: int) -> None:
        deleted = kind == "DELETED"
        resource = self._resource(object, deleted=deleted)
        if resource is None:
            return
        change = Change(revision, resource, deleted, more=False)
        if revision <= self.frontier:
            self._late.append(change)
            self._asked.set()
            return
        key = resource_key(resource)
        if change.deleted:
            self.delivered.pop(key, None)
        else:
            self.delivered[key] = resource
        self.frontier = revision
        await self._send(Changes([*self._taken_late(revision), change]))
        self._moved()

    async def _reach(self, revision: int, *, flush: bool = True) -> None:
        """Deliver a bookmark, up to which everything has been delivered. A watch has brought what was late, too."""
        if revision > self.frontier:
            self.frontier = revision
            late = self._taken_late(revision) if flush else []
            if late:
                late[-1] = late[-1]._replace(more=False)
            await self._send(Changes(late) if late else Bookmark(self._position(revision)))
            self._moved()

    def _taken_late(self, revision: int) -> list[Change]:
        late, self._late = self._late, []
        if late:
            self._delayed.append((min(each.revision for each in late), revision - 1))
        return [each._replace(revision=revision, more=True) for each in late]

    def _resource(self, object: dict[str, Any], *, deleted: bool = False) -> pb.Resource | None:
        if self._watched.range.name_prefix and not object["metadata"]["name"].startswith(
            self._watched.range.name_prefix
        ):
            return None
        return self._made(object, deleted)

    def _moved(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    def _position(self, revision: int) -> Position:
        return Position(self._store_id, "", revision)

    # Barriers.

    async def _answer(self) -> None:
        await self._live.wait()
        while True:
            await self._asked.wait()
            if self.frontier < self._wanted or self._late:
                await self._barrier(self._wanted)
            if self._late:
                # Until there is a revision to deliver it at.
                await trio.sleep(_PATIENCE)
            elif self._wanted <= self.frontier:
                self._asked = trio.Event()

    async def _barrier(self, wanted: int) -> None:
        params = {**self._watched.params, "limit": str(self._listed())}
        found = await self._server.call("GET", self._watched.path, params=params, accept=METADATA_LIST)
        here = revision_of(found["metadata"].get("resourceVersion"))
        if here < wanted:
            # Its reader begins another stream at once.
            await trio.sleep(_PATIENCE)
            raise of_call(
                FailedPrecondition(
                    f"{self._type.name} is at revision {here} after others have reached {wanted}: its objects are in "
                    "another etcd than theirs (--etcd-servers-overrides), or an aggregated API server has them. A "
                    "controller cannot use both"
                )
            )
        if self._whole and not self._late and not found["metadata"].get("continue"):
            there = {
                self._watched.key_of(meta): int(meta["resourceVersion"])
                for meta in (each["metadata"] for each in found.get("items") or ())
                if meta["name"].startswith(self._watched.range.name_prefix)
            }
            with trio.move_on_after(_PATIENCE) as patience:
                while self.frontier < here and not self._has_delivered(there, here):
                    await self._progress.wait()
            if not patience.cancelled_caught:
                await self._reach(here, flush=False)
                return
        await self._read_aside(lambda: self.frontier >= here and not self._late)

    async def _read_aside(self, enough: Callable[[], bool]) -> None:
        """Deliver what a second watch brings, until that is enough or it ends."""
        async with self._watched.opened(self._server, self._main, SIDE_SECONDS) as events:
            async for kind, object in events:
                revision = revision_of(object["metadata"].get("resourceVersion"))
                self._proven = max(self._proven, revision)
                if kind == "BOOKMARK":
                    await self._reach(revision)
                elif revision > self._main and revision not in self._seen:
                    self._seen.add(revision)
                    await self._change(kind, object, revision)
                self._moved()
                if enough():
                    return

    async def _read_late(self) -> None:
        while True:
            await self._doubted.wait()
            self._doubted = trio.Event()
            if self._proven < self._to_prove:
                # If it fails, a lower revision is recorded.
                with suppress(HeadwayError):
                    await self._read_aside(lambda: self._proven >= self._to_prove)

    def _listed(self) -> int:
        """Return how many objects the next barrier lists: all of them while that is cheap, else one."""
        count, now = len(self.delivered), trio.current_time()
        texts = (text for each in self.delivered.values() for text in each.metadata.values())
        if count <= SMALL:
            return SMALL if sum(map(len, texts)) < _LIGHT else 1
        if count > _MOST_LISTED or now < self._rested or sum(map(len, texts)) >= _LIGHT:
            return 1
        self._rested = now + count * _REST
        # Others may have made some meanwhile.
        return count + SMALL

    def _has_delivered(self, there: Mapping[Key, int], here: int) -> bool:
        """Return True if the objects of a list at the revision ``here`` are those that were delivered, or older."""
        delivered = self.delivered
        for key, revision in there.items():
            known = delivered.get(key)
            if known is None or int(known.version) < revision:
                return False
            if revision < int(known.version) <= here:
                raise of_call(
                    HistoryCompacted(f"{self._type.name} {key[2]} was restored from before {known.version}: begin anew")
                )
        return all(key in there or int(each.version) > here for key, each in delivered.items())
