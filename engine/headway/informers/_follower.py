"""The follower of a type: it opens one stream after the other, resumes them, and leaves servers that lag."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import trio

from headway.api import Call, Channel, Code, Lagging, code_of, described, spread
from headway.base import retry_delay
from headway.cache import Informer
from headway.client import open_watch_list
from headway.errors import HeadwayError, RateLimited, StoreChanged, StoreRolledBack
from headway.events import BookmarkRefused, Report, StreamEnded, StreamLagging, StreamOpened
from headway.informers._patrol import Patrol
from headway.informers._request import watch_request
from headway.informers._stream import FalseBookmark, StreamBroken, StreamMachine
from headway.resource import Bookmark, EndOfSnapshot, Position, SnapshotChunk

_BOOKMARK_INTERVAL_MS = 50
"""The interval of bookmarks, in milliseconds. A change waits until the controller's other types have reached its
revision (C4), so under many changes this may delay a reconcile. The first after a quiet time is not delayed."""


class Follower:
    """A task that feeds an informer from WatchList streams, one after the other, until canceled.

    It leaves a lagging stream with `rpc.Lagging`, so that the channel opens the next one at another server.

    Args:
        channel: opens the streams. Each of them may come from another server.
        report: receives an event when a stream opens, ends or lags.
        linearizable: reads the store's current position. It raises Unavailable if that fails, and StoreRolledBack if
            it is given a position that the store never had.
        another_store: called after the store was rolled back; waits until another store has replaced it.
        lag_limit: a stream is closed if, for this many seconds, it stays below the frontier, or is silent while the
            store advances.

    Attributes:
        scope: the scope of the current store. Canceling it discards the cached data and begins anew.
    """

    def __init__(
        self,
        channel: Channel,
        informer: Informer,
        report: Report,
        linearizable: Callable[[Position | None], Awaitable[Position]],
        lag_limit: float,
        *,
        another_store: Callable[[Informer], Awaitable[StoreChanged]],
    ) -> None:
        self._type = informer.type
        self._channel = channel
        self._informer = informer
        self._report = report
        self._patrol = Patrol(informer, report, linearizable, lag_limit)
        self._another_store = another_store
        self._lag_limit = lag_limit
        self.scope = trio.CancelScope()
        self._closed = False
        self._failures = 0
        self._limited = 0.0  # the seconds to wait, because a limit of the server has refused the last stream
        self._denied = self._delivered = False  # the last stream lacked a right; it has delivered something
        self._refused = False  # the server refused to resume, so that the next stream begins with a snapshot
        self._disproved = trio.CancelScope()  # of the open stream
        informer.on_disproved = lambda: self._disproved.cancel()

    async def follow(self) -> None:
        """Follow one store after the other, until canceled or closed."""
        informer = self._informer
        while True:
            error = StoreChanged(
                f"the cache of {informer.type.name} was discarded: the store has been accepted in its current state"
            )
            with trio.CancelScope() as self.scope:
                try:
                    await self.run()
                except StoreChanged as changed:
                    error = changed
                except StoreRolledBack as rolled_back:
                    self._report(StreamEnded(informer.type.name, str(rolled_back), 0))
                    informer.void(rolled_back, replaced=False)
                    error = await self._another_store(informer)
            if self._closed:
                return
            self._report(StreamEnded(informer.type.name, str(error), 0))
            informer.void(error, replaced=True)

    def close(self) -> None:
        """End `follow`, because no reader of its informer is left."""
        self._closed = True
        self.scope.cancel()

    async def run(self) -> None:
        """Follow one store until canceled. Raises StoreChanged or StoreRolledBack; the cached data is then void."""
        self._failures, self._refused = 0, False
        while True:
            self._denied, self._delivered, self._limited = False, False, 0.0
            why = await self._one_stream()
            self._report(StreamEnded(self._type.name, why, self._failures))
            self._informer.disconnected(why, denied=self._denied)
            await trio.sleep(max(retry_delay(self._failures), self._limited))
            self._failures += 1

    async def _one_stream(self) -> str:
        """Open a stream, feed it to the informer until it ends, and return the reason for its end."""
        informer = self._informer
        store = informer.store
        resume_after = None if self._refused else informer.resume_after
        self._refused = False
        machine = StreamMachine(store.store_id, resume_after)
        store.restart()
        try:
            # Within the process a bookmark costs almost nothing, so none is delayed.
            interval = 0 if self._channel.knows_outcomes else _BOOKMARK_INTERVAL_MS
            # Even a snapshot is accepted only from a store whose history contains everything that is cached.
            request = watch_request(self._type, resume_after, interval, store.known)
            async with open_watch_list(self._channel, request) as items:
                self._report(StreamOpened(self._type.name, resume_after))
                # A wrapper that may hold items back hides the call. A stream that may lag says if it can be asked.
                call = getattr(items, "call", None)
                if call is not None and (self._channel.knows_outcomes or call.ask is not None):
                    call.asks = True
                    informer.ask = partial(self._ask, machine, call)
                if self._channel.knows_outcomes:  # within the process no stream lags
                    return await self._feed(machine, items, trio.CancelScope())
                async with self._patrol.patience(machine) as patience:
                    return await self._feed(machine, items, patience)
        except Lagging as error:
            self._report(StreamLagging(self._type.name, machine.frontier, store.frontier))
            await self._patrol.check_not_rolled_back(self._failures)
            return str(error)
        except FalseBookmark as error:
            self._report(BookmarkRefused(self._type.name, str(error)))
            informer.distrusted = True
            return str(error)
        except StreamBroken as error:
            informer.distrusted = True
            return str(error)
        except HeadwayError as error:
            code = code_of(error)
            if code is None:
                raise
            if code is Code.OUT_OF_RANGE:
                self._refused = True  # the cached data is still valid; the stream just cannot resume from there
            elif code is Code.DATA_LOSS:
                # That store never had this position. It may be a copy made earlier.
                informer.distrusted = True
                await self._patrol.check_not_rolled_back(self._failures, refused=True)
            if isinstance(error, RateLimited):
                self._limited = spread(error.retry_after, self._failures) or 0.0
            # A stream ends with its token. Whether that has been renewed shows when the next one is opened.
            unknown = code is Code.UNAUTHENTICATED and not self._delivered
            self._denied = unknown or code is Code.PERMISSION_DENIED
            return described(error)

    def _ask(self, machine: StreamMachine, call: Call, wanted: int) -> Bookmark | None:
        """Ask a stream how far it is. Its machine takes the bookmark in its place among the items."""
        if call.ask is None or (bookmark := call.ask(wanted)) is None:
            return None
        try:
            checked = machine.feed(bookmark)
        except StoreChanged:  # the asker may be any task, and the next stream shows it to this one
            self._disproved.cancel()
            return None
        return checked if isinstance(checked, Bookmark) else None

    async def _feed(self, machine: StreamMachine, items: AsyncIterator[Any], patience: trio.CancelScope) -> str:
        """Feed the informer until the stream ends or becomes useless, and return the reason. Raises Lagging."""
        informer, store = self._informer, self._informer.store
        # A silent stream would show nothing until the next commit.
        with trio.CancelScope() as self._disproved, patience:
            while True:
                # A stream lags from when it falls below the known revision until it has caught up.
                if machine.frontier >= store.frontier:
                    patience.deadline = math.inf
                elif patience.deadline == math.inf:
                    patience.deadline = trio.current_time() + self._lag_limit
                if informer.wanted:
                    informer.ask_on()
                try:
                    item = await items.__anext__()
                except StopAsyncIteration:
                    return "the server ended the stream"
                before = machine.frontier
                checked = machine.feed(item)
                if machine.frontier > before or checked is None or isinstance(item, SnapshotChunk):
                    self._patrol.advances += 1
                self._failures, self._delivered = 0, True
                if informer.cut_off is not None or isinstance(item, EndOfSnapshot):
                    informer.reconnected()
                if checked is not None:
                    informer.feed(checked)
                if isinstance(item, SnapshotChunk):
                    # A snapshot in progress is not a lag, however long it takes.
                    patience.deadline = math.inf
                elif machine.frontier >= store.frontier and informer.distrusted:
                    return "the stream began below the frontier, so its snapshot could not repair the data"
        if self._disproved.cancelled_caught:
            return "a reply to a write, or to a question, has proved false what the stream claimed"
        raise Lagging(f"the stream stayed at revision {machine.frontier}, below the known one, for {self._lag_limit} s")
