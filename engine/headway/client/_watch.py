"""The events of a watch, and the stream of them that user code reads."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from grpclib import GRPCError
from trio.lowlevel import TrioToken

from headway.base import check_trio, current_run
from headway.client._refusals import client_error
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
from headway.rpc import Channel, Limited, LimitedWaits, Metadata, timeout_of
from headway.service import open_watch_list

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


class WatchStream(Generic[T]):
    """A watch, returned by `Client.watch`: ``async with client.watch(TEAM) as events: async for event in events: ...``

    Reading raises HistoryCompacted if the reader has fallen too far behind. Open a new watch then.

    A limit of the server may refuse the watch. It is then opened again, until the timeout of the channel.

    Args:
        channel: opens the stream, with this request and metadata.
    """

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
        self._ready: deque[Event[T]] = deque()
        # None once something has arrived: a limit can refuse a watch only before that.
        self._waits: LimitedWaits | None = None

    async def __aenter__(self) -> WatchStream[T]:
        self._waits = LimitedWaits(timeout_of(self._channel))
        self._home = current_run()
        try:
            await self._enter()
        except GRPCError as error:
            raise client_error(error) from error
        return self

    async def _enter(self) -> None:
        opened = open_watch_list(self._channel, self._request, metadata=self._metadata)
        self._items = await opened.__aenter__()
        self._opened = opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)

    def __aiter__(self) -> WatchStream[T]:
        return self

    async def __anext__(self) -> Event[T]:
        if self._items is None:
            raise RuntimeError("the watch is not open: read it inside `async with client.watch(...) as events:`")
        while not self._ready:
            try:
                self._feed(await self._next())
            except GRPCError as error:
                raise client_error(error) from error
        return self._ready.popleft()

    async def _next(self) -> object:
        """Return the next item. While a limit of the server refuses the watch, wait and open it again."""
        check_trio("a watch", self._home)
        while True:
            assert self._items is not None
            try:
                item: object = await self._items.__anext__()
            except Limited as refused:
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
