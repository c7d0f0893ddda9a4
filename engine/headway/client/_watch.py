"""The events of a watch, and the stream of them that user code reads."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

import trio
from trio.lowlevel import TrioToken

from headway.api import FAILED, Channel, LimitedWaits, Metadata, timeout_of
from headway.base import AsyncBlock, check_trio, current_run
from headway.client._refusals import client_error, of_client
from headway.client._scoped_stream import open_watch_list
from headway.errors import Closed, FailedPrecondition, HeadwayError, RateLimited
from headway.protobuf import Payload
from headway.resource import (
    Bookmark,
    Changes,
    EndOfSnapshot,
    Position,
    Resource,
    ResourceType,
    ScopedType,
    SnapshotChunk,
    pb,
)

T = TypeVar("T", bound=Payload)


@dataclass(frozen=True, slots=True)
class Upserted(Generic[T]):
    """A resource that existed when the watch began (before SnapshotEnd), or that has been stored since."""

    resource: Resource[T]
    revision: int


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """A resource that was deleted at ``revision``, in its last state."""

    resource: Resource[T]
    revision: int


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """The end of the snapshot: everything that existed at ``position`` has been yielded."""

    position: Position


@dataclass(frozen=True, slots=True)
class Progress:
    """A report that the watch has yielded all changes up to ``position``."""

    position: Position


Event = Upserted[T] | Deleted[T] | SnapshotEnd | Progress


def second_reader(what: str, form: str) -> FailedPrecondition:
    """Return the error for a task that reads a stream while another one does. Each would miss what the other got."""
    return FailedPrecondition(
        f"another task is reading this {what}, and each event goes to one reader: open a {what} for each task, "
        f"`async with {form}:`, or let one task read and hand the events on by trio.open_memory_channel"
    )


class WatchStream(AsyncBlock, Generic[T]):
    """A watch, returned by `Client.watch`: ``async with client.watch(TEAM) as events: async for event in events: ...``

    Reading raises HistoryCompacted if the reader has fallen too far behind. Open a new watch then. It raises Closed
    after the end of the block, also in a task that waits for an event then. Only one task may read at a time: another
    one that reads while it waits gets FailedPrecondition. Between two events, another task may go on reading.

    A limit of the server may refuse the watch. It is then opened again, until the timeout of the channel.

    Args:
        channel: opens the stream, with this request and metadata.
    """

    _usage = "client.watch(TEAM) as events"

    def __init__(
        self,
        type: ResourceType[T] | ScopedType[T],
        channel: Channel,
        request: pb.WatchListRequest,
        metadata: Metadata | None,
    ) -> None:
        self._type = type
        self._channel = channel
        self._request = request
        self._metadata = metadata
        # The stream whose block has been entered; None while none is open.
        self._opened: AbstractAsyncContextManager[AsyncIterator[Any]] | None = None
        self._items: AsyncIterator[Any] | None = None
        self._home: TrioToken | None = None
        self._opener: trio.lowlevel.Task | None = None
        # True while a task waits for an item. `_elsewhere` is the scope of a task that has not opened the block.
        self._reading = False
        self._elsewhere: trio.CancelScope | None = None
        # Set when that task waits no longer.
        self._left = trio.Event()
        self._ready: deque[Event[T]] = deque()
        # None once something has arrived: a limit can refuse a watch only before that.
        self._waits: LimitedWaits | None = None
        super().__init__()

    async def __aenter__(self) -> WatchStream[T]:
        self._entered = True
        self._waits = LimitedWaits(timeout_of(self._channel))
        self._home = current_run()
        self._opener = None if self._home is None else trio.lowlevel.current_task()
        with of_client():
            await self._enter()
        return self

    async def _enter(self) -> None:
        opened = open_watch_list(self._channel, self._request, metadata=self._metadata)
        self._items = await opened.__aenter__()
        self._opened = opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._items = None
        self._ready.clear()
        if self._elsewhere is not None:
            self._elsewhere.cancel()
            with trio.CancelScope(shield=True):
                await self._left.wait()
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)

    def _right(self) -> tuple[str, str]:
        if self._home is None:
            return super()._right()
        return "read a watch", "async for event in events"

    def __aiter__(self) -> WatchStream[T]:
        return self

    async def __anext__(self) -> Event[T]:
        self._check_open()
        if self._ready:
            return self._ready.popleft()
        check_trio("a watch", self._home)
        if self._reading:
            raise second_reader("watch", "client.watch(TEAM) as events")
        self._reading = True
        try:
            if trio.lowlevel.current_task() is self._opener:
                await self._fill()
            else:
                # The block may end while this task waits. The task that has opened it cannot do both.
                self._left = trio.Event()
                try:
                    with trio.CancelScope() as self._elsewhere:
                        await self._fill()
                finally:
                    self._elsewhere = None
                    self._left.set()
                self._check_open()
        except FAILED as error:
            raise client_error(error) from error
        except HeadwayError as error:
            error.failed_call = None
            raise
        finally:
            self._reading = False
        return self._ready.popleft()

    def _check_open(self) -> None:
        if self._items is None:
            state = "is not open" if self._home is None else "has ended"
            self._entered = True  # One error is enough.
            raise Closed(f"the block of the watch {state}: read it inside `async with client.watch(...) as events:`")

    async def _fill(self) -> None:
        while not self._ready:
            self._feed(await self._next())

    async def _next(self) -> object:
        """Return the next item. While a limit of the server refuses the watch, wait and open it again."""
        while True:
            assert self._items is not None
            try:
                item: object = await self._items.__anext__()
            except RateLimited as refused:
                if self._waits is None or self._opened is None:
                    raise
                await self._waits.wait(refused)
                opened, self._opened = self._opened, None
                await opened.__aexit__(None, None, None)
                await self._enter()
            else:
                self._waits = None
                return item

    def _feed(self, item: object) -> None:
        view = self._type.view
        if isinstance(item, Changes):
            for change in item.changes:
                kind = Deleted if change.deleted else Upserted
                self._ready.append(kind(view(change.resource), change.revision))
        elif isinstance(item, SnapshotChunk):
            self._ready.extend(Upserted(view(each), int(each.version)) for each in item.resources)
        elif isinstance(item, EndOfSnapshot):
            self._ready.append(SnapshotEnd(item.position))
        elif isinstance(item, Bookmark):
            self._ready.append(Progress(item.position))
